"""Waiting for a job of a running server, with its progress on a terminal.

The job is the server's: whoever stops waiting stops nothing, and is told so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from app.api.schemas.jobs import Job
from app.commands.errors import Left, Unreachable
from app.commands.progress import shown
from app.commands.remote import Remote
from app.commands.showing import say

_FIRST_PAUSE_SECONDS: Final = 0.05
_MOST_PAUSE_SECONDS: Final = 1.0  # how often a job writes how far it is
_PATIENCE_SECONDS: Final = 15.0

# What in a job's result is a finding, and not only a figure.
_FINDINGS: Final = ("bad_blocks", "quarantined", "quarantined_here")


def path(job_id: str) -> str:
    """The route of a job."""
    return f"/admin/v1/jobs/{quote(job_id, safe='')}"


def start(server: Remote, kind: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A new job. Raises as `Remote.call`."""
    given = {key: value for key, value in arguments.items() if value is not None}
    return server.call("POST", "/admin/v1/jobs", Job, body={"kind": kind, **given})


def until_ended(server: Remote, job: dict[str, Any]) -> dict[str, Any]:
    """The job once it has ended.

    Raises:
        Left: Ctrl-C.
        Unreachable: the server was away for longer than a restart takes.
    """
    job_id, kind = job["job_id"], job["kind"]
    pause = _FIRST_PAUSE_SECONDS
    seen = time.monotonic()
    try:
        with shown(str(kind), str(job["unit"])) as progress:
            while job["status"] == "running":
                progress(job["done"], job["total"])
                time.sleep(pause)
                pause = min(1.5 * pause, _MOST_PAUSE_SECONDS)
                try:
                    job = server.get(path(job_id), Job)
                except Unreachable:
                    if time.monotonic() - seen > _PATIENCE_SECONDS:
                        raise
                else:
                    seen = time.monotonic()
    except KeyboardInterrupt as error:
        raise Left(
            f"the {kind} job goes on: `statehold jobs show {job_id}` says how far it is, "
            f"`statehold jobs cancel {job_id}` stops it"
        ) from error
    return job


def exit_code(job: Mapping[str, Any]) -> int:
    """0 for a job that runs or has ended well, 1 for findings and for one that has not; says which."""
    if job["status"] == "running":
        return 0
    if job["status"] != "done":
        why = f" ({job['error']})" if job["error"] else ""
        say(
            f"the {job['kind']} job {'was cancelled' if job['status'] == 'cancelled' else 'failed'}{why}"
        )
        return 1
    return 1 if any((job["result"] or {}).get(name) for name in _FINDINGS) else 0
