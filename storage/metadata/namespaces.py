"""Namespaces: found by name, made on first use, described by an identity document, limited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    bindparam,
    exists,
    func,
    insert,
    select,
    update,
)

from storage.clock import wall_ms
from storage.metadata.schema import lease, setting, state
from storage.metadata.schema import namespace as t
from storage.metadata.scope import within
from storage.metadata.statements import HotStatement
from storage.rows import NamespaceRow
from storage.scoped import split

_COLUMNS = (
    t.c.id,
    t.c.name,
    t.c.identity,
    t.c.identity_digest,
    t.c.model,
    t.c.mode,
    t.c.min_tokens,
    t.c.max_entries,
    t.c.max_stored_bytes,
    t.c.entries,
    t.c.stored_bytes,
    t.c.logical_bytes,
    t.c.created_at_ms,
    t.c.new_raw_bytes,
    t.c.new_row_bytes,
    t.c.tenant,
    # One statement for the hot path: what counts is the namespace's own mode, else the store's.
    func.coalesce(
        t.c.mode, select(setting.c.value).where(setting.c.key == "mode").scalar_subquery()
    ),
)
_BY_NAME = HotStatement(select(*_COLUMNS).where(t.c.name == bindparam("name")))
_BY_ID = HotStatement(select(*_COLUMNS).where(t.c.id == bindparam("id")))

_ADD = HotStatement(
    insert(t).values(
        name=bindparam("name"),
        tenant=bindparam("of"),
        entries=0,
        stored_bytes=0,
        logical_bytes=0,
        created_at_ms=bindparam("now"),
    )
)
# The empty name comes first in the index, so this is one probe.
_SEVERAL = HotStatement(select(exists().where(t.c.tenant > "")))
_COUNT = HotStatement(
    update(t)
    .where(t.c.id == bindparam("which"))
    .values(
        entries=t.c.entries + bindparam("by_entries"),
        stored_bytes=t.c.stored_bytes + bindparam("by_stored"),
        logical_bytes=t.c.logical_bytes + bindparam("by_logical"),
    )
)


_AMPLIFY = HotStatement(
    update(t)
    .where(t.c.id == bindparam("which"))
    .values(
        new_raw_bytes=t.c.new_raw_bytes + bindparam("by_raw"),
        new_row_bytes=t.c.new_row_bytes + bindparam("by_rows"),
    )
)


# Whose an id is, is asked before all else, and takes as long for what another tenant has as for what nobody has
# (tests/http/test_timing.py): the last one up to that id is read, whether it is that one or not.
def _of(id_: Column[str], namespace_id: ColumnElement[int | None]) -> HotStatement:
    """The name of the namespace of the nearest id, and whether it is the id that was named."""
    named: BindParameter[str] = bindparam("named")
    nearest = (
        select(id_.label("id"), namespace_id.label("namespace_id"))
        .where(id_ <= named)
        .order_by(id_.desc())
        .limit(1)
        .subquery()
    )
    return HotStatement(
        select(t.c.name, nearest.c.id == named).where(t.c.id == nearest.c.namespace_id)
    )


_OF_STATE = _of(state.c.state_id, state.c.namespace_id)
_OF_LEASE = _of(
    lease.c.lease_id,
    func.coalesce(
        lease.c.namespace_id,
        select(state.c.namespace_id).where(state.c.state_id == lease.c.state_id).scalar_subquery(),
    ),
)


def several_tenants(connection: Connection) -> bool:
    """Whether a namespace belongs to another tenant than the default one."""
    return bool(_SEVERAL.scalar(connection))


def find(connection: Connection, name: str) -> NamespaceRow | None:
    """The namespace of that exact name."""
    row = _BY_NAME.first(connection, name=name)
    return None if row is None else NamespaceRow(*tuple(row))


def name_of_state(connection: Connection, state_id: str) -> str | None:
    """The name of the namespace that a state of any status is in."""
    return _held(_OF_STATE.first(connection, named=state_id))


def name_of_lease(connection: Connection, lease_id: str) -> str | None:
    """The name of the namespace that a lease is in, as long as that can be told."""
    return _held(_OF_LEASE.first(connection, named=lease_id))


def _held(row: tuple[str, int] | None) -> str | None:
    return row[0] if row is not None and row[1] else None


def by_id(connection: Connection, namespace_id: int) -> NamespaceRow:
    """The namespace of a row that refers to it."""
    return NamespaceRow(*tuple(_BY_ID.one(connection, id=namespace_id)))


def ensure(connection: Connection, name: str) -> NamespaceRow:
    """The namespace of that name, made now if it is new."""
    found = find(connection, name)
    if found is not None:
        return found
    _ADD.run(connection, name=name, of=split(name)[0], now=wall_ms())
    return NamespaceRow(*tuple(_BY_NAME.one(connection, name=name)))


def change(connection: Connection, namespace_id: int, values: dict[str, Any]) -> None:
    """Set identity, mode or limits; keys are column names."""
    connection.execute(update(t).where(t.c.id == namespace_id).values(**values))


def page(
    connection: Connection,
    after: str | None,
    limit: int,
    tenant: str | None,
    model: str | None = None,
) -> list[NamespaceRow]:
    """Namespaces of a tenant and a model (None: of all) by name, those behind `after`."""
    statement = select(*_COLUMNS).order_by(t.c.name).limit(limit)
    if tenant is not None:
        statement = statement.where(t.c.tenant == tenant)
    if model is not None:
        statement = statement.where(t.c.model == model)
    if after is not None:
        statement = statement.where(t.c.name > after)
    return [NamespaceRow(*tuple(row)) for row in connection.execute(statement)]


def rows_where(connection: Connection, wanted: Callable[[str], bool]) -> list[int]:
    """Rows of the namespaces whose held name is wanted. Looks at all of them."""
    return [row for row, name in connection.execute(select(t.c.id, t.c.name)) if wanted(name)]


def of_model(connection: Connection, model: str, besides: str, limit: int) -> list[NamespaceRow]:
    """Other registered namespaces of the model and the tenant that hold something, fullest first."""
    statement = (
        select(*_COLUMNS)
        .where(
            t.c.model == model,
            t.c.tenant == split(besides)[0],
            t.c.name != besides,
            t.c.entries > 0,
        )
        .order_by(t.c.entries.desc())
        .limit(limit)
    )
    return [NamespaceRow(*tuple(row)) for row in connection.execute(statement)]


def names(connection: Connection, tenant: str) -> list[tuple[int, str]]:
    """(row, held name) of a tenant's namespaces."""
    found = connection.execute(select(t.c.id, t.c.name).where(t.c.tenant == tenant))
    return [(row, name) for row, name in found]


def stored_bytes_of(connection: Connection, namespace_ids: Sequence[int]) -> int:
    """Stored bytes of these namespaces together, as each counts them."""
    total = select(func.coalesce(func.sum(t.c.stored_bytes), 0)).where(
        *within(t.c.id, namespace_ids)
    )
    return int(connection.execute(total).scalar_one())


def amplify(connection: Connection, namespace_id: int, raw_bytes: int, row_bytes: int) -> None:
    """Note what a recording has newly stored, and what its new rows amount to."""
    _AMPLIFY.run(connection, which=namespace_id, by_raw=raw_bytes, by_rows=row_bytes)


def count(
    connection: Connection,
    namespace_id: int,
    *,
    entries: int = 0,
    stored_bytes: int = 0,
    logical_bytes: int = 0,
) -> None:
    """Add to the counts."""
    _COUNT.run(
        connection,
        which=namespace_id,
        by_entries=entries,
        by_stored=stored_bytes,
        by_logical=logical_bytes,
    )
