"""This service beside what could be used in its place: the same states, in one run, round by round.

A subject puts a state durably and gets it back over the one interface below; `SUBJECTS` lists all of them.
In each round every subject gets the same new state (what was held before would be found again and not be
written), in an order that turns with the rounds, so that a noisy machine is noisy for all. Whatever comes
back is compared with the state, outside the time that is taken.

Two subjects store nothing: they are the limits of the machine. Where a peer leaves a choice it gets the
better one: Redis does not rewrite its log, a client that makes memory of its own for an answer is not
charged for a copy into the caller's, and files are read from the page cache.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import io
import json
import mmap
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench import native, payloads
from bench.load import connect, exchange, post
from bench.payloads import Payload, Shape
from tests.support.server import Server, free_port

_NAMESPACE = "bench"
Got = memoryview | bytes


class Subject(ABC):
    """Something that takes states and gives them back. One start, one stop, one client."""

    name: ClassVar[str]
    stores: ClassVar[bool] = True
    remark: ClassVar[str] = ""

    def missing(self) -> str | None:
        """What has to be installed first; None where nothing has."""
        return None

    @abstractmethod
    def start(self, folder: Path, most_bytes: int) -> None:
        """Start on an empty folder, for states of at most `most_bytes`."""

    @abstractmethod
    def put(self, key: str, payload: Payload) -> None:
        """Store a state; it is durable at the return (limits apart)."""

    def put_again(self, key: str, payload: Payload) -> bool:
        """Store what is held already, as a new recording; False where that is a put like any other."""
        return False

    def plain(self, got: Got) -> Got:
        """The state's bytes of what a get brought; not in the time that is taken."""
        return got

    def show(self, payload: Payload) -> None:  # noqa: B027
        """Outside the time that is taken, before a get: what it is to bring. Only for limits."""

    @abstractmethod
    def get(self, key: str, target: memoryview) -> Got:
        """The bytes of a state: in `target` where the client can read into the caller's memory."""

    def pids(self) -> Sequence[int]:
        """Processes besides this one that work for the subject."""
        return ()

    def cpu_seconds(self) -> float:
        """CPU time so far of client and servers; kernel threads that write back are not in it."""
        return time.process_time() + sum(_cpu_seconds(pid) for pid in self.pids())

    def stored_bytes(self) -> int:
        """Bytes that the disk has allocated for all that was put."""
        return 0

    def facts(self) -> dict[str, object]:
        """What the subject says of itself."""
        return {}

    @abstractmethod
    def stop(self) -> None:
        """End its processes; the folder is removed by the caller."""


# ---- this service --------------------------------------------------------------------------


class StateholdPlain(Subject):
    """A server of one worker, as curl would talk to it: a connection for each call."""

    name = "statehold plain"

    def start(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder / "data"
        self._server = Server(self._folder, warm=False)
        self._server.start()
        self._tokens: dict[str, str] = {}

    def put(self, key: str, payload: Payload) -> None:
        self._record(key, payload, replace=False)

    def put_again(self, key: str, payload: Payload) -> bool:
        self._record(key, payload, replace=True)
        return True

    def _record(self, key: str, payload: Payload, *, replace: bool) -> None:
        tokens = self._tokens[key] = base64.b64encode(payload.tokens.tobytes()).decode()
        body = {
            "namespace": _NAMESPACE,
            "tokens_b64": tokens,
            "kind": "kv",
            "components": [{"name": "kv", "bytes": len(payload.data)}],
            "kv_descriptor": payload.descriptor,
            "replace": replace,
        }
        with connect(self._server.port) as connection:
            admitted = exchange(connection, post("/v1/records", json.dumps(body).encode()))
            path = f"/v1/records/{json.loads(_body(admitted, 201))['state_id']}"
            self._send(connection, f"{path}/components/kv", payload)
            head = (
                f"POST {path}/commit HTTP/1.1\r\nHost: bench\r\n"
                "Prefer: wait=60\r\nContent-Length: 0\r\n\r\n"
            )
            _body(exchange(connection, head.encode()), 200)

    def _send(self, connection: socket.socket, path: str, payload: Payload) -> None:
        connection.sendall(_put(path, len(payload.data)))
        _body(exchange(connection, payload.data), 200)

    def _query(self, key: str) -> dict[str, Any]:
        return {
            "candidates": [{"namespace": _NAMESPACE, "tokens_b64": self._tokens[key]}],
            "accept_kinds": ["kv"],
        }

    def get(self, key: str, target: memoryview) -> Got:
        with connect(self._server.port) as connection:
            connection.sendall(post("/v1/restore", json.dumps(self._query(key)).encode()))
            got = connection.recv(16384)
            while b"\r\n\r\n" not in got:
                got += connection.recv(16384)
            rest = _body(got, 200)
            length = int(_header(got, "content-length"))
            target[: len(rest)] = rest
            _receive(connection, target[len(rest) : length])
        return target[:length]

    def pids(self) -> Sequence[int]:
        return (self._server.pid,)

    def stored_bytes(self) -> int:
        # The ballast is room kept for a full disk, of one size whatever is stored, and made after the start.
        return _allocated(self._folder) - _allocated(self._folder / "ballast")

    def facts(self) -> dict[str, object]:
        with connect(self._server.port) as connection:
            path = f"/v1/namespaces?namespace={_NAMESPACE}"
            answer = exchange(connection, f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        (found,) = json.loads(_body(answer, 200))["namespaces"]
        return {
            "write_amplification": found["write_amplification"],
            "accounted_bytes": found["stored_bytes"],
        }

    def stop(self) -> None:
        self._server.stop()


class StateholdNative(StateholdPlain):
    """The same server through the block form: only blocks that are needed, as they are stored."""

    name = "statehold native"
    remark = (
        "statehold native: put cuts and encodes on the client; get brings stored values, which the "
        "client has yet to decode"
    )

    def _send(self, connection: socket.socket, path: str, payload: Payload) -> None:
        cut = native.cut(payload)
        body = json.dumps({"digests": [digest.hex() for digest in cut.digests]}).encode()
        answer = exchange(connection, post(f"{path}/need", body))
        needed = json.loads(_body(answer, 200))["need"]
        if needed:
            length, pieces = cut.stream(needed)
            connection.sendall(_put(f"{path}/blocks", length))
            for piece in pieces:
                connection.sendall(piece)
            _body(exchange(connection, b""), 200)

    def _query(self, key: str) -> dict[str, Any]:
        return {**super()._query(key), "blocks": {}}

    def plain(self, got: Got) -> Got:
        return native.decoded(got)


# ---- peers ---------------------------------------------------------------------------------


class Redis(Subject):
    """Debian's redis-server on loopback TCP, every write synced before it is answered."""

    name = "redis"
    remark = (
        "redis: appendonly, appendfsync always, no rewriting of the log; a value has at most 512 MB, "
        "larger states go in parts of 256 MiB"
    )
    _MOST_VALUE_BYTES = 512 << 20
    _PART_BYTES = 256 << 20

    def missing(self) -> str | None:
        if not shutil.which("redis-server"):
            return "no redis-server on PATH: apt-get install redis-server"
        return _extra("redis", "hiredis")

    def start(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        port = free_port()
        options = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": folder,
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-percentage": 0,
            "save": "",
            "logfile": folder / "redis.log",
        }
        command = ["redis-server"]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        self._process = subprocess.Popen(command)
        self._client: Any = importlib.import_module("redis").Redis(
            host="127.0.0.1", port=port, socket_timeout=120
        )
        self._parts: dict[str, int] = {}
        try:
            _until_listening(port)
        except OSError:
            self._process.kill()
            raise

    def put(self, key: str, payload: Payload) -> None:
        data = payload.data
        step = len(data) if len(data) <= self._MOST_VALUE_BYTES else self._PART_BYTES
        starts = range(0, len(data), step)
        for n, start in enumerate(starts):
            # A slice of all the bytes is no copy.
            assert self._client.set(f"{key}/{n}", data[start : start + step])
        self._parts[key] = len(starts)

    def get(self, key: str, target: memoryview) -> Got:
        if self._parts[key] == 1:
            value: bytes = self._client.get(f"{key}/0")
            return value
        at = 0
        for n in range(self._parts[key]):
            value = self._client.get(f"{key}/{n}")
            target[at : at + len(value)] = value
            at += len(value)
        return target[:at]

    def pids(self) -> Sequence[int]:
        return (self._process.pid,)

    def stored_bytes(self) -> int:
        return _allocated(self._folder)

    def stop(self) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait()


class RedisInParts(Redis):
    """The same server with small values, several under way: about the fastest of the ways tried."""

    name = "redis, 1 MiB"
    remark = "redis, 1 MiB: the same, a state in parts of 1 MiB, pipelines of 8 of them"
    _PART_BYTES = 1 << 20
    _PIPELINE = 8

    def put(self, key: str, payload: Payload) -> None:
        data, step = payload.data, self._PART_BYTES
        self._parts[key] = -(-len(data) // step)
        for group in self._groups(key):
            pipeline = self._client.pipeline(transaction=False)
            for n in group:
                pipeline.set(f"{key}/{n}", data[n * step : (n + 1) * step])
            assert all(pipeline.execute())

    def get(self, key: str, target: memoryview) -> Got:
        at = 0
        for group in self._groups(key):
            pipeline = self._client.pipeline(transaction=False)
            for n in group:
                pipeline.get(f"{key}/{n}")
            for value in pipeline.execute():
                target[at : at + len(value)] = value
                at += len(value)
        return target[:at]

    def _groups(self, key: str) -> Iterator[range]:
        count = self._parts[key]
        for first in range(0, count, self._PIPELINE):
            yield range(first, min(first + self._PIPELINE, count))


class DiskCache(Subject):
    """The diskcache package: SQLite for the keys, a file for each large value, in this process."""

    name = "diskcache"
    remark = (
        "diskcache: it does not sync its value files, so the bench does after each set; "
        "SQLite synchronous=FULL, no culling"
    )

    def missing(self) -> str | None:
        return _extra("diskcache")

    def start(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._cache: Any = importlib.import_module("diskcache").Cache(
            str(folder), size_limit=1 << 50, eviction_policy="none", sqlite_synchronous=2
        )

    def put(self, key: str, payload: Payload) -> None:
        # Given as bytes it is written line by line, four times slower (5.6.3).
        self._cache.set(key, io.BytesIO(payload.data), read=True)
        with self._cache.read(key) as handle:
            os.fsync(handle.fileno())
            parents = Path(handle.name).parents
        for parent in parents[: parents.index(self._folder) + 1]:
            _sync_folder(parent)

    def get(self, key: str, target: memoryview) -> Got:
        with self._cache.read(key) as handle:
            return _read(handle, target)

    def stored_bytes(self) -> int:
        return _allocated(self._folder)

    def stop(self) -> None:
        self._cache.close()


class PlainFiles(Subject):
    """A file for each state: write, fsync, rename, fsync of the folder."""

    name = "plain files"

    def start(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder

    def put(self, key: str, payload: Payload) -> None:
        part = self._folder / f"{key}.part"
        with part.open("wb", buffering=0) as handle:
            left = memoryview(payload.data)
            while left:
                left = left[handle.write(left) :]
            os.fsync(handle.fileno())
        part.rename(self._folder / key)
        _sync_folder(self._folder)

    def get(self, key: str, target: memoryview) -> Got:
        with (self._folder / key).open("rb", buffering=0) as handle:
            return _read(handle, target)

    def stored_bytes(self) -> int:
        return _allocated(self._folder)

    def stop(self) -> None:
        pass


# ---- limits of the machine -----------------------------------------------------------------


class Loopback(Subject):
    """A bare TCP socket to another process, which throws away what it gets and sends what it is shown."""

    name = "loopback"
    stores = False

    def start(self, folder: Path, most_bytes: int) -> None:
        self._shown = mmap.mmap(-1, most_bytes)
        self._length = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        context = multiprocessing.get_context("fork")
        self._other = context.Process(target=_other_side, args=(self._listener, self._shown))
        self._other.start()
        self._connection = connect(self._listener.getsockname()[1])

    def put(self, key: str, payload: Payload) -> None:
        self._command(b"r", len(payload.data))
        self._connection.sendall(payload.data)
        assert self._connection.recv(1) == b"k"

    def show(self, payload: Payload) -> None:
        self._length = len(payload.data)
        self._shown[: self._length] = payload.data

    def get(self, key: str, target: memoryview) -> Got:
        self._command(b"s", self._length)
        _receive(self._connection, target[: self._length])
        return target[: self._length]

    def pids(self) -> Sequence[int]:
        return (self._other.pid,) if self._other.pid else ()

    def stop(self) -> None:
        self._other.terminate()
        self._other.join()
        self._connection.close()
        self._listener.close()
        self._shown.close()

    def _command(self, word: bytes, length: int) -> None:
        self._connection.sendall(word + length.to_bytes(8, "little"))


def _other_side(listener: socket.socket, shown: mmap.mmap) -> None:
    buffer = memoryview(bytearray(1 << 20))
    connection, _ = listener.accept()
    with connection:
        while True:
            command = bytearray(9)
            _receive(connection, memoryview(command))
            left = int.from_bytes(command[1:], "little")
            if command[:1] == b"s":
                with memoryview(shown) as view, view[:left] as part:
                    connection.sendall(part)
            else:
                while left:
                    left -= connection.recv_into(buffer, min(left, len(buffer)))
                connection.sendall(b"k")


class MemoryCopy(Subject):
    """One copy in memory that is there already."""

    name = "memory copy"
    stores = False

    def start(self, folder: Path, most_bytes: int) -> None:
        self._held = memoryview(bytearray(most_bytes))
        self._length = 0

    def put(self, key: str, payload: Payload) -> None:
        self._length = len(payload.data)
        self._held[: self._length] = payload.data

    def get(self, key: str, target: memoryview) -> Got:
        target[: self._length] = self._held[: self._length]
        return target[: self._length]

    def stop(self) -> None:
        self._held.release()


SUBJECTS: tuple[type[Subject], ...] = (
    StateholdPlain,
    StateholdNative,
    Redis,
    RedisInParts,
    DiskCache,
    PlainFiles,
    Loopback,
    MemoryCopy,
)


# ---- rounds --------------------------------------------------------------------------------


@dataclass
class _Samples:
    """What the rounds of one subject and direction took, wall clock and CPU seconds."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @contextmanager
    def taken(self, subject: Subject) -> Iterator[None]:
        cpu, started = subject.cpu_seconds(), time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - started)
        self.cpu_seconds.append(subject.cpu_seconds() - cpu)

    def figures(self, direction: str, size: int) -> dict[str, float]:
        if not self.seconds:
            return {}
        return {
            f"{direction}_gb_per_s": size / statistics.median(self.seconds) / 1e9,
            f"{direction}_best_gb_per_s": size / min(self.seconds) / 1e9,
            f"{direction}_cpu_s_per_gb": statistics.median(self.cpu_seconds) / size * 1e9,
        }


def available() -> tuple[list[Subject], list[str]]:
    """The subjects that can run here, and a line for each that cannot."""
    present, absent = [], []
    for subject in (kind() for kind in SUBJECTS):
        if (reason := subject.missing()) is None:
            present.append(subject)
        else:
            absent.append(f"{subject.name} is left out: {reason}")
    return present, absent


def run(subjects: Sequence[Subject], shape: Shape, size: int, rounds: int) -> list[dict[str, Any]]:
    """Figures of each subject for states of `size` bytes, a first round not counted."""
    puts = {subject.name: _Samples() for subject in subjects}
    gets = {subject.name: _Samples() for subject in subjects}
    agains = {subject.name: _Samples() for subject in subjects}
    target = memoryview(bytearray(size + (1 << 20)))  # a block stream has heads besides
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        for subject in subjects:
            running.enter_context(started(subject, Path(scratch), size))
        for turn in range(rounds + 1):
            payload = payloads.payload(shape, size, turn)
            first = turn % len(subjects)
            for subject in (*subjects[first:], *subjects[:first]):
                with (_Samples() if turn == 0 else puts[subject.name]).taken(subject):
                    subject.put(str(turn), payload)
                subject.show(payload)
                with (_Samples() if turn == 0 else gets[subject.name]).taken(subject):
                    got = subject.get(str(turn), target)
                check(subject, subject.plain(got), payload)
                del got
                with (_Samples() if turn == 0 else agains[subject.name]).taken(subject):
                    twice = subject.put_again(str(turn), payload)
                if not twice:
                    agains[subject.name] = _Samples()
    return [
        {
            "name": name,
            "bytes": size,
            **puts[name].figures("put", size),
            **gets[name].figures("get", size),
            **agains[name].figures("again", size),
        }
        for name in puts
    ]


@contextmanager
def started(subject: Subject, scratch: Path, most_bytes: int) -> Iterator[None]:
    """The subject on a folder of its own, while the context lasts."""
    folder = scratch / subject.name.replace(" ", "-")
    folder.mkdir()
    subject.start(folder, most_bytes)
    try:
        yield
    finally:
        subject.stop()
        shutil.rmtree(folder)


def check(subject: Subject, got: Got, payload: Payload) -> None:
    """Every byte is the state's."""
    assert len(got) == len(payload.data), f"{subject.name}: {len(got)} bytes came back"
    same = np.array_equal(np.frombuffer(got, np.uint8), np.frombuffer(payload.data, np.uint8))
    assert same, f"{subject.name}: not the bytes that were put"


# ---- small things --------------------------------------------------------------------------


def _extra(*modules: str) -> str | None:
    if all(importlib.util.find_spec(module) for module in modules):
        return None
    return "a package is missing: pip install '.[bench]'"


def _cpu_seconds(pid: int) -> float:
    """CPU time of another process with all its threads: its clock, as clock_getcpuclockid(3) names it."""
    return time.clock_gettime((~pid << 3) | 2)


def _allocated(path: Path) -> int:
    """Bytes the disk has allocated for a file, or for all files in a folder; nothing if there is none."""
    # Not the lengths: LMDB's file has holes.
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(handle: Any, target: memoryview) -> memoryview:
    size = os.fstat(handle.fileno()).st_size
    left = target[:size]
    while left:
        got = handle.readinto(left)
        assert got, "the file ended early"
        left = left[got:]
    return target[:size]


def _receive(connection: socket.socket, target: memoryview) -> None:
    while target:
        got = connection.recv_into(target)
        assert got, "the answer broke off"
        target = target[got:]


def _put(path: str, length: int) -> bytes:
    return f"PUT {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n\r\n".encode()


def _header(answer: bytes, name: str) -> str:
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    for line in head.split("\r\n")[1:]:
        found, _, value = line.partition(":")
        if found.lower() == name:
            return value.strip()
    raise AssertionError(f"no {name} in {head}")


def _body(answer: bytes, status: int) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] == str(status).encode(), answer[:2000]
    return body


def _until_listening(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            connect(port).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
