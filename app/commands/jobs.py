"""`statehold jobs`: long work of a running server."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from app import sizes
from app.api.schemas.jobs import Job, JobList
from app.commands import arguments as take
from app.commands import waiting
from app.commands.errors import WrongUse
from app.commands.remote import Remote, connect
from app.commands.showing import age, as_json, counted, moment, pairs, table
from app.settings import Settings

NAME = "jobs"
HELP = "list, show, start, wait for and cancel long jobs"

KINDS = ("verify", "reclaim", "checkpoint", "compact", "backup")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True)
    listing = take.action(actions, "list", "list jobs, newest first")
    listing.add_argument(
        "--limit", type=take.count, default=50, metavar="N", help="so many at most (default 50)"
    )
    start = take.action(actions, "start", "start a job")
    start.add_argument("kind", choices=KINDS)
    start.add_argument("--name", help="backup: the new backup's name (default: the time)")
    start.add_argument(
        "--rate", type=take.size, metavar="SIZE", help="verify: bytes a second at most, as in 64MiB"
    )
    start.add_argument(
        "--resume",
        action="store_true",
        default=None,
        help="verify: go on where the last one was stopped",
    )
    start.add_argument("--wait", action="store_true", help="until it has ended")
    for name, summary in (
        ("show", "show how far a job is, or how it ended"),
        ("wait", "wait until a job has ended"),
        ("cancel", "stop a job"),
    ):
        take.action(actions, name, summary).add_argument("job_id", metavar="ID")


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; 1 if a job that was waited for has findings or has not ended well."""
    return _ACTIONS[options.action](connect(settings, options), options)


def tell(job: Mapping[str, Any], as_document: bool) -> int:
    """Print a job, and how it ended as an exit code."""
    as_json(job) if as_document else _show_detail(job)
    return waiting.exit_code(job)


def _list(server: Remote, options: argparse.Namespace) -> int:
    found = server.get("/admin/v1/jobs", JobList, {"limit": min(options.limit, 200)})
    if options.json:
        as_json(found)
        return 0
    table(
        ("JOB", "KIND", "STATUS", "DONE", "AGE", "BY"),
        [
            (
                job["job_id"],
                job["kind"],
                _status(job),
                _part(job),
                age(job["created_at_ms"]),
                job["actor"],
            )
            for job in found["jobs"]
        ],
        right="DONE,AGE",
    )
    return 0


def _show(server: Remote, options: argparse.Namespace) -> int:
    job = server.get(waiting.path(options.job_id), Job)
    as_json(job) if options.json else _show_detail(job)
    return 0


def _start(server: Remote, options: argparse.Namespace) -> int:
    job = waiting.start(server, options.kind, _given(options))
    if options.wait:
        return tell(waiting.until_ended(server, job), options.json)
    as_json(job) if options.json else print(job["job_id"])
    return 0


def _wait(server: Remote, options: argparse.Namespace) -> int:
    job = server.get(waiting.path(options.job_id), Job)
    return tell(waiting.until_ended(server, job), options.json)


def _cancel(server: Remote, options: argparse.Namespace) -> int:
    job = server.call("POST", f"{waiting.path(options.job_id)}/cancel", Job)
    as_json(job) if options.json else print("it ends within about a second")
    return 0


_ACTIONS = {"list": _list, "show": _show, "start": _start, "wait": _wait, "cancel": _cancel}


def _given(options: argparse.Namespace) -> dict[str, Any]:
    of_verify = {"rate_bytes": options.rate, "resume": options.resume}
    of_backup = {"name": options.name}
    if options.kind != "verify" and any(value is not None for value in of_verify.values()):
        raise WrongUse("--rate and --resume are for verify")
    if options.kind != "backup" and options.name is not None:
        raise WrongUse("--name is for backup")
    return {"verify": of_verify, "backup": of_backup}.get(options.kind, {})


def _show_detail(job: Mapping[str, Any]) -> None:
    ended = job["ended_at_ms"]
    pairs(
        [
            ("job", job["job_id"]),
            ("kind", job["kind"]),
            ("status", _status(job)),
            ("done", _part(job)),
            ("started", f"{moment(job['created_at_ms'])} ({age(job['created_at_ms'])} ago)"),
            ("ended", None if ended is None else f"{moment(ended)} ({age(ended)} ago)"),
            ("by", job["actor"]),
            # A backup's name is in both.
            *_known({**job["arguments"], **(job["result"] or {})}),
        ]
    )


def _known(values: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [
        (key.replace("_", " "), f"{value:,}" if isinstance(value, int) else value)
        for key, value in values.items()
        if value is not None and value is not False
    ]


def _status(job: Mapping[str, Any]) -> str:
    return f"{job['status']}: {job['error']}" if job["error"] else str(job["status"])


def _part(job: Mapping[str, Any]) -> str:
    done, total = job["done"], job["total"]
    if job["unit"] == "bytes":
        return f"{sizes.about(done)} of {sizes.about(total)}"
    return f"{done:,} of {counted(total, job['unit'].removesuffix('s'))}"
