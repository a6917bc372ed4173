"""Namespaces: found by name, made on first use, described by an identity document, limited."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from storage.clock import wall_ms
from storage.metadata.schema import namespace as t
from storage.metadata.schema import setting
from storage.metadata.statements import HotStatement
from storage.rows import NamespaceRow

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
        entries=0,
        stored_bytes=0,
        logical_bytes=0,
        created_at_ms=bindparam("now"),
    )
)
_COUNT = HotStatement(
    update(t)
    .where(t.c.id == bindparam("which"))
    .values(
        entries=t.c.entries + bindparam("by_entries"),
        stored_bytes=t.c.stored_bytes + bindparam("by_stored"),
        logical_bytes=t.c.logical_bytes + bindparam("by_logical"),
    )
)


def find(connection: Connection, name: str) -> NamespaceRow | None:
    """The namespace of that exact name."""
    row = _BY_NAME.first(connection, name=name)
    return None if row is None else NamespaceRow(*tuple(row))


def by_id(connection: Connection, namespace_id: int) -> NamespaceRow:
    """The namespace of a row that refers to it."""
    row = _BY_ID.first(connection, id=namespace_id)
    assert row is not None, "foreign keys keep a namespace while anything refers to it"
    return NamespaceRow(*tuple(row))


def ensure(connection: Connection, name: str) -> NamespaceRow:
    """The namespace of that name, made now if it is new."""
    found = find(connection, name)
    if found is not None:
        return found
    _ADD.run(connection, name=name, now=wall_ms())
    made = find(connection, name)
    assert made is not None
    return made


def change(connection: Connection, namespace_id: int, values: dict[str, Any]) -> None:
    """Set identity, mode or limits; keys are column names."""
    connection.execute(update(t).where(t.c.id == namespace_id).values(**values))


def page(connection: Connection, after: str | None, limit: int) -> list[NamespaceRow]:
    """Namespaces by name, those behind `after`."""
    statement = select(*_COLUMNS).order_by(t.c.name).limit(limit)
    if after is not None:
        statement = statement.where(t.c.name > after)
    return [NamespaceRow(*tuple(row)) for row in connection.execute(statement)]


def of_model(connection: Connection, model: str, besides: str, limit: int) -> list[NamespaceRow]:
    """Other registered namespaces of the same model that hold something, fullest first."""
    statement = (
        select(*_COLUMNS)
        .where(t.c.model == model, t.c.name != besides, t.c.entries > 0)
        .order_by(t.c.entries.desc())
        .limit(limit)
    )
    return [NamespaceRow(*tuple(row)) for row in connection.execute(statement)]


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
