"""What a start does before the store may be used, and what may follow in the background.

Under the start lock, in this order; each step may be cut off by a crash and done again:

0. Copies that a compaction or a restore was cut off with are removed (`storage/compact.py`,
   `storage/backups/restoring.py`).
1. A new boot began the deadline clock anew: leases and recordings get their full time once more.
2. After an unclean stop the write-ahead log is copied into the database.
3. Recordings whose owner is gone are dropped (`recover.before_expire` ... `recover.after_expire`), for
   as long as a start may wait; the housekeeper drops the rest. What is not dropped yet is as it was
   before: no lookup sees it, and its reservation and blocks count against the limits.
4. The commit counters are compared. The block store is told of every acknowledged commit after the
   fact, so a database that is behind it has lost commits it had acknowledged (a damaged WAL ends at
   its first bad frame without an error). Then every live state's blocks are looked for, and states
   that lack one are quarantined, before anything is served.

After an unclean stop the key space is swept in the background for values without a row.

Cost: nothing here grows with what is held, except that lost commits make every block be looked at.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import select, update

from storage.blocks.store import BlockRef, Held
from storage.clock import boot_id, boot_ms
from storage.failpoints import failpoint
from storage.faults import put_aside
from storage.layout import DataFolder
from storage.metadata import leases, recordings
from storage.metadata import schema as t
from storage.rows import Evidence
from storage.store import Store

_EXPIRY_SECONDS: Final = 0.5


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
    remove_copies(store.folder)
    with store.db.read() as connection:
        was_clean = bool(connection.execute(select(t.store.c.clean)).scalar_one())
        stored_boot = connection.execute(select(t.store.c.boot_id)).scalar_one()
    with store.db.write(durable=True) as connection:
        if alone and stored_boot != boot_id():
            leases.restart(connection, boot_ms())
            recordings.restart(connection, boot_ms())
        connection.execute(update(t.store).values(clean=0, boot_id=boot_id()))
    if not was_clean:
        # Frames of the log may be in the kernel's cache only, if a sync of them failed; a copy of what they
        # say is written, and synced, before a commit relies on them.
        store.db.checkpoint()
    failpoint("recover.before_expire")
    expired, until = 0, time.monotonic() + _EXPIRY_SECONDS
    while time.monotonic() < until and (step := store.expire_recordings(limit=8)):
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
    put_aside(store.folder)


def copy_place(path: Path) -> Path:
    """The folder beside a file in which a compaction makes its copy."""
    return path.with_name(path.name + ".compact")


def remove_copies(folder: DataFolder) -> None:
    """Remove what a compaction or a restore that was cut off left. Call under `DataFolder.starting()`."""
    for path in (folder.database, *folder.blocks.glob("*/data.mdb")):
        shutil.rmtree(copy_place(path), ignore_errors=True)
    shutil.rmtree(folder.restoring, ignore_errors=True)


def _quarantine_incomplete(store: Store) -> int:
    quarantined, after = 0, None
    while page := store.catalog.states(limit=256, after=after, status="live"):
        for row, _ in page:
            components, blocks = store.catalog.contents(row.id)
            names = {component.ordinal: component.name for component in components}
            held = store.blocks.held([BlockRef(b.digest, b.raw_bytes) for b in blocks])
            for block, at in zip(blocks, held, strict=True):
                if at is not Held.INTACT:
                    evidence = Evidence(
                        "block_missing" if at is Held.ABSENT else "block_damaged",
                        "found while recovering from lost commits",
                        "service",
                        names.get(block.ordinal),
                        block.seq,
                        block.digest,
                    )
                    quarantined += store.quarantine(row.state_id, evidence)
                    break
        after = page[-1][0].state_id
    return quarantined
