"""What a start does before the store may be used, and what may follow in the background.

Under the start lock, in this order; each step may be cut off by a crash and done again:

1. A new boot began the deadline clock anew: leases and recordings get their full time once more.
2. Recordings whose owner is gone are dropped (`recover.before_expire` ... `recover.after_expire`).
3. The commit counters are compared. The block store is told of every acknowledged commit after the
   fact, so a database that is behind it has lost commits it had acknowledged (a damaged WAL ends at
   its first bad frame without an error). Then every live state's blocks are looked for, and states
   that lack one are quarantined, before anything is served.

After an unclean stop the key space is swept in the background for values without a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, update

from storage.blocks.store import BlockRef, Held
from storage.clock import boot_id, boot_ms
from storage.failpoints import failpoint
from storage.metadata import leases, recordings
from storage.metadata import schema as t
from storage.rows import Evidence
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a start found."""

    alone: bool
    was_clean: bool
    expired_recordings: int
    lost_commits: int
    quarantined: int

    @property
    def needs_sweep(self) -> bool:
        """Whether values without rows are possible."""
        return self.alone and not self.was_clean


def recover(store: Store) -> Recovery:
    """Make the store fit for use. Call under `DataFolder.starting()`."""
    alone = not store.instance.others_alive()
    with store.db.read() as connection:
        was_clean = bool(connection.execute(select(t.store.c.clean)).scalar_one())
        stored_boot = connection.execute(select(t.store.c.boot_id)).scalar_one()
    with store.db.write(durable=True) as connection:
        if alone and stored_boot != boot_id():
            leases.restart(connection, boot_ms())
            recordings.restart(connection, boot_ms())
        connection.execute(update(t.store).values(clean=0, boot_id=boot_id()))
    failpoint("recover.before_expire")
    expired = 0
    while step := store.expire_recordings():
        expired += step
    failpoint("recover.after_expire")
    lost = store.blocks.acked_commit() - store.catalog.commit_counter()
    quarantined = 0
    if lost > 0:
        quarantined = _quarantine_incomplete(store)
        with store.db.write(durable=True) as connection:
            connection.execute(
                update(t.store).values(commit_counter=t.store.c.commit_counter + lost)
            )
    return Recovery(alone, was_clean, expired, max(lost, 0), quarantined)


def mark_clean(store: Store) -> None:
    """The last process to leave: everything is flushed, nothing needs a sweep at the next start."""
    if store.instance.others_alive():
        return
    store.blocks.barrier()
    store.note_commit()
    with store.db.write(durable=True) as connection:
        connection.execute(update(t.store).values(clean=1))
    store.db.checkpoint()


def _quarantine_incomplete(store: Store) -> int:
    quarantined, after = 0, None
    while page := store.catalog.states(limit=256, after=after, status="live"):
        for row, _ in page:
            _, blocks = store.catalog.contents(row.id)
            held = store.blocks.held([BlockRef(b.digest, b.raw_bytes) for b in blocks])
            for block, at in zip(blocks, held, strict=True):
                if at is not Held.INTACT:
                    evidence = Evidence(
                        "block_missing" if at is Held.ABSENT else "block_damaged",
                        "found while recovering from lost commits",
                        "service",
                        seq=block.seq,
                        expected_digest=block.digest,
                    )
                    quarantined += store.quarantine(row.state_id, evidence)
                    break
        after = page[-1][0].state_id
    return quarantined
