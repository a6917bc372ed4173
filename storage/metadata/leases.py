"""Leases: the right to read a state. Deadlines are on the boot clock.

A released lease stays for a while with its outcome, so that a release sent twice gets the same answer.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from storage.clock import wall_ms
from storage.metadata.schema import lease as t
from storage.metadata.statements import HotStatement
from storage.rows import LeaseRow, StateRow

_COLUMNS = (
    t.c.lease_id,
    t.c.state_id,
    t.c.ttl_ms,
    t.c.expires_boot_ms,
    t.c.outcome,
    t.c.created_at_ms,
    t.c.namespace_id,
)

_ADD = HotStatement(
    insert(t).values(
        lease_id=bindparam("lease"),
        state_id=bindparam("state"),
        ttl_ms=bindparam("ttl"),
        expires_boot_ms=bindparam("end"),
        created_at_ms=bindparam("now"),
        namespace_id=bindparam("of"),
    )
)
_FIND = HotStatement(select(*_COLUMNS).where(t.c.lease_id == bindparam("lease")))
_RENEW = HotStatement(
    update(t)
    .where(t.c.lease_id == bindparam("lease"), t.c.outcome.is_(None))
    .values(expires_boot_ms=bindparam("end"))
)
_FINISH = HotStatement(
    update(t).where(t.c.lease_id == bindparam("lease")).values(outcome=bindparam("word"))
)


def add(
    connection: Connection, lease_id: str, row: StateRow, ttl_ms: int, now_boot_ms: int
) -> None:
    """Open a lease. The caller has seen the state live in this transaction."""
    _ADD.run(
        connection,
        lease=lease_id,
        state=row.state_id,
        of=row.namespace_id,
        ttl=ttl_ms,
        end=now_boot_ms + ttl_ms,
        now=wall_ms(),
    )


def find(connection: Connection, lease_id: str) -> LeaseRow | None:
    """The lease of that id, held or released."""
    row = _FIND.first(connection, lease=lease_id)
    return None if row is None else LeaseRow(*row)


def renew(connection: Connection, lease_id: str, expires_boot_ms: int) -> None:
    """Move the end of a held lease."""
    _RENEW.run(connection, lease=lease_id, end=expires_boot_ms)


def finish(connection: Connection, lease_id: str, outcome: str) -> None:
    """The holder is done."""
    _FINISH.run(connection, lease=lease_id, word=outcome)


def count_held(connection: Connection, now_boot_ms: int) -> int:
    """Leases held now."""
    # The sum keeps SQLite from the index by expiry alone, which has the released ones too; the partial
    # one covers the question.
    ends = t.c.expires_boot_ms + 0
    count = select(func.count()).where(t.c.outcome.is_(None), ends > now_boot_ms)
    return int(connection.execute(count).scalar_one())


def sweep(connection: Connection, ended_before_boot_ms: int, limit: int) -> tuple[int, int]:
    """Forget leases that ended before that moment.

    Returns:
        How many, and how many of them nobody had released: they ran out.
    """
    ended = select(t.c.lease_id).where(t.c.expires_boot_ms < ended_before_boot_ms).limit(limit)
    gone = connection.execute(delete(t).where(t.c.lease_id.in_(ended)).returning(t.c.outcome)).all()
    return len(gone), sum(outcome is None for (outcome,) in gone)


def restart(connection: Connection, now_boot_ms: int) -> None:
    """After a reboot the clock began anew: every lease gets its full time once more."""
    connection.execute(update(t).values(expires_boot_ms=now_boot_ms + t.c.ttl_ms))
