"""Long jobs: who runs which, how far it is, and how it ended.

Invariant: at most one job of a kind is running, in every commit, whichever worker runs it (the unique
index `job_running`). A job ends once: only a running one can be finished. A job that was handed over has no
instance for an owner: it is the server's, whose workers end and begin meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from storage.clock import wall_ms
from storage.errors import Conflict
from storage.metadata.schema import job as t
from storage.rows import JobRow

_SERVER: Final = ""

_COLUMNS = (
    t.c.job_id,
    t.c.kind,
    t.c.status,
    t.c.owner,
    t.c.actor,
    t.c.arguments,
    t.c.done,
    t.c.total,
    t.c.unit,
    t.c.cancel,
    t.c.result,
    t.c.error,
    t.c.created_at_ms,
    t.c.ended_at_ms,
)


def start(
    connection: Connection,
    *,
    job_id: str,
    kind: str,
    owner: str,
    actor: str,
    arguments: str,
    unit: str,
    not_beside: Collection[str],
) -> None:
    """A job begins.

    Args:
        not_beside: other kinds that must not be running.

    Raises:
        Conflict: one of its kind is running, or of those; says which.
    """
    in_the_way = select(t.c.kind).where(t.c.status == "running", t.c.kind.in_(not_beside))
    if (other := connection.execute(in_the_way).scalar()) is not None:
        raise Conflict(f"a {other} job is running, and one of the two would end the other")
    values = {
        "job_id": job_id,
        "kind": kind,
        "status": "running",
        "owner": owner,
        "actor": actor,
        "arguments": arguments,
        "done": 0,
        "total": 0,
        "unit": unit,
        "cancel": 0,
        "created_at_ms": wall_ms(),
    }
    try:
        connection.execute(insert(t).values(values))
    except IntegrityError as error:
        raise Conflict(f"a {kind} job is running") from error


def find(connection: Connection, job_id: str) -> JobRow | None:
    """The job of that id."""
    row = connection.execute(select(*_COLUMNS).where(t.c.job_id == job_id)).first()
    return None if row is None else JobRow(*tuple(row))


def page(connection: Connection, limit: int) -> list[JobRow]:
    """The newest jobs, newest first."""
    statement = select(*_COLUMNS).order_by(t.c.created_at_ms.desc(), t.c.job_id.desc())
    return [JobRow(*tuple(row)) for row in connection.execute(statement.limit(limit))]


def advance(connection: Connection, job_id: str, done: int, total: int) -> None:
    """How far a running job is."""
    connection.execute(
        update(t)
        .where(t.c.job_id == job_id, t.c.status == "running")
        .values(done=done, total=total)
    )


def ask_to_stop(connection: Connection, job_id: str) -> None:
    """Whoever runs it sees this soon."""
    connection.execute(
        update(t).where(t.c.job_id == job_id, t.c.status == "running").values(cancel=1)
    )


def asked_to_stop(connection: Connection, job_id: str) -> bool:
    """Whether it should end: it was asked to, or it counts as ended already."""
    row = connection.execute(select(t.c.cancel, t.c.status).where(t.c.job_id == job_id)).first()
    return row is None or row.cancel == 1 or row.status != "running"


def finish(
    connection: Connection,
    job_id: str,
    status: str,
    *,
    result: str | None,
    error: str | None,
) -> bool:
    """A running job ends. False if it had ended."""
    changed = connection.execute(
        update(t)
        .where(t.c.job_id == job_id, t.c.status == "running")
        .values(status=status, result=result, error=error, ended_at_ms=wall_ms())
    )
    return changed.rowcount == 1


def hand_over(connection: Connection, job_id: str) -> bool:
    """A running job is the server's from now on. False if it had ended, or was asked to."""
    changed = connection.execute(
        update(t)
        .where(t.c.job_id == job_id, t.c.status == "running", t.c.cancel == 0)
        .values(owner=_SERVER)
    )
    return changed.rowcount == 1


def handed_over(connection: Connection) -> JobRow | None:
    """The running job that is the server's."""
    wanted = select(*_COLUMNS).where(t.c.status == "running", t.c.owner == _SERVER)
    row = connection.execute(wanted).first()
    return None if row is None else JobRow(*tuple(row))


def owners(connection: Connection) -> list[str]:
    """Instances that are said to run a job."""
    running = select(func.distinct(t.c.owner)).where(t.c.status == "running", t.c.owner != _SERVER)
    return list(connection.execute(running).scalars())


def interrupt(connection: Connection, dead_owners: Collection[str] | None) -> int:
    """Jobs whose instance is gone have failed; None: all that run. Returns how many."""
    dead = t.c.status == "running"
    if dead_owners is not None:
        dead &= t.c.owner.in_(dead_owners)
    return connection.execute(
        update(t).where(dead).values(status="failed", error="interrupted", ended_at_ms=wall_ms())
    ).rowcount


def trim(connection: Connection, keep: int) -> None:
    """Forget ended jobs but the newest `keep`."""
    newest = (
        select(t.c.job_id)
        .where(t.c.status != "running")
        .order_by(t.c.created_at_ms.desc(), t.c.job_id.desc())
        .limit(keep)
    )
    connection.execute(delete(t).where(t.c.status != "running", t.c.job_id.not_in(newest)))
