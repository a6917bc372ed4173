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
    select,
    update,
)
from sqlalchemy import (
    null as sql_null,
)

from storage.clock import wall_ms
from storage.errors import Conflict, OverLimit
from storage.metadata import namespaces, ownership, pins, radix, tenants, tombstones, totals
from storage.metadata.schema import block, component, lease, state, state_block
from storage.metadata.schema import namespace as namespace_table
from storage.metadata.schema import quarantine as quarantine_table
from storage.metadata.statements import HotStatement
from storage.rows import (
    Arrival,
    ComponentRow,
    Limits,
    NewComponent,
    OwnedBlock,
    RecordingRow,
    StateRow,
)

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
        component.c.geometry,
        component.c.row_bytes,
        component.c.new_raw_bytes,
        component.c.by_blocks,
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


def leased(state_id: ColumnElement[str], now_boot_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether anybody holds an unexpired lease on the state of that name."""
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
_AT_NODE = HotStatement(
    select(*COLUMNS).where(state.c.node_id == bindparam("node")).order_by(state.c.id.desc())
)
_IS_LEASED = HotStatement(
    select(leased(bindparam("leased", type_=Text), bindparam("now", type_=Integer)))
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
        geometry=bindparam("geometry"),
        row_bytes=bindparam("row_bytes"),
    )
)
_AT = (component.c.state == bindparam("which")) & (component.c.ordinal == bindparam("at"))
_AWAIT_COMPONENT = HotStatement(
    update(component)
    .where(_AT)
    .values(digest=sql_null(), upload=bindparam("to_upload"), new_raw_bytes=0)
)
_FINISH_COMPONENT = HotStatement(
    update(component)
    .where(_AT)
    .values(
        digest=bindparam("to_digest"),
        upload=sql_null(),
        by_blocks=bindparam("known_by_blocks"),
        geometry=func.coalesce(component.c.geometry, bindparam("to_geometry")),
        row_bytes=func.max(component.c.row_bytes, bindparam("to_row_bytes")),
    )
)
_ADD_NEW = HotStatement(
    update(component)
    .where(_AT)
    .values(new_raw_bytes=component.c.new_raw_bytes + bindparam("by_raw"))
)
_ADD_OVERHEAD = HotStatement(
    update(state)
    .where(state.c.id == bindparam("which"))
    .values(overhead_bytes=state.c.overhead_bytes + bindparam("by_overhead"))
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


def live_at(connection: Connection, node: int, kind: str) -> list[StateRow]:
    """The live state of a kind at a node: one, or none."""
    return [StateRow(*row) for row in _LIVE_AT.all(connection, node=node, kind=kind)]


def at_node(connection: Connection, node: int) -> list[StateRow]:
    """States of a node of any kind, in service or quarantined, newest first."""
    return [StateRow(*row) for row in _AT_NODE.all(connection, node=node)]


def publish(
    connection: Connection,
    recording: RecordingRow,
    manifest_digest: bytes,
    limits: Limits,
    now_boot_ms: int,
) -> None:
    """Make a whole recording live. A held state of the same prefix and kind gives way if it may.

    A held state that is leased stays readable for its holders without a node (see schema) and goes
    when they are done; one that is not goes now. If it is pinned, the recording is from now on.

    Raises:
        Conflict: the prefix is held and the recording did not ask to replace it.
        OverLimit: a cap on entries or logical bytes is reached.
    """
    row = recording.state
    known_tokens = radix.reach(connection, row.namespace_id, recording.tokens).common_tokens
    node = radix.insert(connection, row.namespace_id, recording.tokens)
    before = _LIVE_AT.first(connection, node=node, kind=row.kind)
    old = None if before is None else StateRow(*before)
    if old is not None:
        if not recording.replace:
            raise Conflict("the prefix is already held")
        _DETACH.run(connection, which=old.id)
        pins.take_over(connection, old.id, row.id, wall_ms())
        if not is_leased(connection, old.state_id, now_boot_ms):
            # Before the limits are looked at: it makes room for its successor.
            drop(connection, dataclasses.replace(old, node_id=None), cause=None)
    _check_live(connection, row, limits)
    _GO_LIVE.run(connection, which=row.id, node=node, digest=manifest_digest, now=wall_ms())
    count_live(connection, row, 1)
    in_windows = [part for part in recording.components if part.geometry is not None]
    if in_windows:
        namespaces.amplify(
            connection,
            row.namespace_id,
            sum(part.new_raw_bytes for part in in_windows),
            sum(part.row_bytes for part in in_windows) * (row.token_count - known_tokens),
        )


def drop(connection: Connection, row: StateRow, cause: str | None) -> int:
    """Remove a state of any status with its ownership. Returns the bytes left without an owner.

    Args:
        cause: why, for the tombstone that explains later misses; None leaves no tombstone.

    Raises:
        StoreDamaged: an index led to it, and the table does not hold it.
    """
    unowned = ownership.release(connection, state=row.id, namespace_id=row.namespace_id)
    if cause is not None:
        tombstones.add(connection, row, cause)
    _DELETE.run_one(connection, which=row.id)
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


def without_node(connection: Connection, limit: int) -> list[StateRow]:
    """Live states that a replacement pushed out of the tree."""
    statement = (
        select(*COLUMNS)
        .where(state.c.status == "live", state.c.node_id.is_(None))
        .order_by(state.c.id)
        .limit(limit)
    )
    return [StateRow(*tuple(row)) for row in connection.execute(statement)]


def live_owners(connection: Connection, digest: bytes) -> list[tuple[StateRow, int, int]]:
    """Live states that own a block; each with ordinal and seq of its first use of it."""
    statement = (
        select(*COLUMNS, state_block.c.ordinal, func.min(state_block.c.seq))
        .join(state_block, state_block.c.state == state.c.id)
        .join(block, block.c.id == state_block.c.block)
        .where(block.c.digest == digest, state.c.status == "live")
        .group_by(state.c.id)
        .order_by(state.c.id)
    )
    width = len(COLUMNS)
    return [(StateRow(*row[:width]), row[-2], row[-1]) for row in connection.execute(statement)]


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


def await_component(connection: Connection, row: int, ordinal: int, upload: str | None) -> None:
    """Mark a component as arriving (`upload`) or waiting (None)."""
    _AWAIT_COMPONENT.run(connection, which=row, at=ordinal, to_upload=upload)


def finish_component(connection: Connection, row: StateRow, ordinal: int, arrival: Arrival) -> None:
    """Mark a component as whole; charge what its metadata takes beyond what was known before."""
    _FINISH_COMPONENT.run(
        connection,
        which=row.id,
        at=ordinal,
        to_digest=arrival.digest,
        known_by_blocks=int(arrival.by_blocks),
        to_geometry=arrival.geometry,
        to_row_bytes=arrival.row_bytes,
    )
    if arrival.overhead_bytes:
        _ADD_OVERHEAD.run(connection, which=row.id, by_overhead=arrival.overhead_bytes)
        charge(connection, row.namespace_id, arrival.overhead_bytes)


def add_new_bytes(connection: Connection, row: int, ordinal: int, raw_bytes: int) -> None:
    """Blocks of a component were new to the store."""
    if raw_bytes:
        _ADD_NEW.run(connection, which=row, at=ordinal, by_raw=raw_bytes)


def add(connection: Connection, values: dict[str, Any], parts: Sequence[NewComponent]) -> int:
    """Insert a state row with its components; returns the row id."""
    row = int(_ADD.scalar(connection, **values))
    _ADD_COMPONENT.many(
        connection,
        (
            {
                "of": row,
                "ordinal": ordinal,
                "name": part.name,
                "raw_bytes": part.raw_bytes,
                "geometry": part.geometry,
                "row_bytes": part.row_bytes,
            }
            for ordinal, part in enumerate(parts)
        ),
    )
    return row


def to_quarantine(connection: Connection, row: StateRow) -> None:
    """Take a live state out of service. It keeps its blocks and its node; why is in `evidence`."""
    connection.execute(update(state).where(state.c.id == row.id).values(status="quarantined"))
    count_live(connection, row, -1)


def from_quarantine(connection: Connection, row: StateRow, limits: Limits) -> None:
    """Put a quarantined state back into service.

    Raises:
        Conflict: a newer recording of the prefix is live, or it was replaced by one and has no place
            in the tree any more.
        OverLimit: a cap on entries or logical bytes is reached.
    """
    if row.node_id is None:
        raise Conflict("the state was replaced by a newer recording")
    newer = exists().where(
        state.c.node_id == row.node_id, state.c.kind == row.kind, state.c.status == "live"
    )
    if connection.execute(select(newer)).scalar_one():
        raise Conflict("a newer recording of the prefix is in service")
    _check_live(connection, row, limits)
    connection.execute(delete(quarantine_table).where(quarantine_table.c.state == row.id))
    connection.execute(update(state).where(state.c.id == row.id).values(status="live"))
    count_live(connection, row, 1)


def _check_live(connection: Connection, row: StateRow, limits: Limits) -> None:
    if totals.entries(connection) >= limits.max_entries:
        raise OverLimit(None, "entries", 1)
    if limits.namespace_entries is not None:
        held_entries = namespaces.by_id(connection, row.namespace_id).entries
        if held_entries >= limits.namespace_entries:
            raise OverLimit(row.namespace_id, "entries", 1)
    if limits.tenant_entries is None and limits.tenant_logical_bytes is None:
        return
    held_by = tenants.usage(connection, limits.tenant)
    if limits.tenant_entries is not None and held_by.entries >= limits.tenant_entries:
        raise OverLimit(limits.tenant, "entries", 1)
    if limits.tenant_logical_bytes is not None:
        over = held_by.logical_bytes + row.logical_bytes - limits.tenant_logical_bytes
        if over > 0:
            raise OverLimit(limits.tenant, "logical_bytes", over)
