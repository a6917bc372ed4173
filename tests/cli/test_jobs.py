"""`jobs`, and `verify` and `backup` of a running server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.commands import waiting
from app.commands.errors import Left, Unreachable
from app.commands.progress import line
from app.commands.remote import Place, Remote
from tests.cli.conftest import Answer, says
from tests.support.client import Client
from tests.support.command import Command
from tests.support.damage import flip_block
from tests.support.jobs import begin, ended
from tests.support.server import Server, free_port
from tests.support.terminal import on_terminal

_ROOT = Path(__file__).parents[2]
NONE = "01938c0d-e000-7000-8000-000000000000"


def fill(client: Client, count: int = 3) -> None:
    for n in range(count):
        client.record_full("ns", [n], os.urandom(200_000))


def a_job(**more: object) -> dict[str, object]:
    return {
        **{"job_id": NONE, "kind": "verify", "status": "running", "arguments": {}},
        **{"done": 1, "total": 4, "unit": "bytes", "result": None, "error": None},
        **{"actor": "open", "created_at_ms": 1, "ended_at_ms": None, **more},
    }


# ---- the desk ----------------------------------------------------------------------------------


def test_jobs_are_started_waited_for_listed_and_shown(
    statehold: Command, server: Server, operator: Client
) -> None:
    fill(operator)
    url = ("--url", server.url)
    done = statehold("jobs", "start", "verify", "--rate", "1GiB", "--wait", "--json", *url)
    job = done.document
    assert (done.code, done.err) == (0, "")
    assert (job["status"], job["result"]["states"]) == ("done", 3)
    assert job["arguments"]["rate_bytes"] == 1 << 30
    started = statehold("jobs", "start", "reclaim", *url)
    assert started.code == 0
    waited = statehold("jobs", "wait", started.out.strip(), *url)
    assert waited.code == 0
    assert "status" in waited.out
    assert "reclaimed blocks" in waited.out
    listed = statehold("jobs", "list", "--json", *url).document["jobs"]
    assert [row["kind"] for row in listed] == ["reclaim", "verify"]
    assert len(statehold("jobs", "list", "--json", "--limit", 1, *url).document["jobs"]) == 1
    head, *rows = statehold("jobs", "list", *url).out.splitlines()
    assert head.split() == ["JOB", "KIND", "STATUS", "DONE", "AGE", "BY"]
    assert [row.split()[:3] for row in rows] == [
        [row["job_id"], row["kind"], "done"] for row in listed
    ]
    shown = statehold("jobs", "show", job["job_id"], *url).out
    assert shown.splitlines()[0].split() == ["job", job["job_id"]]
    assert statehold("jobs", "show", job["job_id"], "--json", *url).document == job


def test_a_job_is_cancelled(statehold: Command, server: Server, operator: Client) -> None:
    fill(operator)
    url = ("--url", server.url)
    job = begin(operator, "verify", rate_bytes=50_000)
    assert statehold("jobs", "cancel", job["job_id"], *url).code == 0
    waited = statehold("jobs", "wait", job["job_id"], *url)
    assert (waited.code, waited.sentence) == (1, "the verify job was cancelled")
    again = statehold("jobs", "cancel", job["job_id"], *url)
    assert (again.code, again.sentence.rpartition(" ")[2]) == (1, "(job_ended)")
    assert ended(operator, job)["status"] == "cancelled"


def test_two_of_a_kind_and_what_is_not_there_are_refused(
    statehold: Command, server: Server, operator: Client
) -> None:
    fill(operator)
    url = ("--url", server.url)
    begin(operator, "verify", rate_bytes=50_000)
    second = statehold("jobs", "start", "verify", *url)
    assert (second.code, second.sentence) == (1, "a verify job is running (job_running)")
    for action in ("show", "wait", "cancel"):
        done = statehold("jobs", action, NONE, *url)
        assert (done.code, done.sentence.rpartition(" ")[2]) == (1, "(job_not_found)")


@pytest.mark.parametrize(
    "arguments",
    [
        ("reclaim", "--name", "x"),
        ("backup", "--name", "x", "--rate", "1MiB"),
        ("checkpoint", "--resume"),
    ],
)
def test_what_is_of_another_kind_is_wrong_use(
    statehold: Command, shared: Server, arguments: tuple[str, ...]
) -> None:
    assert statehold("jobs", "start", *arguments, "--url", shared.url).code == 2


@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        (a_job(status="done", result={"states": 3, "bad_blocks": 0, "quarantined": 0}), 0, ""),
        (a_job(status="done", result={"states": 3, "bad_blocks": 1, "quarantined": 2}), 1, ""),
        (a_job(status="done", kind="backup", result={"quarantined_here": 1}), 1, ""),
        (a_job(status="failed", error="low_space"), 1, "the verify job failed (low_space)"),
        (a_job(status="failed", error="interrupted"), 1, "the verify job failed (interrupted)"),
    ],
)
def test_findings_and_failures_are_told_by_the_exit_code(
    statehold: Command,
    answering: Callable[[Answer], str],
    job: dict[str, object],
    code: int,
    said: str,
) -> None:
    url = answering(says(200, json.dumps(job).encode()))
    done = statehold("jobs", "wait", NONE, "--json", "--url", url)
    assert (done.code, done.document) == (code, job)
    assert done.err.removeprefix("statehold: ").strip() == said


# ---- waiting -----------------------------------------------------------------------------------


def test_a_server_that_is_away_for_a_moment_is_waited_for(
    answering: Callable[[Answer], str],
) -> None:
    answers = [says(502, b""), says(502, b""), says(200, json.dumps(a_job(status="done")).encode())]
    url = answering(lambda handler: answers.pop(0)(handler))
    place = Place("http", "127.0.0.1", int(url.rpartition(":")[2]))
    assert waiting.until_ended(Remote(place), dict(a_job()))["status"] == "done"
    assert answers == []


def test_a_server_that_stays_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_PATIENCE_SECONDS", 0.2)
    nobody = Remote(Place("http", "127.0.0.1", free_port()))
    with pytest.raises(Unreachable):
        waiting.until_ended(nobody, dict(a_job()))


def test_ctrl_c_leaves_the_job_running_and_says_so(
    server: Server, operator: Client, tmp_path: Path
) -> None:
    fill(operator)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "app", "verify", "--rate", "5KiB"),
            *("--url", server.url),
        ],
        cwd=_ROOT,
        env={"PATH": os.environ["PATH"], "STATEHOLD_DATA_DIR": str(tmp_path / "none")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (jobs := operator.get("/admin/v1/jobs").json()["jobs"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    (job,) = jobs
    assert process.returncode == Left.exit_code == 130
    assert said == (
        f"statehold: the verify job goes on: `statehold jobs show {job['job_id']}` says how far it "
        f"is, `statehold jobs cancel {job['job_id']}` stops it\n"
    )
    assert operator.get(f"/admin/v1/jobs/{job['job_id']}").json()["status"] == "running"
    operator.post(f"/admin/v1/jobs/{job['job_id']}/cancel")
    ended(operator, job)


def test_a_terminal_sees_how_far_a_job_is(server: Server, operator: Client) -> None:
    fill(operator)
    done = on_terminal("verify", "--rate", "300KiB", "--url", server.url)
    assert done.code == 0
    assert "\rverify [" in done.shown
    assert " % of " in done.shown
    before, _, after = done.shown.rpartition("\r\x1b[K")  # the line is gone
    assert "verify [" in before
    assert after.startswith("job ")


def test_the_line_of_progress() -> None:
    assert line("verify", 0, 1 << 30, "bytes") == f"verify [{'-' * 24}]   0 % of 1.00 GiB"
    assert line("verify", 1 << 29, 1 << 30, "bytes") == (
        f"verify [{'#' * 12}{'-' * 12}]  50 % of 1.00 GiB"
    )
    assert line("reclaim", 1200, 1000, "blocks") == f"reclaim [{'#' * 24}] 100 % of 1,000 blocks"
    assert line("checkpoint", 0, 0, "bytes") == f"checkpoint [{'#' * 24}] 100 % of 0 B"


# ---- verify and backup -------------------------------------------------------------------------


def test_verify_of_a_running_server_quarantines_and_says_so(
    statehold: Command, server: Server, operator: Client
) -> None:
    body = os.urandom(200_000)
    operator.record_full("ns", [1], body)
    settings = {"data_dir": server.data, "port": server.port}
    clean = statehold("verify", "--online", **settings)
    assert (clean.code, clean.err) == (0, "")
    flip_block(server.data, body)
    found = statehold("verify", "--online", "--json", **settings)
    assert (found.code, found.document["result"]["quarantined"]) == (1, 1)
    assert operator.stats()["quarantined"] == 1


def test_verify_of_a_folder_in_use_says_what_else_there_is(
    statehold: Command, server: Server
) -> None:
    done = statehold("verify", data_dir=server.data)
    assert done.code == 3
    assert done.sentence.endswith(
        "a server is using it: stop it, or use `statehold verify --online`"
    )
    assert statehold("verify", "--resume", data_dir=server.data).code == 2


def test_verify_of_a_stopped_folder(statehold: Command, server: Server, operator: Client) -> None:
    body = os.urandom(200_000)
    operator.record_full("ns", [1], body)
    server.stop()
    assert statehold("verify", "--json", data_dir=server.data).document == {"findings": []}
    flip_block(server.data, body)
    done = statehold("verify", data_dir=server.data)
    assert (done.code, done.out.splitlines()[-1]) == (1, "1 finding")


def test_a_backup_is_made_by_the_running_server_on_demand(
    statehold: Command, server: Server, operator: Client
) -> None:
    fill(operator)
    done = statehold("backup", "b1", "--url", server.url, "--json")
    assert (done.code, done.document["status"], done.document["kind"]) == (0, "done", "backup")
    assert (server.data / "backups" / "b1" / "manifest.json").is_file()
    again = statehold("backup", "b1", "--online", port=server.port)
    assert (again.code, again.sentence.rpartition(" ")[2]) == (1, "(backup_exists)")
    (job,) = operator.get("/admin/v1/jobs").json()["jobs"]
    assert job == done.document
    wrong = statehold("backup", "../b", "--online", port=server.port)
    assert (wrong.code, "(invalid_request)" in wrong.sentence) == (1, True)


def test_a_backup_of_a_folder_needs_no_server_and_minds_none(
    statehold: Command, server: Server, operator: Client
) -> None:
    fill(operator)
    beside = statehold("backup", "b1", "--json", data_dir=server.data)
    assert (beside.code, beside.document["states"]) == (0, 3)
    assert operator.get("/admin/v1/jobs").json()["jobs"] == []
    server.stop()
    alone = statehold("backup", "b2", data_dir=server.data)
    assert alone.code == 0
    assert alone.out.startswith(f"{server.data}/backups/b2: 3 states, ")


# ---- compact -----------------------------------------------------------------------------------


def test_compact_of_a_running_server_waits_for_its_pause(
    statehold: Command, server: Server, operator: Client
) -> None:
    ids = [operator.record_full("ns", [n], os.urandom(1_000_000)) for n in range(8)]
    operator.post("/admin/v1/evictions", json={"state_ids": ids})
    done = statehold("compact", "--online", "--json", data_dir=server.data, port=server.port)
    assert (done.code, done.document["status"]) == (0, "done")
    result = done.document["result"]
    assert result["before_bytes"] - result["after_bytes"] > 7_000_000
    refused = statehold("compact", data_dir=server.data)
    assert refused.code == 3
    assert refused.sentence.endswith("stop it, or use `statehold compact --online`")
