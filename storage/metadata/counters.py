"""Counters that add up over workers and restarts: (name, label) -> count. Flushed in batches."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert

from storage.metadata.schema import counter as t
from storage.metadata.statements import text


def add(connection: Connection, deltas: Mapping[tuple[str, str], int]) -> None:
    """Add each delta to its counter."""
    statement = insert(t)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[t.c.name, t.c.label],
            set_={"value": t.c.value + statement.excluded.value},
        ),
        [{"name": name, "label": label, "value": value} for (name, label), value in deltas.items()],
    )


def read(connection: Connection) -> dict[tuple[str, str], int]:
    """All counters."""
    rows = connection.execute(select(t.c.name, t.c.label, t.c.value).order_by(t.c.name, t.c.label))
    return {(text(row.name), text(row.label)): int(row.value) for row in rows}
