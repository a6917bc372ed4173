"""Lookups: requests a second and latency, by size of the store and length of the query."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.fill import conversations, fill, namespace_of, size_of, tokens_of
from bench.load import Latencies, measure, post
from storage.layout import DataFolder
from tests.support.server import Server

QUERIES = (200, 2_000, 32_000)


def _requests(states: int, length: int) -> list[bytes]:
    """Queries of different conversations, each longer than what is recorded of it."""
    step = max(1, states // 5 // 400)
    found = []
    for conversation, _ in list(conversations(states))[::step][:400]:
        tokens = tokens_of(conversation, length)
        prefix = {
            "namespace": namespace_of(conversation),
            "tokens_b64": base64.b64encode(tokens).decode(),
        }
        found.append(post("/v1/lookup", json.dumps({"candidates": [prefix]}).encode()))
    return found


def run(sizes: tuple[int, ...], seconds: float) -> Iterator[dict[str, object]]:
    """Measure every combination; yields a row each."""
    for states in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            folder = DataFolder(Path(scratch) / "data")
            started = time.perf_counter()
            fill(folder, states)
            print(
                f"  filled {states:,} states in {time.perf_counter() - started:.1f} s, metadata "
                f"{size_of(folder.path) / 1e6:.0f} MB"
            )
            server = Server(folder.path, warm=False)
            server.start()
            try:
                for length in QUERIES:
                    requests = _requests(states, length)
                    for connections in (1, 8):
                        found = measure(server.port, requests, connections, seconds)
                        yield _row(states, length, connections, found)
            finally:
                server.stop()


def _row(states: int, length: int, connections: int, found: Latencies) -> dict[str, object]:
    return {
        "states": states,
        "tokens": length,
        "connections": connections,
        "per_second": round(found.per_second),
        "p50_ms": round(found.p50_ms, 3),
        "p99_ms": round(found.p99_ms, 3),
    }
