"""A disk that is full, fails, or is slow, and a clock that jumps: what still works, what is refused with
which code, and that all is well by itself once the trouble is over.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.client import Client, b64
from tests.support.damage import checked
from tests.support.disk.shim import OPEN, READ, SYNC, WRITE, Shim
from tests.support.server import Server

_SIZE = 150_000
_OVER = 40  # seconds by which a server has found out that the trouble is over


def noise(name: object) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(_SIZE)


class Patient:
    """A server behind a shim, and what its client was told."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.shim = Shim(data)
        self.server = Server(data, environment=self.shim.environment, **settings)
        self.server.start()
        self.client = Client(self.server.url)
        self.told: dict[int, bytes] = {}

    def record(self, token: int) -> set[tuple[int, str]]:
        """Record a prefix; the codes of what was refused on the way, none if all was well."""
        answers = [self.client.admit("ns", [token], "full_state", {"full": _SIZE}, replace=True)]
        if answers[0].status_code == 201:
            state_id = answers[0].json()["state_id"]
            answers.append(self.client.upload(state_id, "full", noise(token)))
            if answers[-1].status_code == 200:
                answers.append(self.client.commit(state_id))
                if answers[-1].status_code == 200:
                    self.told[token] = noise(token)
        return {(a.status_code, a.json()["code"]) for a in answers if a.status_code >= 400}

    def reads(self) -> None:
        """Everything acknowledged restores exactly, and a lookup finds it."""
        for token, data in self.told.items():
            answer = self.client.restore("ns", [token])
            assert (answer.status_code, answer.content == data) == (200, True), answer.text[:300]
            assert self.client.lookup("ns", [token], acquire=True)["hit"]

    def is_ready(self) -> None:
        """Nothing is degraded any more."""
        deadline = time.monotonic() + _OVER
        while True:
            with suppress(httpx.TransportError):  # one process makes way for the next
                if not self.client.get("/readyz").json()["degraded"]:
                    return
            assert time.monotonic() < deadline, self.server.logged()[-2000:]
            time.sleep(0.1)

    def recovers(self) -> None:
        """By itself: it records again, what was told is there, and nothing is wrong in the files."""
        deadline = time.monotonic() + _OVER
        while True:
            with suppress(httpx.TransportError):
                if not self.record(999):
                    break
            assert time.monotonic() < deadline, self.server.logged()[-2000:]
            time.sleep(0.2)
        self.reads()
        self.is_ready()
        assert self.client.stats()["quarantined"] == 0
        self.server.stop()
        assert checked(self.server.data, allow_unowned=True) == []


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Callable[..., Patient]]:
    made: list[Patient] = []

    def make(**settings: Any) -> Patient:
        made.append(Patient(tmp_path / "data", **settings))
        assert not made[-1].record(1)
        return made[-1]

    yield make
    for one in made:
        one.client.close()
        one.server.stop()


def test_a_full_disk_refuses_records_and_serves_the_rest(patient: Callable[..., Patient]) -> None:
    one = patient()
    one.shim.fail(WRITE, errno.ENOSPC)
    assert one.record(2) == {(507, "low_space")}
    one.reads()
    assert one.shim.failed() > 0
    one.shim.heal()
    one.recovers()


def test_no_room_left_is_seen_before_anything_is_written(patient: Callable[..., Patient]) -> None:
    one = patient()
    one.shim.free(1 << 20)
    refused = one.client.admit("ns", [2], "full_state", {"full": _SIZE})
    assert (refused.status_code, refused.json()["code"]) == (507, "low_space")
    one.reads()
    assert any("free disk" in word for word in one.client.get("/readyz").json()["degraded"])
    one.shim.free(-1)
    one.recovers()


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        (WRITE, errno.EIO),
        (WRITE, errno.EROFS),
        (WRITE, errno.EDQUOT),
        (SYNC, errno.EIO),
    ],
    ids=["write", "read-only", "quota", "sync"],
)
def test_a_disk_that_fails_stops_records_only_and_only_for_so_long(
    patient: Callable[..., Patient], calls: int, error: int
) -> None:
    one = patient()
    one.shim.fail(calls, error)
    codes = one.record(2) | one.record(3)
    assert codes <= {(503, "stopped"), (507, "low_space"), (409, "components_missing")}
    assert codes
    one.reads()
    one.shim.heal()
    one.recovers()


def test_a_small_write_that_failed_is_told(patient: Callable[..., Patient]) -> None:
    """It stops the writer as others do; /readyz was silent."""
    one = patient()
    one.shim.fail(WRITE, errno.EIO)
    one.reads()  # a lease cannot be written
    assert one.shim.failed() > 0
    assert any("writer stopped" in word for word in one.client.get("/readyz").json()["degraded"])
    one.shim.heal()
    one.recovers()


def test_what_cannot_be_read_now_is_neither_lost_nor_damaged(
    patient: Callable[..., Patient],
) -> None:
    one = patient()
    one.shim.fail(READ, errno.EIO)
    for path in ("/admin/v1/stats", "/admin/v1/states", "/metrics", "/readyz", "/v1/namespaces"):
        assert one.client.get(path).status_code in (200, 503), path
    looked = one.client.post(
        "/v1/lookup", json={"candidates": [{"namespace": "ns", "tokens_b64": b64([1])}]}
    )
    assert looked.status_code in (200, 503)
    assert one.client.restore("ns", [1]).status_code in (200, 503)
    one.shim.heal()
    one.recovers()


def test_without_file_descriptors_what_is_open_goes_on(patient: Callable[..., Patient]) -> None:
    one = patient()
    one.shim.fail(OPEN, errno.EMFILE)
    one.reads()
    one.record(2)
    for path in ("/admin/v1/stats", "/metrics", "/readyz"):
        assert one.client.get(path).status_code in (200, 503), path
    one.shim.heal()
    one.recovers()


def test_a_slow_disk_holds_up_no_reader(patient: Callable[..., Patient]) -> None:
    one = patient()
    one.shim.slow(400_000)
    recorded = threading.Thread(target=one.record, args=(2,))
    recorded.start()
    with Client(one.server.url) as reader:
        answered = 0
        while recorded.is_alive():
            assert reader.restore("ns", [1]).content == noise(1)
            assert reader.lookup("ns", [1])["hit"]
            answered += 1
    recorded.join()
    assert answered > 3  # of reads that were whole while one record waited for its syncs
    one.shim.slow(0)
    one.recovers()


@pytest.mark.parametrize("ahead_s", [86_400, -86_400])
def test_a_clock_that_jumps_ends_no_lease_and_no_recording(
    patient: Callable[..., Patient], ahead_s: int
) -> None:
    one = patient()
    lease = one.client.lookup("ns", [1], acquire=True, ttl_s=30)["lease"]["lease_id"]
    state_id = one.client.admit("ns", [2], "full_state", {"full": _SIZE}).json()["state_id"]
    one.shim.jump(ahead_s)
    time.sleep(1.5)  # the housekeeper looks once a second
    assert one.client.upload(state_id, "full", noise(2)).status_code == 200
    assert one.client.commit(state_id).status_code == 200
    one.told[2] = noise(2)
    kept = one.client.post("/admin/v1/evictions", json={"namespace": "ns"}).json()
    assert len(kept["kept_leased"]) == 1
    del one.told[2]
    assert one.client.release(lease, "restored").status_code == 200
    assert not one.record(3)
    one.shim.jump(0)
    one.recovers()


def _every_call(patient: Callable[..., Patient], error: int, calls: range) -> None:
    """A record and an eviction while the k-th write or sync and all after it fail."""
    one = patient()
    failed = 0
    for k in calls:
        one.shim.fail(WRITE | SYNC, error, skip=k)
        codes = one.record(1000 + k)  # what it leaves under way is in nobody's way then
        assert codes <= {(507, "low_space"), (503, "stopped"), (409, "components_missing")}, k
        one.reads()
        gone = one.client.post("/admin/v1/evictions", json={"namespace": "ns"})
        assert gone.status_code in (200, 507, 503), gone.text
        one.told.clear()  # of an eviction that was refused half way, some may be gone
        failed += one.shim.failed() > 0
        one.shim.heal()
        one.is_ready()  # a sync that failed is no full disk, whatever its error
        assert not one.record(1), k
        one.reads()
    assert failed > len(calls) / 2
    one.recovers()


def test_a_disk_that_gets_full_at_any_write_serves_reads_and_recovers(
    patient: Callable[..., Patient],
) -> None:
    _every_call(patient, errno.ENOSPC, range(0, 60, 3))


@pytest.mark.soak
def test_a_disk_that_gets_full_at_each_write(patient: Callable[..., Patient]) -> None:
    _every_call(patient, errno.ENOSPC, range(int(os.environ.get("SOAK_FULL_DISKS", "500"))))


@pytest.mark.soak
def test_a_disk_that_fails_at_each_write(patient: Callable[..., Patient]) -> None:
    _every_call(patient, errno.EIO, range(int(os.environ.get("SOAK_FAILED_DISKS", "300"))))
