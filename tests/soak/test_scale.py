"""A store of many states in many namespaces, filled in bulk: what holds at any size holds here.

Only in `make soak`; the figures of a million states come from `python -m bench.scale`.
"""

from __future__ import annotations

import time

import httpx
import pytest

from bench.scale import Shape, fill, requests
from storage.compact import compact
from storage.layout import DataFolder
from tests.support.client import Client
from tests.support.damage import checked
from tests.support.server import Server

pytestmark = pytest.mark.soak

_SHAPE = Shape(states=50_000, namespaces=500)
_SECONDS_TO_START = 5.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A filled data folder."""
    made = DataFolder(tmp_path_factory.mktemp("scale") / "data")
    fill(made, _SHAPE)
    return made


def _started(server: Server) -> float:
    began = time.monotonic()
    server.start()
    return time.monotonic() - began


def test_a_filled_store_has_no_findings_and_takes_no_scan_a_namespace(folder: DataFolder) -> None:
    began = time.monotonic()
    assert checked(folder.path) == []
    # 500 scans of the tree and of the owners took minutes.
    assert time.monotonic() - began < 60


def test_it_starts_at_once_after_a_stop_and_after_a_kill(folder: DataFolder) -> None:
    server = Server(folder.path)
    assert _started(server) < _SECONDS_TO_START
    server.kill()
    assert _started(server) < _SECONDS_TO_START
    server.stop()


def test_lookups_find_the_longest_state_of_every_conversation(folder: DataFolder) -> None:
    server = Server(folder.path)
    server.start()
    try:
        with httpx.Client(base_url=server.url) as client:
            for request in requests(_SHAPE)[:200]:
                body = request.partition(b"\r\n\r\n")[2]
                answer = client.post(
                    "/v1/lookup", content=body, headers={"Content-Type": "application/json"}
                ).json()
                assert answer["state"]["token_count"] == 1400
    finally:
        server.stop()


def test_eviction_and_compaction_leave_a_sound_and_smaller_store(folder: DataFolder) -> None:
    server = Server(folder.path)
    server.start()
    try:
        with Client(server.url) as client:
            held = client.stats()
            target = held["stored_bytes"] * 9 // 10
            gone = client.post("/admin/v1/evictions", json={"target_bytes": target}, timeout=300)
            evicted = len(gone.json()["evicted"])
            assert 4_500 < evicted < 5_500
            assert client.stats()["live"] == held["live"] - evicted
    finally:
        server.stop()
    done = compact(folder)
    assert done.after_bytes < done.before_bytes
    assert checked(folder.path) == []
