"""Reading a state back: manifest proven, every block verified, and no byte sent that was not.

Two passes where a state is larger than the verify-ahead window:

1. `open` checks before the answer begins, so that a damaged state can still be passed over for the
   next shorter prefix: the first blocks are read and kept, up to the window; of the others the
   stored value is checked in place (header, key and checksum, at memory speed).
2. `stream` reads the blocks for sending: each is copied or decoded inside a short read transaction and
   the copy's BLAKE3 is compared. A fault that only shows here breaks the answer off.

Reading is done on threads, a few blocks a time, some steps ahead of the sending.
"""

from __future__ import annotations

import asyncio
import json
import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, TypeAlias

from app.engine.errors import InvalidPayload
from app.engine.faults import fault
from app.engine.manifest import Manifest, ManifestMismatch, Part, Slice, load
from app.engine.memory import MemoryBudget
from app.engine.payload import check_components, check_descriptor
from app.engine.threads import in_thread
from storage.blocks.codec import Buffer
from storage.blocks.store import BlockRef, Held
from storage.errors import BlockFault, BlockMissing
from storage.rows import StateRow
from storage.store import Store

_STEP_BYTES: Final = 4 << 20
# Read and verified while earlier steps are being sent: enough to keep two threads busy.
_STEPS_AHEAD: Final = 3
_MANIFESTS_KEPT: Final = 64

# A component's name and the bytes [start, end) of it.
Range: TypeAlias = tuple[str, int, int]
_Piece: TypeAlias = tuple[Part, int, BlockRef]


@dataclass(slots=True)
class Opened:
    """A state that has passed the first pass. `ahead` holds verified copies of leading blocks."""

    manifest: Manifest
    ahead: dict[tuple[str, int], Buffer] = field(default_factory=dict)
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Read:
    part: Part
    slices: tuple[Slice, ...]


class Reader:
    """Reads states of one store."""

    def __init__(
        self, store: Store, memory: MemoryBudget, pool: Executor, verify_ahead_bytes: int
    ) -> None:
        self._store = store
        self._memory = memory
        self._pool = pool
        self._ahead_bytes = verify_ahead_bytes
        # Proven manifests of late. A manifest never changes while its state lives, and whether it
        # lives is asked of the database each time, so none of these can be stale.
        self._manifests: OrderedDict[tuple[str, bytes | None], Manifest] = OrderedDict()
        self._lock = threading.Lock()

    def manifest(self, state: StateRow) -> Manifest:
        """The proven manifest of a state. For a thread.

        Raises:
            StateFault: the rows are not those that were sealed, or contradict their kind.
        """
        key = state.state_id, state.manifest_digest
        with self._lock:
            known = self._manifests.get(key)
        if known is not None:
            return known
        manifest = self.load(state)
        with self._lock:
            self._manifests[key] = manifest
            while len(self._manifests) > _MANIFESTS_KEPT:
                self._manifests.popitem(last=False)
        return manifest

    def load(self, state: StateRow) -> Manifest:
        """As `manifest`, but always from the rows.

        Raises:
            StateFault: the rows are not those that were sealed, or contradict their kind.
        """
        components, blocks = self._store.catalog.contents(state.id)
        try:
            manifest = load(state, components, blocks)
            self._check_payload(manifest)
        except ManifestMismatch as error:
            raise fault(state.state_id, "manifest_mismatch", str(error)) from error
        except InvalidPayload as error:
            raise fault(state.state_id, "payload_mismatch", error.detail) from error
        return manifest

    async def open(self, state: StateRow, ranges: Sequence[Range] | None = None) -> Opened:
        """First pass over a whole state, or over the blocks of some ranges of it.

        Raises:
            StateFault: something about it is not as it was recorded.
        """
        manifest = await in_thread(self._pool, self.manifest, state)
        opened = Opened(manifest)
        pieces = [
            (step.part, piece.seq, piece.ref)
            for step in _steps(manifest, whole(manifest) if ranges is None else ranges)
            for piece in step.slices
        ]
        ahead = bisect_right(
            list(accumulate(ref.raw_bytes for _, _, ref in pieces)), self._ahead_bytes
        )
        opened.held_bytes = sum(ref.raw_bytes for _, _, ref in pieces[:ahead])
        if not self._memory.try_acquire(opened.held_bytes):
            # Memory is short: check everything in place instead of keeping copies.
            ahead = opened.held_bytes = 0
        try:
            await self._in_two(self._read_ahead, opened, pieces[:ahead])
            await self._in_two(self._check_in_place, opened, pieces[ahead:])
        except BaseException:
            self.close(opened)
            raise
        return opened

    def close(self, opened: Opened) -> None:
        """Give back what `open` holds."""
        self._memory.release(opened.held_bytes)
        opened.held_bytes = 0
        opened.ahead.clear()

    async def stream(self, opened: Opened, ranges: Sequence[Range]) -> AsyncIterator[Buffer]:
        """Verified bytes of [start, end) of each named component, in order.

        Chunks are at most one block long and belong to the caller.

        Raises:
            StateFault: a block failed; what was yielded before is right, the rest must not follow.
            BlockMissing: the state has gone meanwhile (its lease ran out), which is no fault of it.
        """
        steps = _steps(opened.manifest, ranges)
        waiting = deque(steps)
        ahead: deque[asyncio.Future[list[Buffer]]] = deque()
        try:
            while waiting or ahead:
                while waiting and len(ahead) < _STEPS_AHEAD:
                    ahead.append(asyncio.ensure_future(self._step(opened, waiting.popleft())))
                for chunk in await ahead[0]:
                    yield chunk
                ahead.popleft()
        finally:
            for step in ahead:
                step.cancel()

    async def _step(self, opened: Opened, step: _Read) -> list[Buffer]:
        kept = [opened.ahead.get((step.part.name, s.seq)) for s in step.slices]
        if all(copy is not None for copy in kept):
            copies = [copy for copy in kept if copy is not None]
        else:
            copies = await in_thread(self._pool, self._read, opened.manifest, step)
        return [
            copy if (s.start, s.end) == (0, len(copy)) else copy[s.start : s.end]
            for copy, s in zip(copies, step.slices, strict=True)
        ]

    def _read(self, manifest: Manifest, step: _Read) -> list[Buffer]:
        try:
            return self._store.blocks.read([s.ref for s in step.slices])
        except BlockFault as error:
            seq = next(s.seq for s in step.slices if s.ref.digest == error.digest)
            raise self._fault(manifest.state, step.part.name, seq, error) from error

    def _read_ahead(self, opened: Opened, pieces: Sequence[_Piece]) -> None:
        for part, seq, ref in pieces:
            step = _Read(part, (Slice(seq, ref, 0, ref.raw_bytes),))
            opened.ahead[part.name, seq] = self._read(opened.manifest, step)[0]

    def _check_in_place(self, opened: Opened, pieces: Sequence[_Piece]) -> None:
        for start in range(0, len(pieces), 32):
            group = pieces[start : start + 32]
            held = self._store.blocks.held([ref for _, _, ref in group])
            for (part, seq, ref), at in zip(group, held, strict=True):
                if at is not Held.INTACT:
                    error = (
                        BlockMissing("the block is not there", ref.digest)
                        if at is Held.ABSENT
                        else BlockFault("the stored block is damaged", ref.digest)
                    )
                    raise self._fault(opened.manifest.state, part.name, seq, error)

    async def _in_two(
        self,
        work: Callable[[Opened, Sequence[_Piece]], None],
        opened: Opened,
        pieces: Sequence[_Piece],
    ) -> None:
        """Do the work on two threads: while an answer waits for it, the other core has nothing to do."""
        half = (len(pieces) + 1) // 2
        halves = [part for part in (pieces[:half], pieces[half:]) if part]
        results = await asyncio.gather(
            *(in_thread(self._pool, work, opened, part) for part in halves),
            return_exceptions=True,
        )
        for result in results:
            if result is not None:
                raise result

    def _fault(self, state: StateRow, component: str, seq: int, error: BlockFault) -> Exception:
        """A block failed: is the state to blame, or has it gone under a lease that ran out?"""
        now = self._store.catalog.state(state.state_id)
        if now is None:
            return BlockMissing("the state has gone", error.digest)
        missing = isinstance(error, BlockMissing)
        return fault(
            state.state_id,
            "block_missing" if missing else "block_damaged",
            error.reason,
            component=component,
            seq=seq,
            expected=error.digest,
            actual=error.actual,
        )

    @staticmethod
    def _check_payload(manifest: Manifest) -> None:
        state = manifest.state
        sizes = {part.name: part.raw_bytes for part in manifest.parts}
        check_components(state.kind, sizes)
        if sizes.get("kv"):
            descriptor = json.loads(state.kv_descriptor or "null")
            check_descriptor(descriptor, sizes["kv"], state.token_count)


def whole(manifest: Manifest) -> list[Range]:
    """All components in wire order."""
    return [(part.name, 0, part.raw_bytes) for part in manifest.parts]


def _steps(manifest: Manifest, ranges: Sequence[Range]) -> list[_Read]:
    steps = []
    for name, start, end in ranges:
        part = manifest.part(name)
        assert part is not None
        group: list[Slice] = []
        size = 0
        for piece in part.slices(start, end):
            group.append(piece)
            size += piece.ref.raw_bytes
            if size >= _STEP_BYTES:
                steps.append(_Read(part, tuple(group)))
                group, size = [], 0
        if group:
            steps.append(_Read(part, tuple(group)))
    return steps
