"""Record and restore of large payloads, beside the loopback socket and a plain file in the same run."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.load import connect, exchange, post
from tests.support.server import Server

_SAMPLE = Path(__file__).parents[1] / "tests" / "data" / "states" / "smollm2.128.full.bin"
_TICKS = os.sysconf("SC_CLK_TCK")


def payload(size: int, seed: int) -> bytes:
    """Bytes with the statistics of real f16 KV rows: a real state, tiled, low mantissa bits noised."""
    base = np.frombuffer(_SAMPLE.read_bytes()[4096 : 4096 + (2 << 20)], dtype=np.uint16)
    tiles = -(-size // base.nbytes)
    noise = np.random.default_rng(seed).integers(0, 4, tiles * base.size, dtype=np.uint16)
    return (np.tile(base, tiles) ^ noise).tobytes()[:size]


def best(run: Callable[[], None], size: int, rounds: int) -> float:
    """Best of some rounds, GB/s."""
    return size / min(_timed(run) for _ in range(rounds)) / 1e9


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


# ---- what the machine can do ---------------------------------------------------------------


def _echo_side(listener: socket.socket, data: bytes) -> None:
    """Answers b"s" by sending the data, and b"r" by receiving as much and saying so."""
    buffer = bytearray(1 << 20)
    while True:
        connection, _ = listener.accept()
        with connection:
            word = connection.recv(1)
            if word == b"q":
                return
            if word == b"s":
                connection.sendall(data)
            else:
                left = len(data)
                while left:
                    left -= connection.recv_into(buffer)
                connection.sendall(b"k")


def loopback(data: bytes, rounds: int) -> tuple[float, float]:
    """GB/s of a bare socket to and from another process: (receive, send) of the client."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    context = multiprocessing.get_context("fork")
    other = context.Process(target=_echo_side, args=(listener, data))
    other.start()
    target = bytearray(len(data))

    def receive() -> None:
        with connect(port) as connection:
            connection.sendall(b"s")
            _fill(connection, memoryview(target))

    def send() -> None:
        with connect(port) as connection:
            connection.sendall(b"r")
            connection.sendall(data)
            assert connection.recv(1) == b"k"

    try:
        return best(receive, len(data), rounds), best(send, len(data), rounds)
    finally:
        with connect(port) as connection:
            connection.sendall(b"q")
        other.join()
        listener.close()


def plain_file(data: bytes, rounds: int, folder: Path) -> tuple[float, float]:
    """GB/s of a file on the same device: (write with fsync, read from the page cache)."""
    path = folder / "plain"

    def write() -> None:
        with path.open("wb", buffering=0) as handle:
            handle.write(data)
            os.fsync(handle.fileno())

    def read() -> None:
        path.read_bytes()

    result = best(write, len(data), rounds), best(read, len(data), rounds)
    path.unlink()
    return result


# ---- this service --------------------------------------------------------------------------


def record(port: int, token: int, data: bytes) -> None:
    """Admission, upload and durable commit."""
    body = {
        "namespace": "bench",
        "tokens": [token],
        "kind": "full_state",
        "components": [{"name": "full", "bytes": len(data)}],
    }
    with connect(port) as connection:
        admitted = exchange(connection, post("/v1/records", json.dumps(body).encode()))
        state_id = json.loads(admitted.split(b"\r\n\r\n", 1)[1])["state_id"]
        head = (
            f"PUT /v1/records/{state_id}/components/full HTTP/1.1\r\nHost: bench\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        connection.sendall(head.encode())
        sent = exchange(connection, data)
        assert b" 200 " in sent[:16], sent
        done = exchange(
            connection,
            f"POST /v1/records/{state_id}/commit HTTP/1.1\r\nHost: bench\r\nPrefer: wait=60\r\n"
            "Content-Length: 0\r\n\r\n".encode(),
        )
        assert b" 200 " in done[:16], done


def restore(port: int, token: int, target: memoryview) -> None:
    """One round trip into memory that is there already."""
    body = {"candidates": [{"namespace": "bench", "tokens": [token]}]}
    with connect(port) as connection:
        connection.sendall(post("/v1/restore", json.dumps(body).encode()))
        got = connection.recv(16384)
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += connection.recv(16384)
        rest = got[end + 4 :]
        target[: len(rest)] = rest
        _fill(connection, target[len(rest) :])


def _fill(connection: socket.socket, target: memoryview) -> None:
    while target:
        got = connection.recv_into(target)
        assert got, "the answer broke off"
        target = target[got:]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def run(size: int, rounds: int) -> dict[str, float]:
    """Everything for one payload size."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = payload(size, 0)
        down, up = loopback(data, rounds)
        written, read = plain_file(data, rounds, folder)
        server = Server(folder / "data", warm=False)
        server.start()
        try:
            bodies = [payload(size, n) for n in range(rounds)]
            before = _cpu_seconds(server.pid)
            first = [
                size / _timed(lambda n=n: record(server.port, n, bodies[n])) / 1e9  # type: ignore[misc]
                for n in range(rounds)
            ]
            cpu_record = (_cpu_seconds(server.pid) - before) / (rounds * size / 1e9)
            again = [
                size / _timed(lambda n=n: record(server.port, 100 + n, bodies[n])) / 1e9  # type: ignore[misc]
                for n in range(rounds)
            ]
            target = memoryview(bytearray(size))
            before = _cpu_seconds(server.pid)
            restored = best(lambda: restore(server.port, 0, target), size, rounds)
            cpu_restore = (_cpu_seconds(server.pid) - before) / (rounds * size / 1e9)
            assert target == bodies[0], "not the bytes that were recorded"
        finally:
            server.stop()
    return {
        "bytes": size,
        "loopback_receive": down,
        "loopback_send": up,
        "file_write_fsync": written,
        "file_read": read,
        "record": max(first),
        "record_held": max(again),
        "restore": restored,
        "cpu_s_per_gb_record": cpu_record,
        "cpu_s_per_gb_restore": cpu_restore,
    }


def big_upload(size: int) -> dict[str, float]:
    """Growth of the server's memory while one component of `size` bytes arrives."""
    part = payload(64 << 20, 1)
    with tempfile.TemporaryDirectory() as scratch:
        server = Server(Path(scratch) / "data", warm=False)
        server.start()
        try:
            record(server.port, 1, part[: 1 << 20])
            before = _kib(server.pid, "VmRSS")
            body = {
                "namespace": "bench",
                "tokens": [2],
                "kind": "full_state",
                "components": [{"name": "full", "bytes": size}],
            }
            with connect(server.port) as connection:
                admitted = exchange(connection, post("/v1/records", json.dumps(body).encode()))
                state_id = json.loads(admitted.split(b"\r\n\r\n", 1)[1])["state_id"]
                connection.sendall(
                    f"PUT /v1/records/{state_id}/components/full HTTP/1.1\r\nHost: bench\r\n"
                    f"Content-Length: {size}\r\n\r\n".encode()
                )
                started = time.perf_counter()
                for n in range(size // len(part)):
                    shifted = n * 4099 % len(part)
                    connection.sendall(part[shifted:])
                    connection.sendall(part[:shifted])
                assert b" 200 " in connection.recv(65536)[:16]
                took = time.perf_counter() - started
            peak = _kib(server.pid, "VmHWM")
        finally:
            server.stop()
    return {
        "bytes": size,
        "rss_before_mib": before / 1024,
        "peak_rss_mib": peak / 1024,
        "growth_mib": (peak - before) / 1024,
        "gb_per_s": size / took / 1e9,
    }


def many_uploads(count: int, size: int, *, windows: bool) -> dict[str, float]:
    """Peak of the server's memory while so many components of `size` bytes arrive at once.

    Args:
        windows: with a geometry, so that each is gathered before it is cut.

    `peak_own_mib` is memory of its own (RssAnon, sampled), `peak_rss_mib` the high-water mark with the
    pages of its mapped files, which the page cache can take back.
    """
    part = payload(64 << 20, 1)
    own: list[int] = []
    with tempfile.TemporaryDirectory() as scratch:
        server = Server(Path(scratch) / "data", warm=False)
        server.start()
        try:
            record(server.port, 1, part[: 1 << 20])
            before = _kib(server.pid, "RssAnon")
            started = time.perf_counter()
            clients = [
                threading.Thread(target=_upload, args=(server.port, part, n, size, windows))
                for n in range(count)
            ]
            for client in clients:
                client.start()
            while any(client.is_alive() for client in clients):
                own.append(_kib(server.pid, "RssAnon"))
                time.sleep(0.05)
            took = time.perf_counter() - started
            peak = _kib(server.pid, "VmHWM")
            done = json.loads(
                exchange(
                    connection := connect(server.port),
                    b"GET /admin/v1/stats HTTP/1.1\r\nHost: bench\r\n\r\n",
                ).split(b"\r\n\r\n", 1)[1]
            )
            connection.close()
            assert done["live"] == count + 1, "every upload was recorded"
        finally:
            server.stop()
    return {
        "uploads": count,
        "bytes": size,
        "windows": windows,
        "own_before_mib": before / 1024,
        "peak_own_mib": max(own) / 1024,
        "peak_rss_mib": peak / 1024,
        "gb_per_s": count * size / took / 1e9,
    }


def _upload(port: int, part: memoryview | bytes, number: int, size: int, windows: bool) -> None:
    body: dict[str, object] = {
        "namespace": "bench",
        "tokens": [1000 + number],
        "kind": "full_state",
        "components": [{"name": "full", "bytes": size}],
    }
    if windows:
        runs = [{"offset": n * (size // 64), "stride": 2048} for n in range(64)]
        body["geometry"] = {"full": {"rows": size // 64 // 2048, "runs": runs}}
    with connect(port) as connection:
        admitted = exchange(connection, post("/v1/records", json.dumps(body).encode()))
        state_id = json.loads(admitted.split(b"\r\n\r\n", 1)[1])["state_id"]
        path = f"/v1/records/{state_id}"
        connection.sendall(
            f"PUT {path}/components/full HTTP/1.1\r\nHost: bench\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
        )
        for n in range(size // len(part)):
            shifted = (n * 8 + number) * 4099 % len(part)
            connection.sendall(part[shifted:])
            connection.sendall(part[:shifted])
        assert b" 200 " in exchange(connection, b"")[:16]
        commit = (
            f"POST {path}/commit HTTP/1.1\r\nHost: bench\r\n"
            "Prefer: wait=60\r\nContent-Length: 0\r\n\r\n"
        )
        assert b" 200 " in exchange(connection, commit.encode())[:16]


def _kib(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0])
