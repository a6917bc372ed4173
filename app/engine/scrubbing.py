"""The verify job: every block of every live state is read, decoded and proven, at a bounded rate.

First the manifest of every live state, which costs rows only; then the blocks in order of their rows, each once
however many states share it. That order never changes, so a later job can go on where one was stopped
(`resume`): the row up to which all was proven is written down with the progress.

A block that fails puts every live state that owns it into quarantine, and no other. Which states own it is
asked first and the block is read again then: a state that was live before that reading, and is live
still when the quarantine looks under the write lock, owned the block at the moment it was bad. Without the
second reading a block that was reclaimed and is being recorded anew would cost the new state its service.

The reading is done by a child process (`storage/blocks/prober.py` says why). A broken page it dies of is
damage of the block behind it like any other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from app.engine.faults import StateFault
from app.engine.jobs import Run
from app.engine.quarantine import Quarantine
from app.engine.reader import Reader
from storage.blocks.prober import MOST_AT_ONCE, Prober, Proof
from storage.blocks.store import BlockRef, Held
from storage.errors import Busy
from storage.rows import Evidence, ScrubRow
from storage.store import Store

DEFAULT_RATE_BYTES: Final = 128 << 20
_BOOKMARK: Final = "verified_to_block"
_PAGE_ROWS: Final = 256
# At least so many batches a second, so that a slow rate is kept evenly and a stop is seen.
_BATCHES_PER_SECOND: Final = 4


class Scrubber:
    """Verifies one store."""

    def __init__(self, store: Store, reader: Reader, quarantine: Quarantine) -> None:
        self._store = store
        self._reader = reader
        self._quarantine = quarantine

    def verify(self, run: Run, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The body of the job. `rate_bytes` (stored bytes a second) and `resume`."""
        found = {"states": 0, "blocks": 0, "bytes": 0, "bad_blocks": 0, "quarantined": 0}
        run.partly = found
        after = self._bookmark() if arguments.get("resume") else 0
        before = self._store.catalog.held_bytes() - self._store.catalog.held_bytes(after)
        run.report(before, self._store.catalog.held_bytes())
        self._manifests(run, found)
        pace = _Pace(run, int(arguments.get("rate_bytes") or DEFAULT_RATE_BYTES))
        prober = Prober(self._store.folder.blocks)
        try:
            while page := self._store.catalog.owned_after(after, _PAGE_ROWS):
                for batch in pace.batches(page):
                    self._prove(prober, [row for row in batch if row.live], found)
                    size = sum(row.stored_bytes for row in batch)
                    after = batch[-1].id
                    before += size
                    run.report(before, max(run.total, before), (_BOOKMARK, str(after)))
                    pace.keep(size)
        finally:
            prober.close()
            self._store.blocks.reader_check()
            with suppress(Busy):  # an older bookmark only makes the next job read more
                self._store.ledger.set_setting(_BOOKMARK, str(after))
        self._store.ledger.set_setting(_BOOKMARK, None)
        run.report(before, before)
        return found

    def blame(self, ref: BlockRef, prober: Prober) -> tuple[Proof, int]:
        """A block was bad: read it again and quarantine the live states that had it meanwhile.

        Returns:
            How it is now, and how many states went out of service for it.
        """
        owners = self._store.catalog.live_owners(ref.digest)
        proof = prober.prove([ref])[0]
        if proof.held is Held.INTACT:
            return proof, 0
        taken = 0
        for state, ordinal, seq in owners:
            names = {c.ordinal: c.name for c in self._store.catalog.components(state.id)}
            evidence = Evidence(
                "block_missing" if proof.held is Held.ABSENT else "block_damaged",
                f"found while verifying: {proof.reason}",
                "service",
                names.get(ordinal),
                seq,
                ref.digest,
                proof.actual,
            )
            taken += self._quarantine.take_now(state.state_id, evidence)
        return proof, taken

    def _manifests(self, run: Run, found: dict[str, int]) -> None:
        after: str | None = None
        while page := self._store.catalog.states(limit=64, after=after, status="live"):
            for state, _ in page:
                run.check()
                found["states"] += 1
                try:
                    self._reader.load(state)
                except StateFault as error:
                    # Rows that go while they are read are no damage, and the quarantine leaves a
                    # state alone that is not live.
                    found["quarantined"] += self._quarantine.take_now(
                        state.state_id, error.evidence
                    )
            after = page[-1][0].state_id

    def _prove(self, prober: Prober, rows: Sequence[ScrubRow], found: dict[str, int]) -> None:
        if not rows:
            return
        refs = [BlockRef(row.digest, row.raw_bytes) for row in rows]
        for ref, row, proof in zip(refs, rows, prober.prove(refs), strict=True):
            found["blocks"] += 1
            found["bytes"] += row.stored_bytes
            if proof.held is not Held.INTACT:
                proof, taken = self.blame(ref, prober)
                found["bad_blocks"] += bool(taken)
                found["quarantined"] += taken

    def _bookmark(self) -> int:
        return int(self._store.catalog.setting(_BOOKMARK) or 0)


class _Pace:
    """Keeps a rate by resting after each batch for as long as it came too early."""

    def __init__(self, run: Run, rate_bytes: int) -> None:
        self._run = run
        self._rate = rate_bytes
        self._began = time.monotonic()
        self._size = 0

    def batches(self, rows: Sequence[ScrubRow]) -> list[list[ScrubRow]]:
        """Rows in pieces that are read in one go; a piece has one block at least."""
        batches: list[list[ScrubRow]] = [[]]
        size = 0
        for row in rows:
            full = len(batches[-1]) >= MOST_AT_ONCE
            if batches[-1] and (full or size >= self._rate // _BATCHES_PER_SECOND):
                batches.append([])
                size = 0
            batches[-1].append(row)
            size += row.stored_bytes
        return batches

    def keep(self, size: int) -> None:
        """So many bytes were read.

        Raises:
            Stopped: the job should end.
        """
        self._size += size
        self._run.rest(self._began + self._size / self._rate - time.monotonic())
