"""The compact job: the server pauses, shortens its files, ends the job, and goes on with all it held."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import app.engine.compacting
import app.server
import storage.compact
from app.engine.cache import Cache
from app.settings import Settings
from bench.load import connect, post
from migrations import upgrade
from storage.layout import DataFolder
from tests.conftest import ServerFactory
from tests.http.test_workers import noise
from tests.support.client import Client, prefix
from tests.support.damage import checked, sql
from tests.support.server import Server

_SIZE = 2_000_000


def _filled(client: Client) -> list[str]:
    """Twelve states, of which ten are gone again."""
    ids = [client.record_full("ns", [n], noise(n, _SIZE)) for n in range(12)]
    client.post("/admin/v1/evictions", json={"state_ids": ids[:10]})
    return ids[10:]


def _start(client: Client) -> str:
    answer = client.post("/admin/v1/jobs", json={"kind": "compact"})
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


def _ended(server: Server, job_id: str) -> dict[str, Any]:
    """The job once it has ended; whoever connects meanwhile waits, and is never refused."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"{server.url}/admin/v1/jobs/{job_id}", timeout=60)
        except (httpx.RemoteProtocolError, httpx.ReadError):
            continue  # a worker had just taken the connection when it stopped, as at any restart
        assert answer.status_code == 200, answer.text
        job: dict[str, Any] = answer.json()
        if job["status"] != "running":
            return job
        time.sleep(0.01)
    raise AssertionError(job)


def _holds(server: Server) -> None:
    with Client(server.url) as client:
        for n in (10, 11):
            assert client.restore("ns", [n]).content == noise(n, _SIZE)
        assert client.restore("ns", [3]).status_code == 204


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pause_gives_space_back_and_keeps_states_and_leases(
    start: ServerFactory, workers: int
) -> None:
    server = start(workers=workers)
    with Client(server.url) as client:
        _filled(client)
        lease = client.lookup("ns", [10], acquire=True)["lease"]["lease_id"]
        pending = client.admit("ns", [20], "full_state", {"full": _SIZE}).json()["state_id"]
        assert client.upload(pending, "full", noise(20, _SIZE)).status_code == 200
        file = server.data / "blocks" / "large" / "data.mdb"
        before = file.stat().st_size
        before_pids = set(server.worker_pids())
        job_id = _start(client)
    job = _ended(server, job_id)
    assert (job["status"], job["error"]) == ("done", None)
    assert job["done"] == job["total"] > 0
    result = job["result"]
    assert result["before_bytes"] > before > 10 * _SIZE
    assert result["after_bytes"] < result["before_bytes"] / 3
    assert file.stat().st_size < before / 3
    if workers == 1:
        assert set(server.worker_pids()) == before_pids
    with Client(server.url) as client:
        assert client.commit(pending).status_code == 404  # a recording ends with its worker
        assert client.post(f"/v1/leases/{lease}/heartbeat", json={}).status_code == 200
        again = _start(client)
    assert _ended(server, again)["status"] == "done"
    _holds(server)
    server.stop()
    assert checked(server.data) == []


def test_it_works_behind_a_unix_socket(start: ServerFactory, tmp_path: Path) -> None:
    path = tmp_path / "s"
    start(socket=path)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://s") as client:
        job_id = client.post("/admin/v1/jobs", json={"kind": "compact"}).json()["job_id"]
        deadline = time.monotonic() + 90
        status = "running"
        while status == "running" and time.monotonic() < deadline:
            try:
                status = client.get(f"/admin/v1/jobs/{job_id}", timeout=30).json()["status"]
            except httpx.TransportError:
                continue  # the connection of before
    assert status == "done"
    assert path.is_socket()


def _need_everything() -> None:
    storage.compact._MARGIN_BYTES = 1 << 60  # type: ignore[misc]


def test_without_room_nothing_pauses(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", sabotage=_need_everything)
    server.start()
    try:
        with Client(server.url) as client:
            _filled(client)
            job = _ended(server, _start(client))
            assert (job["status"], job["error"]) == ("failed", "low_space")
            assert client.get("/healthz").status_code == 200  # on the same connection
        _holds(server)
        assert "not_compacted" not in server.logged()
    finally:
        server.kill()


def _need_everything_later() -> None:
    _need_everything()
    app.engine.compacting.lacking_bytes = lambda _folder, _largest: 0  # type: ignore[attr-defined, assignment]


def _read_badly() -> None:
    def fail(_folder: Path) -> int:
        raise OSError(5, "Input/output error")

    storage.compact._live_bytes = fail  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("sabotage", "error"), [(_need_everything_later, "low_space"), (_read_badly, "store_damaged")]
)
def test_what_goes_wrong_in_the_pause_ends_it_and_the_job(
    tmp_path: Path, sabotage: Callable[[], None], error: str
) -> None:
    server = Server(tmp_path / "data", sabotage=sabotage)
    server.start()
    try:
        with Client(server.url) as client:
            _filled(client)
            job_id = _start(client)
        job = _ended(server, job_id)
        assert (job["status"], job["error"]) == ("failed", error)
        _holds(server)
        assert "not_compacted" in server.logged()
    finally:
        server.stop()
    assert checked(server.data) == []


@pytest.mark.parametrize("point", ["compact.after_copy", "compact.after_rename"])
def test_a_kill_in_the_pause_loses_nothing_and_the_job_says_so(
    start: ServerFactory, tmp_path: Path, point: str
) -> None:
    server = start(failpoint=point)
    with Client(server.url) as client:
        _filled(client)
        job_id = _start(client)
    assert server.wait() == -signal.SIGKILL
    server = start()
    job = _ended(server, job_id)
    assert (job["status"], job["error"]) == ("failed", "interrupted")
    _holds(server)
    assert not list(server.data.glob("**/*.compact"))
    with Client(server.url) as client:
        again = _start(client)
    assert _ended(server, again)["status"] == "done"
    _holds(server)


def _take_long() -> None:
    copy = storage.compact._copy_environment

    def slow(path: Path, copied: Path) -> None:
        (path.parents[2] / "pausing").touch()
        ends = time.monotonic() + 2  # not one sleep: a signal would cut it short
        while time.monotonic() < ends:
            time.sleep(0.01)
        copy(path, copied)

    storage.compact._copy_environment = slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_the_pause_ends_the_server_after_the_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    server = Server(tmp_path / "data", sabotage=_take_long)
    server.start()
    with Client(server.url) as client:
        _filled(client)
        job_id = _start(client)
    deadline = time.monotonic() + 90
    while not (server.data / "pausing").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(server.pid, number)
    assert server.wait() == 0
    assert "compaction_stopped" in server.logged()
    again = Server(server.data)
    again.start()
    try:
        _holds(again)
        job = _ended(again, job_id)
        assert (job["status"], job["error"]) == ("failed", "interrupted")
        assert not list(again.data.glob("**/*.compact"))
    finally:
        again.stop()


@pytest.mark.parametrize(
    ("workers", "number", "ends"), [(2, signal.SIGHUP, False), (1, signal.SIGINT, True)]
)
def test_a_signal_while_workers_finish_means_what_it_always_does(
    start: ServerFactory, workers: int, number: signal.Signals, ends: bool
) -> None:
    server = start(workers=workers, shutdown_grace_s=3)
    with Client(server.url) as client:
        _filled(client)
        client.record_full("ns", [50], noise(50, 16_000_000))
        with connect(server.port) as reader:  # asks, and does not read
            body = json.dumps({"candidates": [prefix("ns", [50])]}).encode()
            reader.sendall(post("/v1/restore", body))
            time.sleep(0.3)
            job_id = _start(client)
            time.sleep(0.7)
            os.kill(server.pid, number)
            if ends:
                server.wait()
                return
            assert _ended(server, job_id)["status"] == "done"
    _holds(server)


@pytest.mark.parametrize("told", [True, False])
def test_a_signal_ends_the_server_even_if_nothing_is_raised(
    monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """What uvicorn raises once more did not always arrive, and the compaction began."""

    def run(server: Any, **_: Any) -> None:
        server.started = True
        _renew, compact = server.config.app.args
        assert compact()
        if told:
            server.handle_exit(signal.SIGINT, None)

    monkeypatch.setattr(app.server._Server, "run", run)
    with socket.socket() as listener:
        following = app.server._with_one_app(listener, {"factory": True})
    assert following is (app.server._Next.END if told else app.server._Next.COMPACT)


def test_who_reads_the_files_is_not_taken_for_damage(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        _filled(client)
        reading = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import lmdb, sys; env = lmdb.open(sys.argv[1], readonly=True, map_size=1 << 40); "
                "print(flush=True); sys.stdin.read()",
                str(server.data / "blocks" / "large"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert reading.stdout is not None
        reading.stdout.readline()
        job_id = _start(client)
    job = _ended(server, job_id)
    assert (job["status"], job["error"]) == ("failed", "busy")
    reading.communicate()
    _holds(server)


def test_what_nobody_can_pause_says_so(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.prepare()
    upgrade(folder.database)

    async def run() -> tuple[str, str | None]:
        cache = Cache(Settings(data_dir=tmp_path), folder, lambda: None)
        try:
            row = await cache.jobs.start("compact", {}, "open")
            while row.status == "running":
                await asyncio.sleep(0.01)
                row = cache.jobs.show(row.job_id)
            return row.status, row.error
        finally:
            await cache.close()

    assert asyncio.run(run()) == ("failed", "no_supervisor")


def test_other_jobs_are_neither_ended_by_it_nor_begun_under_it(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        client.record_full("ns", [1], noise(1, _SIZE))
        verify = client.post("/admin/v1/jobs", json={"kind": "verify", "rate_bytes": 1024})
        refused = client.post("/admin/v1/jobs", json={"kind": "compact"})
        assert refused.json()["code"] == "job_running"
        assert "a verify job is running" in refused.json()["detail"]
        client.post(f"/admin/v1/jobs/{verify.json()['job_id']}/cancel")
        assert _ended(server, verify.json()["job_id"])["status"] == "cancelled"
    server.stop()
    sql(
        server.data,
        "INSERT INTO job (job_id, kind, status, owner, actor, arguments, done, total, unit, cancel, "
        "created_at_ms) VALUES ('j', 'compact', 'running', '', 'open', '{}', 0, 1, 'bytes', 0, 1)",
    )
    # One that is found running at a start has ended.
    server = start()
    with Client(server.url) as client:
        assert client.get("/admin/v1/jobs").json()["jobs"][-1]["error"] == "interrupted"
        sql(server.data, "UPDATE job SET status = 'running' WHERE job_id = 'j'")
        refused = client.post("/admin/v1/jobs", json={"kind": "verify"})
        assert refused.json()["code"] == "job_running"
        assert "a compact job is running" in refused.json()["detail"]
