"""Many more clients than the machine can serve: do lookups stay quick, and does all become normal again?

    python -m bench.overload [--seconds 60]

Beside each other, against one server: recorders that never wait after a refusal, restorers, silent
connections, half-sent headers, writers and readers of one byte a second, and a prober that asks for
lookups at a steady rate and times each from when it was due. Client and server share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import logging
import multiprocessing
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.load import connect, exchange, post
from bench.transfers import payload
from tests.support.client import Client
from tests.support.server import Server

STATE_BYTES: Final = 1 << 20
_LOOKUPS_A_SECOND: Final = 100
_PROBERS: Final = 10
_NAMESPACE: Final = "bench"


@dataclass(frozen=True)
class Crowd:
    """How many of each kind at once."""

    recorders: int
    restorers: int
    silent: int
    slow: int

    def times(self, by: int) -> Crowd:
        """The crowd so many times as large."""
        return Crowd(*(by * count for count in asdict(self).values()))


@dataclass
class Storm:
    """What came of it. Bytes and milliseconds."""

    seconds: float
    answers: dict[str, int] = field(default_factory=dict)
    unexplained: int = 0  # refusals of overload without Retry-After
    recorded: dict[int, int] = field(default_factory=dict)  # first token -> seed of the payload
    recorded_per_s: float = 0
    lookups: int = 0
    lookup_p50_ms: float = 0
    lookup_p99_ms: float = 0
    mib_per_s: float = 0  # both ways, of states that arrived whole
    most_rss: int = 0


def rss(pid: int) -> int:
    """Memory of a process that no file holds, in bytes: the map of the block store is not counted."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def storm(server: Server, crowd: Crowd, seconds: float, seed: int) -> Storm:
    """Let a crowd loose on a server for that long."""
    with Client(server.url) as client:
        tokens = [0, *range(200)]
        if "state" not in client.lookup(_NAMESPACE, tokens):
            client.record_full(_NAMESPACE, tokens, payload(STATE_BYTES, 0))
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    times: Any = context.SimpleQueue()
    clients = context.Process(target=_crowd, args=(server.port, crowd, seconds, seed, answers))
    prober = context.Process(target=_probe, args=(server.port, seconds, times))
    clients.start()
    prober.start()
    until, most = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        most = max(most, rss(server.pid))
        time.sleep(0.1)
    counts, unexplained, recorded = answers.get()
    samples = sorted(times.get())
    clients.join()
    prober.join()
    return Storm(
        seconds,
        counts,
        unexplained,
        recorded,
        len(recorded) / seconds,
        len(samples),
        1000 * samples[len(samples) // 2],
        1000 * samples[int(0.99 * len(samples))],
        (counts.get("commit 200", 0) + counts.get("restore 200", 0))
        * STATE_BYTES
        / seconds
        / (1 << 20),
        most,
    )


# ---- the steady prober -----------------------------------------------------------------------


def _query(token: int) -> bytes:
    body = {"candidates": [{"namespace": _NAMESPACE, "tokens": [token, *range(500)]}]}
    return post("/v1/lookup", json.dumps(body).encode())


def _probe(port: int, seconds: float, times: Any) -> None:
    """Several connections, each with its share of the lookups, as those of a gateway."""
    samples: list[float] = []

    def ask(which: int) -> None:
        with connect(port) as connection:
            for number in range(which, int(seconds * _LOOKUPS_A_SECOND), _PROBERS):
                due = start + number / _LOOKUPS_A_SECOND
                if (early := due - time.perf_counter()) > 0:
                    time.sleep(early)
                answer = exchange(connection, _query(number))
                samples.append(time.perf_counter() - due)
                assert b" 200 " in answer[:16], answer[:200]

    start = time.perf_counter()
    threads = [threading.Thread(target=ask, args=(which,)) for which in range(_PROBERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.put(samples)


# ---- the crowd -------------------------------------------------------------------------------


class _Clients:
    def __init__(self, port: int, seconds: float, seed: int) -> None:
        self._port = port
        self._until = time.monotonic() + seconds
        self._chance = random.Random(seed)
        self.payloads = [payload(STATE_BYTES, seed) for seed in range(4)]
        self.answers: Counter[str] = collections.Counter()
        self.unexplained = 0
        self.recorded: dict[int, int] = {
            0: 0
        }  # one that is there, so that every restore finds something

    @property
    def going_on(self) -> bool:
        return time.monotonic() < self._until

    async def again_and_again(self, once: Any) -> None:
        while self.going_on:
            with suppress(OSError, asyncio.IncompleteReadError, EOFError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    while self.going_on:
                        await once(reader, writer)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.05)

    async def record(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        token, seed = self._chance.randrange(1 << 30), self._chance.randrange(4)
        body = {
            "namespace": _NAMESPACE,
            "tokens": [token, *range(200)],
            "kind": "full_state",
            "components": [{"name": "full", "bytes": STATE_BYTES}],
        }
        writer.write(post("/v1/records", json.dumps(body).encode()))
        status, admitted = await self._answer("admission", reader)
        if status != 201:
            return
        path = f"/v1/records/{json.loads(admitted)['state_id']}"
        head = f"PUT {path}/components/full HTTP/1.1\r\nHost: b\r\nContent-Length: {STATE_BYTES}\r\n\r\n"
        writer.write(head.encode())
        writer.write(self.payloads[seed])
        status, _ = await self._answer("upload", reader)
        if status == 200:
            writer.write(
                f"POST {path}/commit HTTP/1.1\r\nHost: b\r\nPrefer: wait=60\r\n"
                "Content-Length: 0\r\n\r\n".encode()
            )
            status, _ = await self._answer("commit", reader)
            if status == 200:
                self.recorded[token] = seed

    async def restore(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        token = next(reversed(self.recorded))
        body = {"candidates": [{"namespace": _NAMESPACE, "tokens": [token, *range(200)]}]}
        writer.write(post("/v1/restore", json.dumps(body).encode()))
        status, data = await self._answer("restore", reader)
        if status == 200 and data not in self.payloads:
            self.answers["restore other bytes"] += 1

    async def silent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: b" if self._chance.random() < 0.5 else b"")
        await asyncio.sleep(self._chance.uniform(1, 5))
        if reader.at_eof():
            raise EOFError

    async def slow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Announces a large body and sends a byte a second, or reads an answer no faster."""
        if self._chance.random() < 0.5:
            writer.write(
                b"POST /v1/lookup HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"
                b"Content-Length: 9000000\r\n\r\n"
            )
            while self.going_on and not reader.at_eof():
                writer.write(b"{")
                await asyncio.sleep(1)
            raise EOFError
        token = next(reversed(self.recorded))
        body = {"candidates": [{"namespace": _NAMESPACE, "tokens": [token, *range(200)]}]}
        writer.write(post("/v1/restore", json.dumps(body).encode()))
        while self.going_on and await reader.read(1):  # noqa: ASYNC110 - so slow is what is meant
            await asyncio.sleep(1)
        raise EOFError

    async def _answer(self, what: str, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head[9:12])
        length = 0
        for line in head.split("\r\n"):
            if line.startswith("content-length:"):
                length = int(line.partition(":")[2])
        body = await reader.readexactly(length) if length else b""
        self.answers[f"{what} {status}"] += 1
        if status in (429, 503) and "retry-after" not in head:
            self.unexplained += 1
        return status, body


def _crowd(port: int, crowd: Crowd, seconds: float, seed: int, answers: Any) -> None:
    # Each write after a cut connection is told to stderr otherwise.
    logging.getLogger("asyncio").setLevel(logging.ERROR)

    async def run() -> None:
        clients = _Clients(port, seconds, seed)
        kinds = (
            (clients.record, crowd.recorders),
            (clients.restore, crowd.restorers),
            (clients.silent, crowd.silent),
            (clients.slow, crowd.slow),
        )
        tasks = [
            asyncio.create_task(clients.again_and_again(once))
            for once, count in kinds
            for _ in range(count)
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        answers.put((dict(clients.answers), clients.unexplained, clients.recorded))

    asyncio.run(run())


SERVED: Final = Crowd(recorders=8, restorers=4, silent=20, slow=4)


def main() -> None:
    """Measure at rest, served, ten times overloaded, and after."""
    parser = argparse.ArgumentParser(prog="python -m bench.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    nobody = Crowd(0, 0, 0, 0)
    stages = (
        ("at rest", nobody, min(10.0, options.seconds)),
        ("served", SERVED, options.seconds),
        (f"{options.times} x", SERVED.times(options.times), options.seconds),
        ("after", nobody, min(10.0, options.seconds)),
        ("served again", SERVED, options.seconds),
    )
    with tempfile.TemporaryDirectory() as folder:
        server = Server(
            Path(folder) / "data", budget_bytes="2GiB", max_in_flight_records=16, record_ttl_s=3
        )
        server.start()
        try:
            for number, (name, crowd, seconds) in enumerate(stages):
                found = storm(server, crowd, seconds, seed=number)
                print(
                    f"{name:13} lookups p50 {found.lookup_p50_ms:7.2f} ms, p99 "
                    f"{found.lookup_p99_ms:7.2f} ms; {found.recorded_per_s:6.1f} records/s; "
                    f"{found.mib_per_s:6.1f} MiB/s both ways; memory at most "
                    f"{found.most_rss >> 20} MiB; {found.unexplained} refusals without Retry-After"
                )
                print(f"{'':14}{dict(sorted(found.answers.items()))}", flush=True)
                time.sleep(2)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
