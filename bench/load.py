"""Clients that cost little: raw sockets, prepared requests, one process a group of connections."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Latencies:
    """What a load saw: requests a second, and quantiles in milliseconds."""

    per_second: float
    p50_ms: float
    p99_ms: float


def post(path: str, body: bytes) -> bytes:
    """A whole HTTP/1.1 request."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request, return its whole answer (which must have a Content-Length or no body)."""
    connection.sendall(request)
    got = connection.recv(65536)
    while (end := got.find(b"\r\n\r\n")) < 0:
        got += connection.recv(65536)
    start = got.lower().find(b"content-length: ")
    length = 0
    if 0 <= start < end:
        length = int(got[start + 16 : got.index(b"\r", start)])
    while len(got) < end + 4 + length:
        got += connection.recv(1 << 20)
    return got


def measure(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Latencies:
    """Load one server with that many connections, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [
        context.Process(target=_drive, args=(port, requests[n::connections], seconds, results))
        for n in range(connections)
    ]
    for worker in workers:
        worker.start()
    samples: list[float] = []
    elapsed = 0.0
    for _ in workers:
        part, took = results.get()
        samples += part
        elapsed = max(elapsed, took)
    for worker in workers:
        worker.join()
    samples.sort()
    return Latencies(
        len(samples) / elapsed,
        samples[len(samples) // 2] * 1000,
        samples[int(len(samples) * 0.99)] * 1000,
    )


def _drive(port: int, requests: Sequence[bytes], seconds: float, results: object) -> None:
    samples = []
    with connect(port) as connection:
        for request in requests[:20]:
            assert b" 200 " in exchange(connection, request)[:16]
        started = time.perf_counter()
        n = 0
        while (now := time.perf_counter()) - started < seconds:
            exchange(connection, requests[n % len(requests)])
            samples.append(time.perf_counter() - now)
            n += 1
        results.put((samples, time.perf_counter() - started))  # type: ignore[attr-defined]
