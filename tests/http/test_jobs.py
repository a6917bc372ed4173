"""Long jobs: one of a kind at a time, seen and stopped from every worker, ended by what ends their process."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import lmdb
import pytest

from storage.blocks.codec import encode
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.prober import Prober
from storage.blocks.store import BlockRef, Held
from tests.conftest import ServerFactory
from tests.support.client import Client, code
from tests.support.damage import checked, flip_block, sql
from tests.support.jobs import begin, children_of, ended, result
from tests.support.server import Server


def noise(name: object, size: int = 200_000) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


def record(client: Client, count: int, size: int = 200_000) -> list[str]:
    return [client.record_full("ns", [n, 1], noise(n, size)) for n in range(count)]


def status_of(client: Client, state_id: str) -> str:
    found: str = client.get(f"/admin/v1/states/{state_id}").json()["status"]
    return found


# ---- verify ------------------------------------------------------------------------------------


def test_a_verify_of_an_intact_store_reads_everything_and_finds_nothing(client: Client) -> None:
    record(client, 4)
    client.record_full("ns", [99], noise(0))  # shares its blocks: they are read once
    job = ended(client, begin(client, "verify"))
    assert job["status"] == "done"
    assert job["error"] is None
    assert job["done"] == job["total"] == job["result"]["bytes"] > 800_000
    assert job["unit"] == "bytes"
    assert job["actor"] == "open"
    assert job["result"]["states"] == 5
    assert job["result"]["blocks"] == client.stats()["block_count"]
    assert job["result"]["quarantined"] == job["result"]["bad_blocks"] == 0


def test_a_verify_quarantines_every_state_of_a_bad_block_and_no_other(
    server: Server, client: Client
) -> None:
    good, bad = record(client, 2)
    also_bad = client.record_full("ns", [7, 7], noise(1))
    flip_block(server.data, noise(1))
    found = result(client, "verify")
    assert (found["bad_blocks"], found["quarantined"]) == (1, 2)
    assert status_of(client, good) == "live"
    for state_id in (bad, also_bad):
        shown = client.get(f"/admin/v1/states/{state_id}").json()
        assert shown["status"] == "quarantined"
        assert shown["evidence"]["failure_class"] == "block_damaged"
        assert shown["evidence"]["component"] == "full"
        assert shown["evidence"]["reported_by"] == "service"
        assert shown["evidence"]["expected_digest"] is not None
    assert client.counter("quarantines", "block_damaged") == 2
    assert client.restore("ns", [0, 1]).content == noise(0)
    assert result(client, "verify")["quarantined"] == 0


def test_a_verify_finds_what_is_missing_and_rows_that_were_changed(
    server: Server, client: Client
) -> None:
    intact, lost, changed = record(client, 3)
    env = lmdb.open(str(server.data / "blocks" / "large"), map_size=1 << 40)
    with env.begin(write=True) as txn:
        for (digest,) in sql(
            server.data,
            "SELECT b.digest FROM block b JOIN state_block o ON o.block = b.id "
            "JOIN state s ON s.id = o.state WHERE s.state_id = ?",
            lost,
        ):
            assert isinstance(digest, bytes)
            assert txn.delete(digest)
    env.close()
    sql(server.data, "UPDATE state SET token_count = 9 WHERE state_id = ?", changed)
    assert result(client, "verify")["quarantined"] == 2
    classes = {
        state_id: client.get(f"/admin/v1/states/{state_id}").json()["evidence"]["failure_class"]
        for state_id in (lost, changed)
    }
    assert classes == {lost: "block_missing", changed: "manifest_mismatch"}
    assert status_of(client, intact) == "live"


def test_a_verify_keeps_its_rate(client: Client) -> None:
    record(client, 8)
    job = ended(client, begin(client, "verify", rate_bytes=800_000))
    seconds = (job["ended_at_ms"] - job["created_at_ms"]) / 1000
    assert job["status"] == "done"
    assert seconds >= 0.9 * job["done"] / 800_000


def test_a_verify_that_was_stopped_can_go_on_where_it_was(client: Client) -> None:
    record(client, 16)
    job = begin(client, "verify", rate_bytes=1_000_000)
    while client.get(f"/admin/v1/jobs/{job['job_id']}").json()["done"] < 600_000:
        time.sleep(0.05)
    assert client.post(f"/admin/v1/jobs/{job['job_id']}/cancel").status_code == 200
    stopped = ended(client, job)
    assert stopped["status"] == "cancelled"
    read = stopped["result"]["blocks"]
    assert 0 < read < 16
    resumed = ended(client, begin(client, "verify", resume=True))
    assert resumed["result"]["blocks"] == 16 - read
    assert resumed["done"] == resumed["total"]
    assert result(client, "verify", resume=True)["blocks"] == 16  # nothing left to go on from


def test_a_page_that_ends_the_process_that_reads_it_is_damage(tmp_path: Path) -> None:
    """A file that is too short: reading behind its end is a SIGBUS."""
    store = LmdbBlocks(tmp_path)
    blocks = [encode(os.urandom(100_000), generation=1) for _ in range(12)]
    store.put(blocks, 0)
    store.close()
    file = tmp_path / "large" / "data.mdb"
    os.truncate(file, file.stat().st_size - 500_000)
    refs = [BlockRef(block.digest, block.raw_bytes) for block in blocks]
    prober = Prober(tmp_path)
    try:
        proofs = prober.prove(refs)
        held = [proof.held for proof in proofs]
        assert Held.DAMAGED in held
        assert Held.INTACT in held
        assert any(f"signal {signal.SIGBUS}" in proof.reason for proof in proofs)
    finally:
        prober.close()


def test_a_reading_child_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    block = encode(os.urandom(100_000), generation=1)
    store.put([block], 0)
    prober = Prober(tmp_path)
    ref = BlockRef(block.digest, block.raw_bytes)
    try:
        assert prober.prove([ref])[0].held is Held.INTACT
        assert prober._child is not None
        prober._child.kill()
        prober._child.wait()
        assert prober.prove([ref])[0].held is Held.INTACT
    finally:
        prober.close()
        store.close()


# ---- maintenance -------------------------------------------------------------------------------


def test_a_reclaim_deletes_what_nobody_owns_and_values_without_a_row(
    server: Server, client: Client
) -> None:
    record(client, 2)
    stray = encode(os.urandom(90_000), generation=1)
    env = lmdb.open(str(server.data / "blocks" / "large"), map_size=1 << 40)
    with env.begin(write=True) as txn:
        txn.put(stray.digest, bytes(stray.value))
    env.close()
    found = result(client, "reclaim")
    assert found["used_bytes_after"] < found["used_bytes_before"]
    server.stop()
    assert checked(server.data) == []


def test_a_checkpoint_cuts_the_log_to_nothing(server: Server, client: Client) -> None:
    record(client, 2)
    job = ended(client, begin(client, "checkpoint"))
    assert job["result"]["wal_bytes_before"] > 0
    assert job["result"]["wal_bytes_after"] == 0
    assert job["done"] == job["total"]
    assert client.restore("ns", [1, 1]).content == noise(1)


# ---- the life of a job -------------------------------------------------------------------------


def test_of_each_kind_one_runs_at_a_time(client: Client) -> None:
    record(client, 6)
    first = begin(client, "verify", rate_bytes=100_000)
    second = client.post("/admin/v1/jobs", json={"kind": "verify"})
    assert code(second) == (409, "job_running")
    assert ended(client, begin(client, "checkpoint"))["status"] == "done"
    assert client.post(f"/admin/v1/jobs/{first['job_id']}/cancel").status_code == 200
    assert ended(client, first)["status"] == "cancelled"
    assert ended(client, begin(client, "verify"))["status"] == "done"


def test_a_stop_is_seen_within_a_second_and_an_ended_job_has_none(client: Client) -> None:
    record(client, 6)
    job = begin(client, "verify", rate_bytes=100_000)
    asked = time.monotonic()
    client.post(f"/admin/v1/jobs/{job['job_id']}/cancel")
    assert ended(client, job)["status"] == "cancelled"
    assert time.monotonic() - asked < 2  # one, and a busy machine
    assert code(client.post(f"/admin/v1/jobs/{job['job_id']}/cancel")) == (409, "job_ended")


@pytest.mark.parametrize("path", ["", "/cancel"])
def test_a_job_that_never_was_is_not_found(client: Client, path: str) -> None:
    there = f"/admin/v1/jobs/01938c0d-e000-7000-8000-000000000000{path}"
    answer = client.post(there) if path else client.get(there)
    assert code(answer) == (404, "job_not_found")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "format"},
        {"kind": "verify", "rate_bytes": "fast"},
        {"kind": "verify", "rate_bytes": 0},
        {"kind": "checkpoint", "name": "x"},
        {"kind": "compact", "name": "x"},
        {"kind": "backup", "name": None},
        {"kind": "backup", "name": ""},
        {"kind": "backup", "name": "."},
        {"kind": "backup", "name": ".."},
        {"kind": "backup", "name": ".hidden"},
        {"kind": "backup", "name": "../outside"},
        {"kind": "backup", "name": "/etc"},
        {"kind": "backup", "name": "a/b"},
        {"kind": "backup", "name": "a\x00b"},
        {"kind": "backup", "name": "a\n"},
        {"kind": "backup", "name": "x" * 65},
    ],
)
def test_requests_that_name_no_job_are_refused(server: Server, client: Client, body: Any) -> None:
    assert code(client.post("/admin/v1/jobs", json=body)) == (422, "invalid_request")
    assert client.get("/admin/v1/jobs").json() == {"jobs": []}
    assert not (server.data / "backups").exists()


def test_jobs_are_listed_newest_first_and_the_last_200_are_remembered(
    server: Server, client: Client
) -> None:
    sql(
        server.data,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
        "INSERT INTO job (job_id, kind, status, owner, actor, arguments, done, total, unit, cancel, "
        "created_at_ms, ended_at_ms) SELECT printf('01938c0d-e000-7000-8000-%012d', i), 'reclaim', "
        "'done', 'x', 'open', '{}', 0, 0, 'blocks', 0, i, i FROM n",
    )
    ended(client, begin(client, "checkpoint"))
    ended(client, begin(client, "checkpoint"))
    jobs = client.get("/admin/v1/jobs", params={"limit": 4}).json()["jobs"]
    assert [job["kind"] for job in jobs] == ["checkpoint", "checkpoint", "reclaim", "reclaim"]
    assert [job["created_at_ms"] for job in jobs[2:]] == [300, 299]
    assert sql(server.data, "SELECT count(*) FROM job") == [(201,)]


def test_every_worker_sees_how_far_a_job_is_and_can_stop_it(start: ServerFactory) -> None:
    pair = start(workers=2)
    with Client(pair.url) as client:
        record(client, 12)
        job = begin(client, "verify", rate_bytes=400_000)
    seen: set[int] = set()
    deadline = time.monotonic() + 20
    while len(seen) < 3:
        assert time.monotonic() < deadline
        with Client(pair.url) as fresh:  # a connection of its own: either worker may answer
            shown = fresh.get(f"/admin/v1/jobs/{job['job_id']}").json()
        assert shown["status"] == "running"
        seen.add(shown["done"])
        time.sleep(0.1)
    owner = sql(pair.data, "SELECT owner FROM job")[0][0]
    assert isinstance(owner, str)
    # The worker that runs it takes no requests now: what answers is the other one.
    ran_by = int(owner.partition("-")[0])
    os.kill(ran_by, signal.SIGSTOP)
    try:
        with _client_of(pair) as client:
            assert client.get(f"/admin/v1/jobs/{job['job_id']}").json()["status"] == "running"
            assert client.post(f"/admin/v1/jobs/{job['job_id']}/cancel").status_code == 200
    finally:
        os.kill(ran_by, signal.SIGCONT)
    with Client(pair.url) as client:
        assert ended(client, job)["status"] == "cancelled"


@contextmanager
def _client_of(pair: Server) -> Iterator[Client]:
    """A connection that somebody has taken; a stopped worker takes none."""
    for _ in range(50):
        with Client(pair.url) as client:
            client.timeout = 0.5
            try:
                client.get("/healthz")
            except httpx.TransportError:
                continue
            client.timeout = 10
            yield client
            return
    raise AssertionError("nobody answers")


def test_a_job_of_a_worker_that_was_killed_has_failed(start: ServerFactory) -> None:
    pair = start(workers=2)
    with Client(pair.url) as client:
        record(client, 6)
        job = begin(client, "verify", rate_bytes=50_000)
    owner = sql(pair.data, "SELECT owner FROM job")[0][0]
    os.kill(int(str(owner).partition("-")[0]), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while sql(pair.data, "SELECT status, error FROM job") != [("failed", "interrupted")]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with _client_of(pair) as client:
        assert ended(client, job)["error"] == "interrupted"
        assert result(client, "verify")["blocks"] == 6


def test_a_job_of_a_server_that_was_killed_has_failed_at_the_next_start(
    start: ServerFactory,
) -> None:
    server = start()
    with Client(server.url) as client:
        record(client, 6)
        job = begin(client, "verify", rate_bytes=50_000)
        time.sleep(0.5)
    server.kill()
    deadline = time.monotonic() + 5
    while children_of(server.pid):
        assert time.monotonic() < deadline, "the reading child outlives its server"
        time.sleep(0.05)
    with Client(start().url) as client:
        shown = client.get(f"/admin/v1/jobs/{job['job_id']}").json()
        assert (shown["status"], shown["error"]) == ("failed", "interrupted")
        assert result(client, "verify")["blocks"] == 6


def test_a_stopping_server_ends_its_job_within_a_second(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        record(client, 6)
        begin(client, "verify", rate_bytes=50_000)
        time.sleep(0.5)
        assert children_of(server.pid) != []
    asked = time.monotonic()
    server.stop()
    assert time.monotonic() - asked < 3  # one, and the server's own end
    assert children_of(server.pid) == []
    assert sql(server.data, "SELECT status, error FROM job") == [("failed", "interrupted")]
    assert '"level": "error"' not in server.logged()
    assert checked(server.data) == []
