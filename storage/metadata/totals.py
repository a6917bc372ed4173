"""The one row of totals: bytes, entries and the commit counter. Moved in the transactions that cause it."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, select, update

from storage.metadata.schema import recording, store
from storage.metadata.statements import HotStatement
from storage.rows import Usage

_TOTALS = HotStatement(select(store.c.stored_bytes, store.c.entries, store.c.commit_counter))
_RESERVED = HotStatement(
    select(func.count(), func.coalesce(func.sum(recording.c.reserved_bytes), 0)).select_from(
        recording
    )
)
_ADD = HotStatement(
    update(store).values(
        stored_bytes=store.c.stored_bytes + bindparam("by_stored"),
        entries=store.c.entries + bindparam("by_entries"),
    )
)
_NEXT_COMMIT = HotStatement(
    update(store)
    .values(commit_counter=store.c.commit_counter + 1)
    .returning(store.c.commit_counter)
)


def usage(connection: Connection) -> Usage:
    """Stored bytes, live entries, and what recordings under way have reserved (raw bytes)."""
    totals = _TOTALS.one(connection)
    recordings = _RESERVED.one(connection)
    return Usage(totals[0], totals[1], recordings[0], recordings[1])


def stored_bytes(connection: Connection) -> int:
    """Stored bytes with all overhead."""
    return int(_TOTALS.one(connection)[0])


def entries(connection: Connection) -> int:
    """Live states."""
    return int(_TOTALS.one(connection)[1])


def add(connection: Connection, *, stored_bytes: int = 0, entries: int = 0) -> None:
    """Move the totals."""
    _ADD.run(connection, by_stored=stored_bytes, by_entries=entries)


def next_commit(connection: Connection) -> int:
    """Count this commit; the number is compared with the block store's at the next start."""
    return int(_NEXT_COMMIT.scalar(connection))


def commit_counter(connection: Connection) -> int:
    """The number of the last counted commit."""
    return int(_TOTALS.one(connection)[2])
