"""The front door of what lasts, and the one order that joins the two stores.

Recording (each line is a commit; the crash points between them are named in `failpoints.POINTS`):

 1. `admit`      SQL, NORMAL. A `recording` row. Crash: the row's owner is dead; recovery drops it.
 2. `own`        SQL, NORMAL. The recording owns the next blocks, whether they are there or not.
                 Crash: rows whose values may be missing, owned by a recording that recovery drops.
 3. `put`        LMDB. Only what is absent or damaged is written. From step 2 on no reclaimer can
                 take any of these blocks, so looking needs no lock. Crash: owned by the same
                 recording. Power loss that keeps this and loses step 2 leaves keys without rows:
                 `sweep` removes them.
 4. `component`  SQL, NORMAL. The component is whole. Crash: as after step 2.
 5. `publish`    LMDB barrier (every value durable), then SQL, FULL: manifest, node, `live`.
                 Crash before the commit: dropped by recovery. After: the state is whole and durable,
                 whether or not the answer got out.

Removal is the other way round:

 6. `evict`      SQL, FULL. State, node and ownership go; blocks without owner have refs = 0.
                 FULL, because step 7 frees pages that a state brought back by power loss would need.
                 Crash: the blocks wait with refs = 0.
 7. `reclaim`    SQL write lock held: rows of unowned blocks are removed, what they name is deleted in
                 LMDB and committed, then the removal of the rows. Crash in between: rows with
                 refs = 0 whose values are absent. Whoever owns such a block next finds it absent in
                 step 3 and writes it; else it is reclaimed again.

`drop` (abort, expiry) is step 6 for recordings and may be NORMAL: what it removes was never visible.
Policy is not made here: limits come in as values, refusals are decided by the caller's function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import Connection

from storage.blocks.codec import EncodedBlock, footprint_bytes
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.catalog import Catalog
from storage.clock import boot_ms, wall_ms
from storage.errors import Conflict, NotHeld, OverLimit, StorageError
from storage.failpoints import failpoint
from storage.layout import DataFolder, Instance
from storage.ledger import Ledger
from storage.metadata import (
    evidence,
    namespaces,
    ownership,
    pins,
    recordings,
    states,
    tombstones,
    totals,
)
from storage.metadata.database import Database
from storage.rows import (
    AdmissionFacts,
    Arrival,
    DropResult,
    Evidence,
    Limits,
    NewRecording,
    OwnedBlock,
    PinRow,
    RecordingRow,
    StateRow,
    Written,
)

_RECLAIM_BATCH = 256
_NEEDED_TO_DELETE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Publication:
    """A recording to be made live; `manifest_digest` seals what is really recorded."""

    state_id: str
    manifest_digest: Callable[[RecordingRow, Sequence[OwnedBlock]], bytes]
    limits: Limits


class Store:
    """One process's hold on a data folder. Thread-safe; opened after fork, never before."""

    def __init__(self, folder: DataFolder, *, tombstones_kept: int = 8192) -> None:
        self.folder = folder
        self.instance = Instance(folder)
        self.db = Database(folder.database)
        self.blocks = LmdbBlocks(folder.blocks)
        self.catalog = Catalog(self.db)
        self.ledger = Ledger(self.db)
        self._tombstones_kept = tombstones_kept
        with self.db.read() as connection:
            self._acked_commit = totals.commit_counter(connection)

    @property
    def generation(self) -> int:
        """The last commit this process has seen; stamped on the values it writes, for forensics."""
        return self._acked_commit

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed, so that this process writes nothing any more."""
        return self.db.failed or self.blocks.failed

    # ---- recording -------------------------------------------------------------------------

    def admit(
        self,
        new: NewRecording,
        decide: Callable[[AdmissionFacts], Limits | None],
        wait_ms: int,
    ) -> AdmissionFacts:
        """Ask `decide` under the write lock; open the recording if it names limits.

        Args:
            decide: gets what is known at this moment; None means "do not record".
            wait_ms: how long to wait for the write lock.

        Raises:
            Busy: the lock was not free in time.
            OverLimit: not even the metadata fits; nothing was written.
        """
        with self.db.write(durable=False, wait_ms=wait_ms) as connection:
            facts = recordings.facts(connection, new)
            limits = decide(facts)
            if limits is not None:
                namespace_id = recordings.admit(connection, new, self.instance.name, boot_ms())
                ownership.check_room(connection, namespace_id, limits)
                failpoint("admit.before_commit")
        if limits is not None:
            failpoint("admit.after_commit")
        return facts

    def begin_component(
        self, state_id: str, name: str, attempt: str, *, keep: bool = False
    ) -> RecordingRow:
        """Reserve a component for one upload; what an upload that died had left is released.

        Args:
            keep: go on with what it owns already.

        Raises:
            NotHeld: the recording is gone.
            Conflict: the component is whole, or another upload of it is under way.
        """
        others = self.instance.others_alive()
        with self.db.write(durable=False) as connection:
            recording = self._recording(connection, state_id)
            component = next(c for c in recording.components if c.name == name)
            if component.digest is not None:
                raise Conflict("the component has arrived")
            if component.upload is not None:
                owner = component.upload.partition("/")[0]
                if owner in others or owner == self.instance.name:
                    raise Conflict("the component is being uploaded")
            row = recording.state
            if not keep:
                ownership.release(
                    connection,
                    state=row.id,
                    namespace_id=row.namespace_id,
                    ordinal=component.ordinal,
                )
            states.await_component(
                connection, row.id, component.ordinal, f"{self.instance.name}/{attempt}"
            )
            recordings.extend(connection, row.id, boot_ms())
            return recording

    def own(
        self,
        recording: StateRow,
        ordinal: int,
        seqs: Sequence[int],
        blocks: Sequence[EncodedBlock],
        limits: Limits,
    ) -> None:
        """Step 2: own blocks of a component.

        Raises:
            NotHeld: the recording was aborted or expired.
            OverLimit: make room first; nothing was written.
        """
        with self.db.write(durable=False) as connection:
            row = self._open_recording(connection, recording.state_id)
            new_raw_bytes = ownership.own(
                connection,
                state=row.id,
                namespace_id=row.namespace_id,
                ordinal=ordinal,
                seqs=seqs,
                blocks=[(b.digest, b.raw_bytes, footprint_bytes(b.value_bytes)) for b in blocks],
                limits=limits,
            )
            states.add_new_bytes(connection, row.id, ordinal, new_raw_bytes)
            recordings.extend(connection, row.id, boot_ms())
            failpoint("own.before_commit")
        failpoint("own.after_commit")

    def own_shown(
        self,
        recording: StateRow,
        ordinal: int,
        blocks: Sequence[tuple[int, BlockRef]],
        limits: Limits,
    ) -> set[int]:
        """Step 2 without the bytes: own what the tenant has brought before and is intact.

        Owned first and looked at then, like in step 3: what is found intact cannot be reclaimed any
        more. What is not there, or damaged, is given up again.

        Args:
            blocks: places in the component with the block that belongs there.

        Returns:
            The places that need nothing more. Crash: as after step 2.

        Raises:
            NotHeld, OverLimit: as `own`.
        """
        with self.db.write(durable=False) as connection:
            row = self._open_recording(connection, recording.state_id)
            tenant = namespaces.by_id(connection, row.namespace_id).tenant
            known = ownership.shown(connection, tenant, list({ref.digest for _, ref in blocks}))
            mine = [
                (seq, ref)
                for seq, ref in blocks
                if known.get(ref.digest, (None,))[0] == ref.raw_bytes
            ]
            ownership.own(
                connection,
                state=row.id,
                namespace_id=row.namespace_id,
                ordinal=ordinal,
                seqs=[seq for seq, _ in mine],
                blocks=[(ref.digest, *known[ref.digest]) for _, ref in mine],
                limits=limits,
            )
            recordings.extend(connection, row.id, boot_ms())
            failpoint("shown.before_commit")
        failpoint("shown.after_commit")
        held = self.blocks.held([ref for _, ref in mine])
        absent = [seq for (seq, _), at in zip(mine, held, strict=True) if at is not Held.INTACT]
        if absent:
            with self.db.write(durable=False) as connection:
                row = self._open_recording(connection, recording.state_id)
                ownership.disown(
                    connection,
                    state=row.id,
                    namespace_id=row.namespace_id,
                    ordinal=ordinal,
                    seqs=absent,
                )
        return {seq for seq, _ in mine} - set(absent)

    def put(self, blocks: Sequence[EncodedBlock]) -> Written:
        """Step 3: write what is absent, damaged or to be written anew."""
        unique = list({block.digest: block for block in blocks}.values())
        held = self.blocks.held([BlockRef(b.digest, b.raw_bytes) for b in unique])
        missing = [b for b, at in zip(unique, held, strict=True) if at is not Held.INTACT or b.anew]
        if missing:
            self.blocks.put(missing, self._acked_commit)
        return Written(
            len(missing),
            sum(block.raw_bytes for block in missing),
            sum(len(block.value) for block in missing),
        )

    def finish_component(self, recording: StateRow, ordinal: int, arrival: Arrival) -> None:
        """Step 4: the component is whole.

        Raises:
            NotHeld: the recording was aborted or expired.
        """
        with self.db.write(durable=False) as connection:
            row = self._open_recording(connection, recording.state_id)
            states.finish_component(connection, row, ordinal, arrival)
            recordings.extend(connection, row.id, boot_ms())
            failpoint("component.before_commit")
        failpoint("component.after_commit")

    def pause_component(self, recording: StateRow, ordinal: int) -> None:
        """The upload of a component rests; what it owns stays with the recording.

        Raises:
            NotHeld: the recording was aborted or expired.
        """
        with self.db.write(durable=False) as connection:
            row = self._open_recording(connection, recording.state_id)
            states.await_component(connection, row.id, ordinal, None)
            recordings.extend(connection, row.id, boot_ms())

    def forget_component(self, recording: StateRow, ordinal: int) -> None:
        """An upload broke off: give up what it had brought, keep the recording open."""
        with self.db.write(durable=False) as connection:
            row = states.by_state_id(connection, recording.state_id)
            if row is not None and row.status == "recording":
                ownership.release(
                    connection, state=row.id, namespace_id=row.namespace_id, ordinal=ordinal
                )
                states.await_component(connection, row.id, ordinal, None)

    def barrier(self) -> None:
        """First half of step 5: every value written so far, by any process, is durable after this."""
        failpoint("publish.before_barrier")
        self.blocks.barrier()
        failpoint("publish.after_barrier")

    def publish(self, batch: Sequence[Publication]) -> list[StorageError | None]:
        """Second half of step 5, after `barrier`: make recordings live, all in one commit.

        Returns:
            For each recording None, or why it alone was left as it is: NotHeld (aborted or
            expired), Conflict (the prefix is held), OverLimit (an entry cap: make room first).
        """
        results: list[StorageError | None] = []
        with self.db.write(durable=True) as connection:
            for item in batch:
                connection.exec_driver_sql("SAVEPOINT publication")
                try:
                    recording = self._recording(connection, item.state_id)
                    digest = item.manifest_digest(
                        recording, states.blocks(connection, recording.state.id)
                    )
                    states.publish(connection, recording, digest, item.limits, boot_ms())
                    recordings.finish(connection, recording.state.id)
                except (NotHeld, Conflict, OverLimit) as error:
                    connection.exec_driver_sql("ROLLBACK TO publication")
                    results.append(error)
                else:
                    results.append(None)
                connection.exec_driver_sql("RELEASE publication")
            commit = totals.next_commit(connection)
            failpoint("publish.before_commit")
        self._acknowledge(commit)
        failpoint("publish.after_commit")
        return results

    def drop_recording(self, state_id: str) -> bool:
        """Abort: the recording and what it owns go. False if it was not (any more) a recording."""
        with self.db.write(durable=False) as connection:
            row = states.by_state_id(connection, state_id)
            if row is None or row.status != "recording":
                return False
            states.drop(connection, row, cause=None)
            failpoint("drop.before_commit")
        failpoint("drop.after_commit")
        return True

    def expire_recordings(self, limit: int = 64) -> int:
        """Drop recordings past their deadline or of dead owners. Returns how many."""
        alive = self.instance.others_alive() | {self.instance.name}
        with self.db.read() as connection:
            dead = [name for name in recordings.owners(connection) if name not in alive]
            due = recordings.due(connection, boot_ms(), dead, limit)
        return sum(self._drop_if_due(row, dead) for row in due)

    # ---- removal ---------------------------------------------------------------------------

    def evict(
        self,
        state_ids: Sequence[str],
        cause: str,
        *,
        statuses: tuple[str, ...] = ("live",),
        pinned_too: bool = False,
    ) -> DropResult:
        """Step 6 for states in one of `statuses`; those that are leased or pinned are kept and named.

        Both are asked for here, under the write lock: a lease or a pin that was there before is honoured,
        and one that comes later finds no state.
        """
        dropped: list[str] = []
        leased: list[str] = []
        pinned: list[str] = []
        freed = 0
        held: dict[int, int] = {}  # stored bytes of each namespace before
        with self._removal() as connection:
            now, now_ms = boot_ms(), wall_ms()
            for state_id in state_ids:
                row = states.by_state_id(connection, state_id)
                if row is None or row.status not in statuses:
                    continue
                if states.is_leased(connection, state_id, now):
                    leased.append(state_id)
                elif not pinned_too and pins.is_pinned(connection, row.id, now_ms):
                    pinned.append(state_id)
                else:
                    if row.namespace_id not in held:
                        of = namespaces.by_id(connection, row.namespace_id)
                        held[of.id] = of.stored_bytes
                    freed += states.drop(connection, row, cause) + row.overhead_bytes
                    dropped.append(state_id)
            left = sum(
                before - namespaces.by_id(connection, of).stored_bytes
                for of, before in held.items()
            )
            tombstones.trim(connection, self._tombstones_kept)
            commit = totals.next_commit(connection) if dropped else 0
            failpoint("evict.before_commit")
        self._acknowledge(commit)
        failpoint("evict.after_commit")
        return DropResult(tuple(dropped), tuple(leased), tuple(pinned), freed, left)

    def reclaim(self, limit: int = _RECLAIM_BATCH) -> int:
        """Step 7 for up to `limit` blocks; returns how many went.

        Raises:
            StoreDamaged: as `ownership.forget_unowned`.
        """
        with self.db.write(durable=False) as connection:
            gone = ownership.forget_unowned(connection, limit)
            if not gone:
                return 0
            failpoint("reclaim.before_delete")
            self.blocks.delete(gone, self._acked_commit)
            failpoint("reclaim.after_delete")
        failpoint("reclaim.after_commit")
        return len(gone)

    def drop_replaced(self, limit: int = 64) -> int:
        """Let go of states that a replacement pushed out of the tree and nobody reads any more."""
        with self.db.read() as connection:
            waiting = states.without_node(connection, limit)
        if not waiting:
            return 0
        return len(self.evict([row.state_id for row in waiting], "replaced").dropped)

    def sweep(self, after: bytes | None, limit: int = 512) -> bytes | None:
        """Delete block values that have no row, one slice of the key space at a time.

        Rows always come before values (step 2), so under the write lock a key without a row is
        garbage: the rest of a power loss that kept the value and lost the row.

        Returns:
            The key to go on behind, or None at the end.
        """
        digests = self.blocks.digests(after, limit)
        if not digests:
            return None
        with self.db.write(durable=False) as connection:
            stray = set(digests) - ownership.known(connection, digests)
            if stray:
                self.blocks.delete(sorted(stray), self._acked_commit)
        return digests[-1]

    # ---- pins ------------------------------------------------------------------------------

    def pin(
        self,
        state_id: str,
        *,
        ttl_ms: int | None,
        reason: str,
        actor: str,
        budget_bytes: int,
    ) -> PinRow:
        """Keep a live state from eviction, in place of the pin that it has. One durable commit.

        Args:
            ttl_ms: from the commit on; None: until it is taken away.
            budget_bytes: logical bytes that all pinned states may have together.

        Raises:
            NotHeld: no such state.
            Conflict: it is not in service.
            OverLimit: of "pinned_bytes", or of "pins"; nothing was written.
        """
        with self.db.write(durable=True) as connection:
            now_ms = wall_ms()
            row = states.by_state_id(connection, state_id)
            if row is None:
                raise NotHeld("no such state")
            if row.status != "live" or row.node_id is None:
                raise Conflict("the state is not in service")
            count, size = pins.total(connection, now_ms, besides=row.id)
            if count >= pins.MOST:
                raise OverLimit(None, "pins", count + 1 - pins.MOST)
            if size + row.logical_bytes > budget_bytes:
                raise OverLimit(None, "pinned_bytes", size + row.logical_bytes - budget_bytes)
            pins.put(
                connection,
                row,
                expires_at_ms=None if ttl_ms is None else now_ms + ttl_ms,
                reason=reason,
                actor=actor,
                now_ms=now_ms,
            )
            found = pins.find(connection, row.id, now_ms)
            assert found is not None, "it ends in the future"
            return found

    def unpin(self, state_id: str) -> None:
        """Let a state go. One durable commit.

        Raises:
            NotHeld: it is not pinned (any more).
        """
        with self._removal() as connection:
            row = states.by_state_id(connection, state_id)
            if row is None or not pins.is_pinned(connection, row.id, wall_ms()):
                raise NotHeld("the state is not pinned")
            pins.remove(connection, row.id)

    def remove_expired_pins(self, limit: int = 1000) -> int:
        """Remove pins that have run out; returns how many. They have counted for nothing since."""
        with self.db.read() as connection:
            rows = pins.run_out(connection, wall_ms(), limit)
        if not rows:
            return 0
        with self.db.write(durable=False) as connection:
            return pins.remove_run_out(connection, rows, wall_ms())

    # ---- quarantine ------------------------------------------------------------------------

    def quarantine(self, state_id: str, why: Evidence) -> bool:
        """Take exactly this state out of service. False if it is not live (any more)."""
        with self._removal() as connection:
            row = states.by_state_id(connection, state_id)
            if row is None or row.status != "live":
                return False
            states.to_quarantine(connection, row)
            evidence.add(connection, row.id, why)
            commit = totals.next_commit(connection)
            failpoint("quarantine.before_commit")
        self._acknowledge(commit)
        failpoint("quarantine.after_commit")
        return True

    def note_verified(self, state_id: str, found: Evidence | None) -> None:
        """Keep what a verification of a quarantined state found (None: nothing wrong).

        A state that is not quarantined (any more) is left as it is.
        """
        with self._removal() as connection:
            row = states.by_state_id(connection, state_id)
            if row is not None and row.status == "quarantined":
                evidence.verified(connection, row.id, found)

    def end_quarantine(self, state_id: str, limits: Limits) -> None:
        """Put a quarantined state back into service; the caller has verified it.

        Raises:
            NotHeld: it is not quarantined.
            Conflict: a newer recording of the prefix is live, or was when this one went.
            OverLimit: a cap on entries or logical bytes is reached.
        """
        with self.db.write(durable=True) as connection:
            row = states.by_state_id(connection, state_id)
            if row is None or row.status != "quarantined":
                raise NotHeld("the state is not quarantined")
            states.from_quarantine(connection, row, limits)
            commit = totals.next_commit(connection)
        self._acknowledge(commit)

    def note_commit(self) -> None:
        """Tell the block store which commits have been acknowledged (compared at the next start)."""
        self.blocks.note_commit(self._acked_commit)

    def close(self) -> None:
        """Close both stores and leave the folder."""
        self.db.close()
        self.blocks.close()
        self.instance.leave()

    # ---- within ----------------------------------------------------------------------------

    def _acknowledge(self, commit: int) -> None:
        # Only after the SQL commit returned: the block store must never claim a commit that a crash
        # could still undo.
        self._acked_commit = max(self._acked_commit, commit)

    def _recording(self, connection: Connection, state_id: str) -> RecordingRow:
        recording = recordings.find(connection, state_id)
        if recording is None:
            raise NotHeld("the recording is gone")
        return recording

    def _open_recording(self, connection: Connection, state_id: str) -> StateRow:
        row = states.by_state_id(connection, state_id)
        if row is None or row.status != "recording":
            raise NotHeld("the recording is gone")
        return row

    def _drop_if_due(self, row: StateRow, dead: list[str]) -> int:
        with self.db.write(durable=False) as connection:
            recording = recordings.find(connection, row.state_id)
            if recording is None:
                return 0
            if recording.owner not in dead and recording.deadline_boot_ms > boot_ms():
                return 0
            states.drop(connection, recording.state, cause=None)
            failpoint("drop.before_commit")
        failpoint("drop.after_commit")
        return 1

    @contextmanager
    def _removal(self) -> Iterator[Connection]:
        """A durable write that must be possible on a full disk: deleting needs room in the WAL too."""
        if self.folder.free_bytes() < _NEEDED_TO_DELETE_BYTES and not self.folder.give_up_ballast():
            # What the log has taken on the device is room that its next pages can have.
            with suppress(StorageError):
                self.db.checkpoint()
        with self.db.write(durable=True) as connection:
            yield connection
