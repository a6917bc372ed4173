"""Recordings under way: who admitted them, what they have reserved, and when they end by themselves."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from storage.clock import wall_ms
from storage.metadata import namespaces, settings, states, tenants, totals
from storage.metadata.schema import namespace as namespace_table
from storage.metadata.schema import recording as t
from storage.metadata.schema import state
from storage.metadata.statements import HotStatement
from storage.rows import AdmissionFacts, NewRecording, RecordingRow, StateRow, TenantLimits
from storage.scoped import split

_UNLIMITED = TenantLimits()

_IN_FLIGHT = HotStatement(
    select(state.c.state_id).where(
        state.c.namespace_id == bindparam("namespace_id"),
        state.c.token_digest == bindparam("token_digest"),
        state.c.kind == bindparam("kind"),
        state.c.status == "recording",
    )
)
_ADD = HotStatement(
    insert(t).values(
        state=bindparam("of"),
        tokens=bindparam("tokens"),
        owner=bindparam("owner"),
        reserved_bytes=bindparam("reserved_bytes"),
        replace=bindparam("replaces"),
        ttl_ms=bindparam("ttl_ms"),
        deadline_boot_ms=bindparam("deadline"),
    )
)
_FIND = HotStatement(
    select(
        *states.COLUMNS,
        namespace_table.c.name,
        t.c.tokens,
        t.c.owner,
        t.c.reserved_bytes,
        t.c.replace,
        t.c.ttl_ms,
        t.c.deadline_boot_ms,
    )
    .select_from(t)
    .join(state, state.c.id == t.c.state)
    .join(namespace_table, namespace_table.c.id == state.c.namespace_id)
    .where(state.c.state_id == bindparam("state_id"), state.c.status == "recording")
)
_EXTEND = HotStatement(
    update(t)
    .where(t.c.state == bindparam("of"))
    .values(deadline_boot_ms=bindparam("now") + t.c.ttl_ms)
)
_FINISH = HotStatement(delete(t).where(t.c.state == bindparam("of")))


def facts(connection: Connection, new: NewRecording) -> AdmissionFacts:
    """What admission must know, read under the write lock."""
    row = namespaces.find(connection, new.namespace)
    held = in_flight = None
    if row is not None:
        held = states.held(connection, row.id, new.token_digest, new.kind)
        in_flight = _IN_FLIGHT.scalar(
            connection, namespace_id=row.id, token_digest=new.token_digest, kind=new.kind
        )
    of = split(new.namespace)[0]
    limits = tenants.limits(connection, of)
    return AdmissionFacts(
        namespace=row,
        store_mode=settings.read(connection, "mode"),
        held_state_id=None if held is None else held.state_id,
        in_flight_state_id=in_flight,
        usage=totals.usage(connection),
        tenant_limits=limits,
        tenant_usage=None if limits == _UNLIMITED else tenants.usage(connection, of),
    )


def admit(connection: Connection, new: NewRecording, owner: str, now_boot_ms: int) -> int:
    """Open the recording; returns its namespace's row."""
    row = namespaces.ensure(connection, new.namespace)
    now = wall_ms()
    state_row = states.add(
        connection,
        {
            "state_id": new.state_id,
            "namespace_id": row.id,
            "page_id": new.page_id,
            "kind": new.kind,
            "status": "recording",
            "token_count": len(new.tokens) // 4,
            "token_digest": new.token_digest,
            "kv_descriptor": new.kv_descriptor,
            "logical_bytes": new.logical_bytes,
            "overhead_bytes": new.overhead_bytes,
            "created_at_ms": now,
            "touched_at_ms": now,
            "hits": 0,
        },
        new.components,
    )
    _ADD.run(
        connection,
        of=state_row,
        tokens=new.tokens,
        owner=owner,
        reserved_bytes=new.logical_bytes,
        replaces=int(new.replace),
        ttl_ms=new.ttl_ms,
        deadline=now_boot_ms + new.ttl_ms,
    )
    states.charge(connection, row.id, new.overhead_bytes)
    return row.id


def find(connection: Connection, state_id: str) -> RecordingRow | None:
    """The recording of that name, while it is under way."""
    row = _FIND.first(connection, state_id=state_id)
    if row is None:
        return None
    width = len(states.COLUMNS)
    state_row = StateRow(*row[:width])
    name, tokens, owner, reserved, replace, ttl_ms, deadline = row[width:]
    return RecordingRow(
        state=state_row,
        namespace=name,
        tokens=tokens,
        owner=owner,
        reserved_bytes=reserved,
        replace=bool(replace),
        ttl_ms=ttl_ms,
        deadline_boot_ms=deadline,
        components=states.components(connection, state_row.id),
    )


def under_way(
    connection: Connection, namespace_id: int, most_tokens: int, limit: int
) -> list[StateRow]:
    """Recordings of a namespace with prefixes of at most `most_tokens`, longest first."""
    statement = (
        select(*states.COLUMNS)
        .where(
            state.c.namespace_id == namespace_id,
            state.c.status == "recording",
            state.c.token_count <= most_tokens,
        )
        .order_by(state.c.token_count.desc(), state.c.id.desc())
        .limit(limit)
    )
    return [StateRow(*tuple(row)) for row in connection.execute(statement)]


def extend(connection: Connection, state_row: int, now_boot_ms: int) -> None:
    """Something arrived: the recording's time begins anew."""
    _EXTEND.run(connection, of=state_row, now=now_boot_ms)


def finish(connection: Connection, state_row: int) -> None:
    """The state is no recording any more."""
    _FINISH.run(connection, of=state_row)


def due(
    connection: Connection, now_boot_ms: int, dead_owners: list[str], limit: int
) -> list[StateRow]:
    """Recordings past their deadline, or whose owner is gone."""
    statement = (
        select(*states.COLUMNS)
        .join(t, t.c.state == state.c.id)
        .where(
            state.c.status == "recording",
            or_(t.c.deadline_boot_ms <= now_boot_ms, t.c.owner.in_(dead_owners)),
        )
        .limit(limit)
    )
    return [StateRow(*tuple(row)) for row in connection.execute(statement)]


def owners(connection: Connection) -> list[str]:
    """Instances that have admitted something still under way."""
    return list(connection.execute(select(func.distinct(t.c.owner))).scalars())


def restart(connection: Connection, now_boot_ms: int) -> None:
    """After a reboot the clock began anew: every recording gets its full time once more."""
    connection.execute(update(t).values(deadline_boot_ms=now_boot_ms + t.c.ttl_ms))
