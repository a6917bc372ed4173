"""States: found by prefix or by name, made live, taken out, listed. Their blocks are in `ownership`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy import (
    null as sql_null,
)

from storage.clock import wall_ms
from storage.errors import Conflict, OverLimit
from storage.metadata import namespaces, ownership, radix, tombstones, totals
from storage.metadata.schema import block, component, lease, state, state_block
from storage.metadata.schema import namespace as namespace_table
from storage.metadata.schema import quarantine as quarantine_table
from storage.metadata.statements import HotStatement
from storage.rows import ComponentRow, Limits, OwnedBlock, RecordingRow, StateRow

COLUMNS = (
    state.c.id,
    state.c.state_id,
    state.c.namespace_id,
    state.c.page_id,
    state.c.kind,
    state.c.status,
    state.c.node_id,
    state.c.token_count,
    state.c.token_digest,
    state.c.manifest_digest,
    state.c.kv_descriptor,
    state.c.logical_bytes,
    state.c.overhead_bytes,
    state.c.created_at_ms,
    state.c.touched_at_ms,
    state.c.hits,
)

# A conversation of more turns than this still finds its longest ones.
MOST_ON_PATH = 256

_walk = radix.walk(bindparam("namespace_id"), bindparam("query"))
_ON_PATH = HotStatement(
    select(*COLUMNS)
    .select_from(_walk.join(state, state.c.node_id == _walk.c.id))
    .order_by(_walk.c.depth.desc(), state.c.id.desc())
    .limit(MOST_ON_PATH)
)
_BY_STATE_ID = HotStatement(select(*COLUMNS).where(state.c.state_id == bindparam("state_id")))
_COMPONENTS = HotStatement(
    select(
        component.c.ordinal,
        component.c.name,
        component.c.raw_bytes,
        component.c.digest,
        component.c.upload,
    )
    .where(component.c.state == bindparam("state"))
    .order_by(component.c.ordinal)
)
_BLOCKS = HotStatement(
    select(
        state_block.c.ordinal,
        state_block.c.seq,
        block.c.digest,
        block.c.raw_bytes,
        block.c.stored_bytes,
    )
    .select_from(state_block.join(block, block.c.id == state_block.c.block))
    .where(state_block.c.state == bindparam("state"))
    .order_by(state_block.c.ordinal, state_block.c.seq)
)


def _leased(state_id: ColumnElement[str], now_boot_ms: ColumnElement[int]) -> ColumnElement[bool]:
    return exists().where(
        lease.c.state_id == state_id,
        lease.c.outcome.is_(None),
        lease.c.expires_boot_ms > now_boot_ms,
    )


_HELD = HotStatement(
    select(*COLUMNS).where(
        state.c.namespace_id == bindparam("namespace_id"),
        state.c.token_digest == bindparam("token_digest"),
        state.c.kind == bindparam("kind"),
        state.c.status == "live",
        state.c.node_id.is_not(None),
    )
)
_LIVE_AT = HotStatement(
    select(*COLUMNS).where(
        state.c.node_id == bindparam("node"),
        state.c.kind == bindparam("kind"),
        state.c.status == "live",
    )
)
_IS_LEASED = HotStatement(
    select(_leased(bindparam("leased", type_=Text), bindparam("now", type_=Integer)))
)
_ADD = HotStatement(
    insert(state)
    .values(
        {
            column: bindparam(column.name)
            for column in state.c
            if column.name not in ("id", "node_id", "manifest_digest")
        }
    )
    .returning(state.c.id)
)
_ADD_COMPONENT = HotStatement(
    insert(component).values(
        state=bindparam("of"),
        ordinal=bindparam("ordinal"),
        name=bindparam("name"),
        raw_bytes=bindparam("raw_bytes"),
    )
)
_SET_COMPONENT = HotStatement(
    update(component)
    .where(component.c.state == bindparam("which"), component.c.ordinal == bindparam("at"))
    .values(digest=bindparam("to_digest"), upload=bindparam("to_upload"))
)
_DETACH = HotStatement(
    update(state).where(state.c.id == bindparam("which")).values(node_id=sql_null())
)
_GO_LIVE = HotStatement(
    update(state)
    .where(state.c.id == bindparam("which"))
    .values(
        status="live",
        node_id=bindparam("node"),
        manifest_digest=bindparam("digest"),
        touched_at_ms=bindparam("now"),
    )
)
_DELETE = HotStatement(delete(state).where(state.c.id == bindparam("which")))
_TOUCH = HotStatement(
    update(state)
    .where(state.c.state_id == bindparam("touched"))
    .values(
        touched_at_ms=func.max(state.c.touched_at_ms, bindparam("at_ms")),
        hits=state.c.hits + bindparam("uses"),
    )
)


def on_path(connection: Connection, namespace_id: int, tokens: bytes) -> list[StateRow]:
    """States whose tokens the tree says are a prefix of `tokens`, longest first, newest first.

    Live and quarantined ones. The tree is unchecked storage: the caller must prove a hit by its
    token digest before serving it.
    """
    rows = _ON_PATH.all(connection, namespace_id=namespace_id, query=tokens)
    return [StateRow(*tuple(row)) for row in rows]


def by_state_id(connection: Connection, state_id: str) -> StateRow | None:
    """The state of that name, in any status."""
    row = _BY_STATE_ID.first(connection, state_id=state_id)
    return None if row is None else StateRow(*tuple(row))


def components(connection: Connection, row: int) -> tuple[ComponentRow, ...]:
    """Components in wire order."""
    return tuple(ComponentRow(*values) for values in _COMPONENTS.all(connection, state=row))


def blocks(connection: Connection, row: int) -> list[OwnedBlock]:
    """Blocks of all components, in order."""
    return [OwnedBlock(*values) for values in _BLOCKS.all(connection, state=row)]


def held(
    connection: Connection, namespace_id: int, token_digest: bytes, kind: str
) -> StateRow | None:
    """The live state of exactly this prefix and kind that lookups can see."""
    row = _HELD.first(connection, namespace_id=namespace_id, token_digest=token_digest, kind=kind)
    return None if row is None else StateRow(*row)


def publish(
    connection: Connection,
    recording: RecordingRow,
    manifest_digest: bytes,
    limits: Limits,
    now_boot_ms: int,
) -> None:
    """Make a whole recording live. A held state of the same prefix and kind gives way if it may.

    A held state that is leased stays readable for its holders without a node (see schema) and goes
    when they are done; one that is not goes now.

    Raises:
        Conflict: the prefix is held and the recording did not ask to replace it.
        OverLimit: an entry cap is reached.
    """
    row = recording.state
    node = radix.insert(connection, row.namespace_id, recording.tokens)
    before = _LIVE_AT.first(connection, node=node, kind=row.kind)
    old = None if before is None else StateRow(*before)
    if old is not None:
        if not recording.replace:
            raise Conflict("the prefix is already held")
        _DETACH.run(connection, which=old.id)
    _check_entries(connection, row.namespace_id, limits)
    _GO_LIVE.run(connection, which=row.id, node=node, digest=manifest_digest, now=wall_ms())
    count_live(connection, row, 1)
    if old is not None and not is_leased(connection, old.state_id, now_boot_ms):
        drop(connection, dataclasses.replace(old, node_id=None), cause=None)


def drop(connection: Connection, row: StateRow, cause: str | None) -> int:
    """Remove a state of any status with its ownership. Returns the bytes left without an owner.

    Args:
        cause: why, for the tombstone that explains later misses; None leaves no tombstone.
    """
    unowned = ownership.release(connection, state=row.id, namespace_id=row.namespace_id)
    if cause is not None:
        tombstones.add(connection, row, cause)
    _DELETE.run(connection, which=row.id)
    if row.node_id is not None:
        radix.remove(connection, row.node_id)
    charge(connection, row.namespace_id, -row.overhead_bytes)
    if row.status == "live":
        count_live(connection, row, -1)
    return unowned


def charge(connection: Connection, namespace_id: int, overhead_bytes: int) -> None:
    """Charge a state's metadata to the store and its namespace; negative gives it back."""
    totals.add(connection, stored_bytes=overhead_bytes)
    namespaces.count(connection, namespace_id, stored_bytes=overhead_bytes)


def count_live(connection: Connection, row: StateRow, by: int) -> None:
    """A state entered (1) or left (-1) service."""
    totals.add(connection, entries=by)
    namespaces.count(connection, row.namespace_id, entries=by, logical_bytes=by * row.logical_bytes)


def is_leased(connection: Connection, state_id: str, now_boot_ms: int) -> bool:
    """Whether anybody holds an unexpired lease on it."""
    return bool(_IS_LEASED.scalar(connection, leased=state_id, now=now_boot_ms))


def least_recent(
    connection: Connection, namespace_id: int | None, status: str, limit: int, now_boot_ms: int
) -> list[StateRow]:
    """States of a status that nobody leases, least recently touched first."""
    statement = (
        select(*COLUMNS)
        .where(state.c.status == status, ~_leased(state.c.state_id, literal(now_boot_ms)))
        .order_by(state.c.touched_at_ms, state.c.id)
        .limit(limit)
    )
    if namespace_id is not None:
        statement = statement.where(state.c.namespace_id == namespace_id)
    return [StateRow(*tuple(row)) for row in connection.execute(statement)]


def without_node(connection: Connection, limit: int) -> list[StateRow]:
    """Live states that a replacement pushed out of the tree."""
    statement = (
        select(*COLUMNS)
        .where(state.c.status == "live", state.c.node_id.is_(None))
        .order_by(state.c.id)
        .limit(limit)
    )
    return [StateRow(*tuple(row)) for row in connection.execute(statement)]


def touch(connection: Connection, touches: Mapping[str, tuple[int, int]]) -> None:
    """Note last use: state_id -> (wall ms, uses since the last note). Never moves a time back."""
    _TOUCH.many(
        connection,
        (
            {"touched": state_id, "at_ms": at_ms, "uses": uses}
            for state_id, (at_ms, uses) in touches.items()
        ),
    )


def page(
    connection: Connection,
    *,
    limit: int,
    after: str | None = None,
    namespace_id: int | None = None,
    status: str | None = None,
    kind: str | None = None,
) -> list[tuple[StateRow, str]]:
    """States with their namespace's name in order of recording (state ids are time-ordered)."""
    statement = (
        select(*COLUMNS, namespace_table.c.name)
        .join(namespace_table, namespace_table.c.id == state.c.namespace_id)
        .order_by(state.c.state_id)
        .limit(limit)
    )
    wanted: Sequence[tuple[ColumnElement[Any], Any]] = (
        (state.c.namespace_id, namespace_id),
        (state.c.status, status),
        (state.c.kind, kind),
    )
    for column, value in wanted:
        if value is not None:
            statement = statement.where(column == value)
    if after is not None:
        statement = statement.where(state.c.state_id > after)
    return [(StateRow(*row[:-1]), row[-1]) for row in connection.execute(statement)]


def set_component(
    connection: Connection, row: int, ordinal: int, *, digest: bytes | None, upload: str | None
) -> None:
    """Mark a component as arriving (`upload`), whole (`digest`) or waiting (neither)."""
    _SET_COMPONENT.run(connection, which=row, at=ordinal, to_digest=digest, to_upload=upload)


def add(connection: Connection, values: dict[str, Any], parts: Sequence[tuple[str, int]]) -> int:
    """Insert a state row with its components; returns the row id."""
    row = int(_ADD.scalar(connection, **values))
    _ADD_COMPONENT.many(
        connection,
        (
            {"of": row, "ordinal": ordinal, "name": name, "raw_bytes": raw_bytes}
            for ordinal, (name, raw_bytes) in enumerate(parts)
        ),
    )
    return row


def to_quarantine(connection: Connection, row: StateRow, evidence: Mapping[str, Any]) -> None:
    """Take a live state out of service and keep why. It keeps its blocks and its node."""
    connection.execute(update(state).where(state.c.id == row.id).values(status="quarantined"))
    connection.execute(insert(quarantine_table).values(state=row.id, **evidence))
    count_live(connection, row, -1)


def from_quarantine(connection: Connection, row: StateRow) -> None:
    """Put a quarantined state back into service.

    Raises:
        Conflict: a newer recording of the prefix is live.
    """
    newer = exists().where(
        state.c.node_id == row.node_id, state.c.kind == row.kind, state.c.status == "live"
    )
    if connection.execute(select(newer)).scalar_one():
        raise Conflict("a newer recording of the prefix is live")
    connection.execute(delete(quarantine_table).where(quarantine_table.c.state == row.id))
    connection.execute(update(state).where(state.c.id == row.id).values(status="live"))
    count_live(connection, row, 1)


def _check_entries(connection: Connection, namespace_id: int, limits: Limits) -> None:
    if totals.entries(connection) >= limits.max_entries:
        raise OverLimit(None, 0, 1)
    if limits.namespace_entries is not None:
        held_entries = namespaces.by_id(connection, namespace_id).entries
        if held_entries >= limits.namespace_entries:
            raise OverLimit(namespace_id, 0, 1)
