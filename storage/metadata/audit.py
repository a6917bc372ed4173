"""The audit log: what was changed by whom. Rows are added, and the oldest go when there are too many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select

from storage.metadata.schema import audit as t
from storage.rows import AuditRow

MOST_ROWS: Final = 100_000


def add(connection: Connection, values: Mapping[str, Any]) -> None:
    """One entry; keys are column names."""
    connection.execute(insert(t).values(**values))
    newest = connection.execute(select(func.max(t.c.id))).scalar_one()
    connection.execute(delete(t).where(t.c.id <= newest - MOST_ROWS))


def page(
    connection: Connection, before: int | None, limit: int, action: str | None
) -> list[AuditRow]:
    """Entries older than the one of that id, newest first."""
    statement = select(
        t.c.id, t.c.at_ms, t.c.actor, t.c.action, t.c.target, t.c.outcome, t.c.details
    ).order_by(t.c.id.desc())
    if before is not None:
        statement = statement.where(t.c.id < before)
    if action is not None:
        statement = statement.where(t.c.action == action)
    return [AuditRow(*row) for row in connection.execute(statement.limit(limit))]
