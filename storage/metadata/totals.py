"""The one row of totals: bytes, entries and the commit counter. Moved in the transactions that cause it."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, update

from storage.metadata.schema import recording, store
from storage.rows import Usage


def usage(connection: Connection) -> Usage:
    """Stored bytes, live entries, and what recordings under way have reserved (raw bytes)."""
    stored_bytes, entries = connection.execute(select(store.c.stored_bytes, store.c.entries)).one()
    recordings, reserved = connection.execute(
        select(func.count(), func.coalesce(func.sum(recording.c.reserved_bytes), 0))
    ).one()
    return Usage(stored_bytes, entries, recordings, reserved)


def stored_bytes(connection: Connection) -> int:
    """Stored bytes with all overhead."""
    return int(connection.execute(select(store.c.stored_bytes)).scalar_one())


def add(connection: Connection, *, stored_bytes: int = 0, entries: int = 0) -> None:
    """Move the totals."""
    connection.execute(
        update(store).values(
            stored_bytes=store.c.stored_bytes + stored_bytes, entries=store.c.entries + entries
        )
    )


def next_commit(connection: Connection) -> int:
    """Count this commit; the number is compared with the block store's at the next start."""
    return int(
        connection.execute(
            update(store)
            .values(commit_counter=store.c.commit_counter + 1)
            .returning(store.c.commit_counter)
        ).scalar_one()
    )


def commit_counter(connection: Connection) -> int:
    """The number of the last counted commit."""
    return int(connection.execute(select(store.c.commit_counter)).scalar_one())
