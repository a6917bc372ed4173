"""Starting jobs and waiting for them, as an operator's script would."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.support.client import Client


def begin(client: Client, kind: str, **arguments: Any) -> dict[str, Any]:
    answer = client.post("/admin/v1/jobs", json={"kind": kind, **arguments})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/admin/v1/jobs/{job['job_id']}"
    return job


def ended(client: Client, job: dict[str, Any], wait_s: float = 60) -> dict[str, Any]:
    deadline = time.monotonic() + wait_s
    while True:
        found: dict[str, Any] = client.get(f"/admin/v1/jobs/{job['job_id']}").json()
        if found["status"] != "running":
            assert found["ended_at_ms"] >= found["created_at_ms"]
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def result(client: Client, kind: str, **arguments: Any) -> dict[str, Any]:
    """Of a job that must end well."""
    job = ended(client, begin(client, kind, **arguments))
    assert job["status"] == "done", job
    found: dict[str, Any] = job["result"]
    return found


def children_of(group: int) -> list[str]:
    """Command lines of the copying and reading children in a server's process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            state = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(state[2]) == group and state[0] != "Z" and any("storage.b" in c for c in command):
            found.append(" ".join(command))
    return found
