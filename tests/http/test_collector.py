"""Requests leave nothing to the garbage collector, whose full runs hold up everything else."""

from __future__ import annotations

import gc
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.client import Client
from tests.support.server import Server


def _told() -> Path:
    return Path(os.environ["STATEHOLD_DATA_DIR"]).with_name("collected")


def _collect_when_asked() -> None:
    """A thread of the server: how many objects a collection finds, and how many it never looks at."""
    told = _told()

    def watch() -> None:
        while True:
            time.sleep(0.01)
            if told.with_suffix(".ask").exists():
                told.with_suffix(".ask").unlink()
                told.write_text(f"{gc.collect()} {gc.get_freeze_count()}")

    gc.unfreeze()  # what the process that it was forked from left out: a server of its own starts without
    gc.disable()
    threading.Thread(target=watch, daemon=True).start()


def _collected(server: Server) -> tuple[int, int]:
    told = server.data.with_name("collected")
    told.unlink(missing_ok=True)
    told.with_suffix(".ask").touch()
    deadline = time.monotonic() + 20
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found, frozen = map(int, told.read_text().split())
    return found, frozen


def test_requests_leave_no_rings_and_what_stays_is_never_looked_at(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", sabotage=_collect_when_asked, max_in_flight_records=1)
    server.start()
    try:
        with Client(server.url) as client:
            data = os.urandom(300_000)
            client.record_full("ns", [1, 2], data)

            def record(n: int) -> None:
                client.record_full("ns", [3, n], data)

            def restore(_: int) -> None:
                assert client.restore("ns", [1, 2, 3]).content == data

            def lookup(_: int) -> None:
                assert client.lookup("ns", [1, 2, 3])["state"]

            def refuse(n: int) -> None:
                assert client.admit("ns", [4, n], "full_state", {"full": 5}).status_code == 503

            def miss(n: int) -> None:
                assert client.get(f"/v1/states/{n}").status_code == 422

            def per_request(ask: Callable[[int], None]) -> float:
                """The least of some rounds: first times and the clock leave some too."""
                least = math.inf
                for first in range(0, 400, 50):
                    _collected(server)
                    for n in range(first, first + 50):
                        ask(n)
                    least = min(least, _collected(server)[0] / 50)
                    if least < 3:
                        break
                return least

            assert per_request(record) < 3
            assert client.admit("ns", [9], "full_state", {"full": 5}).status_code == 201
            # Before, a request that no route ever claimed the body of left 21 objects.
            for ask in (restore, lookup, refuse, miss):
                assert per_request(ask) < 3, ask
            assert _collected(server)[1] > 100_000
    finally:
        server.kill()
