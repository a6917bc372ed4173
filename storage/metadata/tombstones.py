"""Tombstones: what remains of a prefix that went, so that a miss can say so. Bounded, oldest first out."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from storage.clock import wall_ms
from storage.metadata.schema import tombstone as t
from storage.metadata.statements import HotStatement
from storage.rows import StateRow, TombstoneRow

_LENGTHS = HotStatement(
    select(t.c.token_count)
    .distinct()
    .where(
        t.c.namespace_id == bindparam("namespace_id"),
        t.c.token_count <= bindparam("most_tokens"),
    )
    .order_by(t.c.token_count.desc())
    .limit(bindparam("most"))
)
_ADD = HotStatement(
    insert(t).values({column: bindparam(column.name) for column in t.c if column.name != "id"})
)
_FIND = HotStatement(
    select(t.c.token_count, t.c.kind, t.c.state_id, t.c.cause, t.c.evicted_at_ms)
    .where(
        t.c.namespace_id == bindparam("namespace_id"),
        t.c.token_count == bindparam("token_count"),
        t.c.token_digest == bindparam("token_digest"),
    )
    .order_by(t.c.id.desc())
    .limit(1)
)
_OF_PREFIX = HotStatement(
    select(t.c.token_count, t.c.kind, t.c.state_id, t.c.cause, t.c.evicted_at_ms)
    .where(
        t.c.namespace_id == bindparam("namespace_id"),
        t.c.token_count == bindparam("token_count"),
        t.c.token_digest == bindparam("token_digest"),
    )
    .order_by(t.c.id.desc())
    .limit(bindparam("most"))
)


def add(connection: Connection, row: StateRow, cause: str) -> None:
    """Leave a tombstone for a state that goes now."""
    _ADD.run(
        connection,
        namespace_id=row.namespace_id,
        token_digest=row.token_digest,
        token_count=row.token_count,
        kind=row.kind,
        state_id=row.state_id,
        cause=cause,
        evicted_at_ms=wall_ms(),
    )


def trim(connection: Connection, most: int) -> None:
    """Keep the newest `most`; ids grow in the order of going."""
    newest = connection.execute(select(func.max(t.c.id))).scalar_one()
    if newest is not None:
        connection.execute(delete(t).where(t.c.id <= newest - most))


def lengths(connection: Connection, namespace_id: int, most_tokens: int, limit: int) -> list[int]:
    """Distinct token counts of the namespace's tombstones up to `most_tokens`, longest first."""
    rows = _LENGTHS.all(connection, namespace_id=namespace_id, most_tokens=most_tokens, most=limit)
    return [token_count for (token_count,) in rows]


def find(
    connection: Connection, namespace_id: int, token_count: int, token_digest: bytes
) -> TombstoneRow | None:
    """The newest tombstone of exactly this prefix."""
    row = _FIND.first(
        connection, namespace_id=namespace_id, token_count=token_count, token_digest=token_digest
    )
    return None if row is None else TombstoneRow(*row)


def of_prefix(
    connection: Connection, namespace_id: int, token_count: int, token_digest: bytes, limit: int
) -> list[TombstoneRow]:
    """Tombstones of exactly this prefix, newest first."""
    rows = _OF_PREFIX.all(
        connection,
        namespace_id=namespace_id,
        token_count=token_count,
        token_digest=token_digest,
        most=limit,
    )
    return [TombstoneRow(*row) for row in rows]
