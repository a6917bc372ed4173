"""Evidence: why states are out of service, and what later verifications found. One row a quarantined state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, literal, select, tuple_, update

from storage.clock import wall_ms
from storage.metadata.schema import namespace as namespace_table
from storage.metadata.schema import quarantine as t
from storage.metadata.schema import state
from storage.metadata.statements import HotStatement
from storage.metadata.states import COLUMNS as STATE_COLUMNS
from storage.rows import Evidence, StateRow

_COLUMNS = (
    t.c.failure_class,
    t.c.reason,
    t.c.reported_by,
    t.c.component,
    t.c.seq,
    t.c.expected_digest,
    t.c.actual_digest,
    t.c.lease_id,
    t.c.at_ms,
    t.c.client,
    t.c.verified_at_ms,
    t.c.intact,
)
_OF_STATE = HotStatement(select(*_COLUMNS).where(t.c.state == bindparam("which")))


def of_state(connection: Connection, row: int) -> Evidence | None:
    """Why that state is out of service; None if it is not."""
    found = _OF_STATE.first(connection, which=row)
    return None if found is None else _evidence(found)


def add(connection: Connection, row: int, evidence: Evidence) -> None:
    """A state goes out of service now."""
    connection.execute(
        insert(t).values(
            state=row,
            failure_class=evidence.failure_class,
            reason=evidence.reason,
            reported_by=evidence.reported_by,
            component=evidence.component,
            seq=evidence.seq,
            expected_digest=evidence.expected_digest,
            actual_digest=evidence.actual_digest,
            lease_id=evidence.lease_id,
            client=evidence.client,
            at_ms=evidence.at_ms or wall_ms(),
        )
    )


def verified(connection: Connection, row: int, found: Evidence | None) -> None:
    """A quarantined state was verified again: `found` is what failed, None if nothing did.

    Where it fails and how is that of now. Who took it out of service, when and under which lease stays,
    and so do the words of a client or an operator.
    """
    values: dict[str, object] = {"verified_at_ms": wall_ms(), "intact": int(found is None)}
    if found is not None:
        before = of_state(connection, row)
        values |= {
            "failure_class": found.failure_class,
            "component": found.component,
            "seq": found.seq,
            "expected_digest": found.expected_digest,
            "actual_digest": found.actual_digest,
        }
        if before is not None and before.reported_by == "service":
            values["reason"] = found.reason
    connection.execute(update(t).where(t.c.state == row).values(**values))


def page(
    connection: Connection,
    *,
    limit: int,
    after: tuple[int, str] | None,
    namespaces: Sequence[int] | None,
    failure_class: str | None,
) -> list[tuple[StateRow, str, Evidence]]:
    """Quarantined states with their namespace's held name and evidence, those found last first.

    Args:
        after: (at_ms, state id) of the last one before this page.
        namespaces: rows of the only ones that count, None for all.
    """
    statement = (
        select(*STATE_COLUMNS, namespace_table.c.name, *_COLUMNS)
        .select_from(t)
        .join(state, state.c.id == t.c.state)
        .join(namespace_table, namespace_table.c.id == state.c.namespace_id)
        .order_by(t.c.at_ms.desc(), state.c.state_id.desc())
        .limit(limit)
    )
    if namespaces is not None:
        wanted = func.json_each(json.dumps(list(namespaces))).table_valued("value")
        # "+ 0" keeps SQLite on the way along the evidence: a namespace's states are many more.
        statement = statement.where((state.c.namespace_id + 0).in_(select(wanted.c.value)))
    if failure_class is not None:
        statement = statement.where(t.c.failure_class == failure_class)
    if after is not None:
        statement = statement.where(
            t.c.at_ms <= after[0],
            tuple_(t.c.at_ms, state.c.state_id) < tuple_(literal(after[0]), literal(after[1])),
        )
    width = len(STATE_COLUMNS)
    return [
        (StateRow(*row[:width]), row[width], _evidence(row[width + 1 :]))
        for row in connection.execute(statement)
    ]


def _evidence(row: Sequence[Any]) -> Evidence:
    found = Evidence(*row)
    return found if found.intact is None else replace(found, intact=bool(found.intact))
