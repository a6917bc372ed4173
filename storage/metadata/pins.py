"""Pins: states that are not evicted, until a moment on the wall clock or until they are let go.

A pin goes with its state's row. One that has run out counts for nothing at once, whether it has been
removed or not; every question here is asked with the time. There are at most MOST of them, so that
adding them up under the write lock stays short (see `total`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    bindparam,
    delete,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from storage.metadata.schema import namespace, state
from storage.metadata.schema import pin as t
from storage.metadata.statements import HotStatement
from storage.rows import PinRow, StateRow

MOST: Final = 10_000

_NOW = bindparam("now", type_=Integer)


def in_force(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """That a pin has not run out."""
    return or_(t.c.expires_at_ms.is_(None), t.c.expires_at_ms > now_ms)


def pinned(row: ColumnElement[int], now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether the state of that row is pinned: one probe of the pins' primary key."""
    return exists().where(t.c.state == row, in_force(now_ms))


_COLUMNS = (
    state.c.id,
    state.c.state_id,
    namespace.c.name,
    state.c.logical_bytes,
    state.c.overhead_bytes,
    t.c.expires_at_ms,
    t.c.reason,
    t.c.actor,
    t.c.created_at_ms,
)
# From the pins, which are few. The plus keeps SQLite from going through all states in order of their ids,
# or through all of a tenant's.
_state_id: ColumnElement[Any] = literal_column("+state.state_id")
_tenant: ColumnElement[Any] = literal_column("+namespace.tenant")
_ALL = t.join(state, state.c.id == t.c.state).join(
    namespace, namespace.c.id == state.c.namespace_id
)

_IS_PINNED = HotStatement(select(pinned(bindparam("row", type_=Integer), _NOW)))
_FIND = HotStatement(
    select(*_COLUMNS).select_from(_ALL).where(t.c.state == bindparam("row"), in_force(_NOW))
)
_TOTAL = HotStatement(
    select(func.count(), func.coalesce(func.sum(state.c.logical_bytes), 0))
    .select_from(t.join(state, state.c.id == t.c.state))
    .where(in_force(_NOW), t.c.state != bindparam("besides"))
)
_TAKE_OVER = HotStatement(
    update(t).where(t.c.state == bindparam("old"), in_force(_NOW)).values(state=bindparam("new"))
)


def find(connection: Connection, row: int, now_ms: int) -> PinRow | None:
    """The pin of a state's row."""
    found = _FIND.first(connection, row=row, now=now_ms)
    return None if found is None else PinRow(*found)


def is_pinned(connection: Connection, row: int, now_ms: int) -> bool:
    """Whether the state of that row is pinned."""
    return bool(_IS_PINNED.scalar(connection, row=row, now=now_ms))


def total(connection: Connection, now_ms: int, besides: int = 0) -> tuple[int, int]:
    """How many states are pinned and their logical bytes, those of one row not counted.

    Cost: a point read for each pin.
    """
    found = _TOTAL.first(connection, now=now_ms, besides=besides)
    assert found is not None
    return int(found[0]), int(found[1])


def by_namespace(connection: Connection, now_ms: int) -> list[tuple[str, int]]:
    """Logical bytes of the pinned states of each namespace, by the name it is held under."""
    statement = (
        select(namespace.c.name, func.sum(state.c.logical_bytes))
        .select_from(_ALL)
        .where(in_force(literal(now_ms)))
        .group_by(literal_column("+state.namespace_id"))
    )
    return [(name, int(size)) for name, size in connection.execute(statement)]


def page(
    connection: Connection, after: str | None, limit: int, tenant: str | None, now_ms: int
) -> list[PinRow]:
    """Pins of a tenant's states (None: of all) in order of their state ids, those behind `after`."""
    statement = (
        select(*_COLUMNS)
        .select_from(_ALL)
        .where(in_force(literal(now_ms)))
        .order_by(_state_id)
        .limit(limit)
    )
    if tenant is not None:
        statement = statement.where(_tenant == tenant)
    if after is not None:
        statement = statement.where(_state_id > after)
    return [PinRow(*row) for row in connection.execute(statement)]


def put(
    connection: Connection,
    row: StateRow,
    *,
    expires_at_ms: int | None,
    reason: str,
    actor: str,
    now_ms: int,
) -> None:
    """Pin a state, in place of the pin that it has."""
    values = {
        "expires_at_ms": expires_at_ms,
        "reason": reason,
        "actor": actor,
        "created_at_ms": now_ms,
    }
    statement = insert(t).values(state=row.id, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=[t.c.state], set_=values))


def remove(connection: Connection, row: int) -> None:
    """Let a state go."""
    connection.execute(delete(t).where(t.c.state == row))


def take_over(connection: Connection, old: int, new: int, now_ms: int) -> None:
    """A newer recording has taken the place of a state: its pin is that one's from now on."""
    _TAKE_OVER.run(connection, old=old, new=new, now=now_ms)


def run_out(connection: Connection, now_ms: int, limit: int) -> Sequence[int]:
    """Rows of states whose pins have run out."""
    statement = select(t.c.state).where(t.c.expires_at_ms <= now_ms).limit(limit)
    return connection.execute(statement).scalars().all()


def remove_run_out(connection: Connection, rows: Sequence[int], now_ms: int) -> int:
    """Remove those of these pins that have run out (still); returns how many."""
    statement = delete(t).where(t.c.state.in_(rows), t.c.expires_at_ms <= now_ms)
    return int(connection.execute(statement).rowcount)
