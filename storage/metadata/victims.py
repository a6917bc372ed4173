"""Who goes next: states of a status, least recently used first, with what speaks against their going.

The order is (`touched_at_ms`, row), which indexes have for the whole store and for one namespace. States of
a tenant or of several namespaces are found by walking the store's order, past those of others. A walk
goes on behind a `Place`, so that what it has passed over is not looked at again.

What is told here is of this moment. Whoever removes a state asks again in the transaction that does it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    bindparam,
    func,
    literal,
    literal_column,
    select,
    tuple_,
)

from storage.metadata import pins
from storage.metadata.schema import block, state, state_block
from storage.metadata.scope import Scope, within
from storage.metadata.statements import HotStatement
from storage.metadata.states import COLUMNS, leased
from storage.rows import Candidate, OwnedRow, StateRow


class Place(NamedTuple):
    """A place in the order: behind the state with this time of last use and row."""

    touched_at_ms: int
    row: int


_WIDTH = len(COLUMNS)
_STANDING = HotStatement(
    select(
        *COLUMNS,
        leased(state.c.state_id, bindparam("boot", type_=Integer)),
        pins.pinned(state.c.id, bindparam("wall", type_=Integer)),
    ).where(state.c.state_id == bindparam("which"))
)
_OWNED = HotStatement(
    select(state_block.c.block, func.count(), block.c.stored_bytes, block.c.refs)
    .select_from(state_block.join(block, block.c.id == state_block.c.block))
    .where(state_block.c.state == bindparam("row"))
    .group_by(state_block.c.block)
)
_OWNED_BYTES = HotStatement(
    select(func.coalesce(func.sum(block.c.stored_bytes), 0)).where(
        block.c.id.in_(select(state_block.c.block).where(state_block.c.state == bindparam("row")))
    )
)
_OWNERS_WITHIN = HotStatement(
    select(func.count()).where(
        state_block.c.block == bindparam("which"),
        state_block.c.namespace_id == bindparam("of"),
    )
)


def least_recent(
    connection: Connection,
    scope: Scope,
    status: str,
    limit: int,
    now_boot_ms: int,
    now_ms: int,
    after: Place | None = None,
) -> list[StateRow]:
    """States that nobody leases or has pinned."""
    statement = _in_order(select(*COLUMNS), scope, status, after).where(
        # In this order: the pin is asked for by the row that the index gives.
        ~pins.pinned(state.c.id, literal(now_ms)),
        ~leased(state.c.state_id, literal(now_boot_ms)),
    )
    return [StateRow(*row) for row in connection.execute(statement.limit(limit))]


def candidates(
    connection: Connection,
    scope: Scope,
    status: str,
    limit: int,
    now_boot_ms: int,
    now_ms: int,
    *,
    after: Place | None,
    created_to_ms: int,
    touched_to_ms: int | None,
) -> list[Candidate]:
    """States made up to a moment and not used after another, the leased and the pinned among them."""
    columns = (
        *COLUMNS,
        leased(state.c.state_id, literal(now_boot_ms)),
        pins.pinned(state.c.id, literal(now_ms)),
    )
    statement = _in_order(select(*columns), scope, status, after).where(
        state.c.created_at_ms <= created_to_ms
    )
    if touched_to_ms is not None:
        statement = statement.where(state.c.touched_at_ms <= touched_to_ms)
    return [_candidate(row) for row in connection.execute(statement.limit(limit))]


def newest_touch_ms(connection: Connection) -> int:
    """When a state was last used, as far as is known; 0 without any. A step of an index."""
    newest = select(func.coalesce(func.max(state.c.touched_at_ms), 0)).where(
        state.c.status == "live"
    )
    return int(connection.execute(newest).scalar_one())


def standing(
    connection: Connection, state_id: str, now_boot_ms: int, now_ms: int
) -> Candidate | None:
    """The state of that name, in any status."""
    row = _STANDING.first(connection, which=state_id, boot=now_boot_ms, wall=now_ms)
    return None if row is None else _candidate(row)


def owned(connection: Connection, row: int) -> list[OwnedRow]:
    """Distinct blocks of a state. One row each: for a thread."""
    return [OwnedRow(*values) for values in _OWNED.all(connection, row=row)]


def owned_bytes(connection: Connection, row: int) -> int:
    """Stored bytes of a state's blocks, each once."""
    return int(_OWNED_BYTES.scalar(connection, row=row))


def owners_within(connection: Connection, block_row: int, namespace_id: int) -> int:
    """How many of a block's owners a namespace has. A step of an index for each."""
    return int(_OWNERS_WITHIN.scalar(connection, which=block_row, of=namespace_id))


def _in_order(rows: Select[Any], scope: Scope, status: str, after: Place | None) -> Select[Any]:
    ordered = rows.where(state.c.status == status).order_by(state.c.touched_at_ms, state.c.id)
    if after is not None:
        # The first is implied by the second, and is the one that an index is entered by.
        ordered = ordered.where(
            state.c.touched_at_ms >= after.touched_at_ms,
            tuple_(state.c.touched_at_ms, state.c.id) > tuple_(*map(literal, after)),
        )
    if scope is None:
        return ordered
    if isinstance(scope, int):
        return ordered.where(state.c.namespace_id == scope)
    # The plus keeps SQLite from sorting all the states of these namespaces for each page.
    namespace_id: ColumnElement[Any] = literal_column("+state.namespace_id")
    return ordered.where(*within(namespace_id, scope))


def _candidate(row: Any) -> Candidate:
    return Candidate(StateRow(*row[:_WIDTH]), bool(row[_WIDTH]), bool(row[_WIDTH + 1]))
