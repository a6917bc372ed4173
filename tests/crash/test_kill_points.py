"""SIGKILL at every named crash point of a real server, and what must be true after the next start.

Every state acknowledged as committed restores exactly; what was under way is there whole or not at
all; what was acknowledged as gone stays gone; refcounts equal owners; LMDB holds no unowned block.
"""

from __future__ import annotations

import hashlib
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.failpoints import POINTS
from tests.conftest import ServerFactory
from tests.support import native
from tests.support.client import Client, code
from tests.support.damage import checked
from tests.support.server import Server


def noise(name: object, size: int = 150_000) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


@dataclass
class Ledger:
    """What the client was told. Keys are first tokens; values the bytes recorded."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    under_way: dict[int, bytes] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def begin(self, token: int, data: bytes) -> None:
        self.under_way[token] = data

    def committed(self, token: int) -> None:
        self.acknowledged[token] = self.under_way.pop(token)

    def doubtful(self, token: int) -> None:
        """Its removal was asked for and not yet acknowledged."""
        self.under_way[token] = self.acknowledged.pop(token)

    def removed(self, token: int) -> None:
        del self.under_way[token]
        self.gone.add(token)


def _record(client: Client, ledger: Ledger, token: int, data: bytes) -> str:
    ledger.begin(token, data)
    state_id = client.record_full("ns", [token, 1, 2], data)
    ledger.committed(token)
    return state_id


def _geometry(data: bytes) -> dict[str, Any]:
    """One run of rows of 2 KiB: windows of 64 rows."""
    return {"full": {"rows": len(data) // 2048, "runs": [{"offset": 0, "stride": 2048}]}}


def _record_windows(client: Client, ledger: Ledger, token: int, data: bytes) -> None:
    """A component that is gathered first and cut into token windows."""
    ledger.begin(token, data)
    client.record_full("ns", [token, 1, 2], data, geometry=_geometry(data))
    ledger.committed(token)


def _record_blocks(client: Client, ledger: Ledger, token: int, data: bytes) -> None:
    """A component of which only the blocks are sent that the namespace does not have."""
    ledger.begin(token, data)
    geometry = _geometry(data)
    admitted = client.admit(
        "ns", [token, 1, 2], "full_state", {"full": len(data)}, geometry=geometry
    )
    path = f"/v1/records/{admitted.json()['state_id']}"
    blocks = native.cut(data, geometry["full"])
    digests = [native.digest(block).hex() for block in blocks]
    wanted = client.post(f"{path}/components/full/need", json={"digests": digests}).json()["need"]
    assert wanted == [1]
    body = native.stream({seq: native.value(blocks[seq]) for seq in wanted})
    assert client.put(f"{path}/components/full/blocks", content=body).status_code == 200
    assert client.commit(admitted.json()["state_id"]).status_code == 200
    ledger.committed(token)


def _life(client: Client, ledger: Ledger) -> None:
    """One of everything: records, shared blocks, abort, eviction, quarantine and back, replacement."""
    first = _record(client, ledger, 1, noise(1))
    _record(client, ledger, 2, noise(1))  # shares every block with the first
    third = _record(client, ledger, 3, noise(3, 2_500_000))

    aborted = client.admit("ns", [4, 1, 2], "full_state", {"full": 150_000}).json()["state_id"]
    client.upload(aborted, "full", noise(4))
    client.delete(f"/v1/records/{aborted}")

    ledger.doubtful(1)
    client.post("/admin/v1/evictions", json={"state_ids": [first]})
    ledger.removed(1)

    ledger.doubtful(3)
    client.post(f"/admin/v1/states/{third}/quarantine", json={"reason": "test"})
    client.post(f"/admin/v1/states/{third}/release")
    ledger.acknowledged[3] = ledger.under_way.pop(3)

    sixth = _record(client, ledger, 6, noise(6))
    ledger.doubtful(6)
    client.post("/admin/v1/evictions", json={"state_ids": [sixth]})
    ledger.removed(6)
    _record(client, ledger, 7, noise(6))  # the blocks of what has just been reclaimed

    _record_windows(client, ledger, 8, noise(8, 96 * 2048))
    _record_windows(client, ledger, 9, noise(8, 96 * 2048) + noise(9, 32 * 2048))
    _record_blocks(client, ledger, 10, noise(8, 96 * 2048) + noise(10, 32 * 2048))

    pending = client.admit("ns", [5, 1, 2], "full_state", {"full": 150_000}).json()["state_id"]
    client.upload(pending, "full", noise(5))


def _live_until_killed(server: Server, ledger: Ledger) -> None:
    with Client(server.url) as client, pytest.raises(httpx.TransportError):
        _life(client, ledger)
        time.sleep(5)
        client.get("/healthz")
    assert server.wait() == -signal.SIGKILL


def _all_is_well(server: Server, ledger: Ledger) -> None:
    with Client(server.url) as client:
        for token, data in ledger.acknowledged.items():
            assert client.restore("ns", [token, 1, 2]).content == data
        for token, data in ledger.under_way.items():
            answer = client.restore("ns", [token, 1, 2])
            assert answer.status_code == 204 or answer.content == data
        for token in ledger.gone:
            assert client.restore("ns", [token, 1, 2]).status_code == 204
        for token in (4, 5):
            assert client.restore("ns", [token, 1, 2]).status_code == 204
        # The store goes on: what was under way can be recorded again.
        deadline = time.monotonic() + 20
        while client.stats()["recording"] or client.get("/readyz").json()["degraded"]:
            assert time.monotonic() < deadline, client.get("/readyz").text
            time.sleep(0.1)
        again = client.admit("ns", [5, 1, 2], "full_state", {"full": 150_000})
        assert again.status_code == 201, code(again)
        client.delete(f"/v1/records/{again.json()['state_id']}")
        time.sleep(0.3)
    server.stop()
    assert checked(server.data) == []


@pytest.mark.parametrize("point", [p for p in POINTS if not p.startswith("recover.")])
def test_a_kill_at_a_crash_point_loses_nothing_and_leaves_nothing(
    start: ServerFactory, point: str
) -> None:
    ledger = Ledger()
    server = start(failpoint=point)
    _live_until_killed(server, ledger)
    _all_is_well(start(), ledger)


@pytest.mark.parametrize("count", [3, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 4))])
@pytest.mark.parametrize(
    "point",
    ["own.after_commit", "blocks.after_commit", "publish.before_commit", "publish.after_commit"],
)
def test_a_kill_later_in_life_loses_nothing_either(
    start: ServerFactory, point: str, count: int
) -> None:
    ledger = Ledger()
    server = start(failpoint=f"{point}:{count}")
    _live_until_killed(server, ledger)
    _all_is_well(start(), ledger)


@pytest.mark.parametrize("point", [p for p in POINTS if p.startswith("recover.")])
def test_a_kill_during_recovery_is_recovered_from(
    start: ServerFactory, tmp_path: Path, point: str
) -> None:
    ledger = Ledger()
    server = start()
    with Client(server.url) as client:
        _life(client, ledger)
    server.kill()
    for _ in range(2):
        dying = Server(tmp_path / "data", failpoint=point)
        dying.launch()
        # uvicorn's parent is the server itself here: it dies at the point.
        assert dying.wait() == -signal.SIGKILL
    _all_is_well(start(), ledger)


def test_every_crash_point_is_killed_at() -> None:
    """A point that no test reaches proves nothing: the parametrised tests above assert the kill."""
    assert len(set(POINTS)) == len(POINTS) == 25


def test_recordings_of_a_killed_server_end_at_once(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        client.admit("ns", [1], "full_state", {"full": 5})
    server.kill()
    with Client(start().url) as client:
        assert client.stats()["recording"] == 0
        assert client.admit("ns", [1], "full_state", {"full": 5}).status_code == 201


def test_leases_outlive_a_killed_server(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        state_id = client.record_full("ns", [1], b"x")
        lease = client.lookup("ns", [1], acquire=True, ttl_s=600)["lease"]["lease_id"]
    server.kill()
    with Client(start().url) as client:
        kept = client.post("/admin/v1/evictions", json={"state_ids": [state_id]}).json()
        assert kept["kept_leased"] == [state_id]
        assert client.release(lease, "restored").status_code == 200
