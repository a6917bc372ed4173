"""Settings changed at run time, shared by all workers: key -> text."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert

from storage.metadata.schema import setting as t
from storage.metadata.statements import HotStatement

_READ = HotStatement(select(t.c.value).where(t.c.key == bindparam("key")))


def read(connection: Connection, key: str) -> str | None:
    """The value, or None where it was never changed."""
    row = _READ.first(connection, key=key)
    return None if row is None else str(row[0])


def write(connection: Connection, key: str, value: str | None) -> None:
    """Set it; None goes back to what the process was started with."""
    if value is None:
        connection.execute(delete(t).where(t.c.key == key))
        return
    statement = insert(t).values(key=key, value=value)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[t.c.key], set_={"value": value})
    )
