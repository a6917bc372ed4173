"""Tenants: their limits, and what their namespaces hold together.

A tenant needs no row to exist: one without limits has none. Its usage is the sum over its namespaces
(an index walk over as many rows as it has namespaces), so it cannot drift from theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.dialects.sqlite import insert

from storage.clock import wall_ms
from storage.metadata.schema import namespace, recording, state
from storage.metadata.schema import tenant as t
from storage.metadata.statements import HotStatement
from storage.rows import TenantLimits, TenantUsage

_LIMITS = (
    t.c.max_stored_bytes,
    t.c.max_logical_bytes,
    t.c.max_entries,
    t.c.max_in_flight_records,
    t.c.max_requests_per_second,
    t.c.max_bytes_per_second,
)
_FIND = HotStatement(select(*_LIMITS).where(t.c.name == bindparam("name")))
_USAGE = HotStatement(
    select(
        func.count(),
        func.coalesce(func.sum(namespace.c.entries), 0),
        func.coalesce(func.sum(namespace.c.stored_bytes), 0),
        func.coalesce(func.sum(namespace.c.logical_bytes), 0),
    ).where(namespace.c.tenant == bindparam("name"))
)
_IN_FLIGHT = HotStatement(
    select(func.count(), func.coalesce(func.sum(recording.c.reserved_bytes), 0))
    .select_from(recording)
    .join(state, state.c.id == recording.c.state)
    .join(namespace, namespace.c.id == state.c.namespace_id)
    .where(namespace.c.tenant == bindparam("name"))
)


def limits(connection: Connection, name: str) -> TenantLimits:
    """The limits of a tenant; without a row it has none."""
    row = _FIND.first(connection, name=name)
    return TenantLimits() if row is None else TenantLimits(*row)


def usage(connection: Connection, name: str) -> TenantUsage:
    """What its namespaces hold and its recordings have promised."""
    held = _USAGE.one(connection, name=name)
    promised = _IN_FLIGHT.one(connection, name=name)
    return TenantUsage(*held, *promised)


def set_limits(connection: Connection, name: str, values: Mapping[str, int | None]) -> None:
    """Change some limits (column name -> value, None: no limit); makes the tenant's row."""
    statement = insert(t).values(name=name, created_at_ms=wall_ms(), **values)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[t.c.name], set_=dict(values))
        if values
        else statement.on_conflict_do_nothing()
    )


def names(connection: Connection) -> list[str]:
    """Every tenant that has a row or a namespace, in order."""
    rows = connection.execute(select(t.c.name).union(select(namespace.c.tenant)).order_by("name"))
    return [row[0] for row in rows]
