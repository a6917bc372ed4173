"""What is taken out of a database's copy before it is a backup: everything that belonged to a process.

Recordings under way, with the blocks that they alone own; leases; rows of unowned blocks; jobs that ran. What
stays are states in service and in quarantine, and all that operators have set.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select, update

from storage.errors import StoreUnusable
from storage.integrity import of_metadata
from storage.metadata import evidence, jobs, ownership, states
from storage.metadata import schema as t
from storage.metadata.database import Database
from storage.rows import Evidence, StateRow

_FORGET_AT_ONCE = 1024


def tidy(copy: Database) -> None:
    """Put the copy in order as after a clean stop.

    Raises:
        StoreUnusable: the figures of the database do not agree, so that a restore would refuse it.
        StoreDamaged: as `ownership.forget_unowned`.
    """
    with copy.write(durable=False) as connection:
        recording = select(*states.COLUMNS).where(t.state.c.status == "recording")
        for row in connection.execute(recording).all():
            states.drop(connection, StateRow(*tuple(row)), cause=None)
        connection.execute(delete(t.recording))
        connection.execute(delete(t.lease))
        jobs.interrupt(connection, jobs.owners(connection))
        while ownership.forget_unowned(connection, _FORGET_AT_ONCE):
            pass
        connection.execute(update(t.store).values(clean=1))
        findings = of_metadata(connection)
    if findings:
        raise StoreUnusable(f"the database does not agree with itself: {findings[0]}")


def quarantine_owners(copy: Database, digests: Sequence[bytes]) -> int:
    """Take the live states out of service that own one of these blocks. Returns how many."""
    taken = 0
    with copy.write(durable=False) as connection:
        for digest in digests:
            for row, ordinal, seq in states.live_owners(connection, digest):
                states.to_quarantine(connection, row)
                reason = "a block was damaged or missing when the backup was made"
                parts = states.components(connection, row.id)
                name = next((part.name for part in parts if part.ordinal == ordinal), None)
                why = Evidence("block_damaged", reason, "service", name, seq, digest)
                evidence.add(connection, row.id, why)
                taken += 1
    return taken
