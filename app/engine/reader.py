"""Reading a state back: manifest proven, every block verified, and no byte sent that was not.

Two passes where a state is larger than the verify-ahead window:

1. `open` checks before the answer begins, so that a damaged state can still be passed over for the
   next shorter prefix: the first blocks are read and kept, up to the window; of the others the
   stored value is checked in place (header, key and checksum, at memory speed).
2. `stream` reads the blocks for sending: each is copied or decoded inside a short read transaction and
   the copy's BLAKE3 is compared. A fault that only shows here breaks the answer off.

A component of token windows has bytes of every window at its beginning. If there is memory for it, it is
put together whole in `open`; else it is checked in place and put together in bands of wire order,
for each of which its windows are read again.

Reading is done on threads, a few blocks a time, some steps ahead of the sending.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

from app.engine.errors import InvalidPayload
from app.engine.faults import fault
from app.engine.geometry import Bytes
from app.engine.manifest import Manifest, ManifestMismatch, Part, Slice, load, shortened
from app.engine.memory import MemoryBudget
from app.engine.payload import check_components, check_descriptor
from app.engine.steps import in_steps, read_ahead
from app.engine.threads import in_thread, in_two
from storage.blocks.codec import Buffer
from storage.blocks.store import BlockRef, Held
from storage.errors import BlockFault, BlockMissing
from storage.rows import StateRow
from storage.store import Store

_MANIFESTS_KEPT: Final = 64
_CHUNK_BYTES: Final = 1 << 20
# This part of the memory is for bands alone: who waits for a band holds none, so it comes free.
_FOR_BANDS: Final = 4

# A component's name and the bytes [start, end) of it.
Range: TypeAlias = tuple[str, int, int]
Piece: TypeAlias = tuple[Part, int, BlockRef]


@dataclass(slots=True)
class Opened:
    """A state that has passed the first pass.

    `ahead` holds verified copies of leading blocks, `whole` components that were put together. Of a
    state opened `as_it_is` blocks that cannot be read are zeros.
    """

    manifest: Manifest
    whole: dict[Range, Bytes] = field(default_factory=dict)
    ahead: dict[tuple[str, int], Buffer] = field(default_factory=dict)
    held_bytes: int = 0
    as_it_is: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    part: Part
    slices: tuple[Slice, ...]


class Reader:
    """Reads states of one store."""

    def __init__(
        self, store: Store, memory_bytes: int, pool: Executor, verify_ahead_bytes: int
    ) -> None:
        """
        Args:
            memory_bytes: what copies of blocks and components may take together.
            verify_ahead_bytes: leading blocks read and kept before an answer begins.
        """
        self._store = store
        for_bands = memory_bytes // _FOR_BANDS
        self._memory = MemoryBudget(memory_bytes - for_bands)
        self._bands = MemoryBudget(for_bands)
        self._band_bytes = max(_CHUNK_BYTES, for_bands // 2)
        self._pool = pool
        self._ahead_bytes = verify_ahead_bytes
        # Proven manifests of late. A manifest never changes while its state lives, and whether it
        # lives is asked of the database each time, so none of these can be stale.
        self._manifests: OrderedDict[tuple[str, bytes | None], Manifest] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """What copies of blocks and components take at this moment."""
        return self._memory.used_bytes + self._bands.used_bytes

    @property
    def most_bytes(self) -> int:
        """What they may take."""
        return self._memory.total_bytes + self._bands.total_bytes

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

    async def open(
        self,
        state: StateRow,
        ranges: Sequence[Range] | None = None,
        prefix_tokens: int | None = None,
    ) -> Opened:
        """First pass over a whole state, over some ranges of it, or over a shorter prefix.

        Raises:
            StateFault: something about it is not as it was recorded.
        """
        manifest = await in_thread(self._pool, self.manifest, state)
        if prefix_tokens is not None:
            manifest = await in_thread(self._pool, shortened, manifest, prefix_tokens)
        opened = Opened(manifest)
        wanted = whole(manifest) if ranges is None else ranges
        try:
            plain = [range_ for range_ in wanted if _part(manifest, range_).layout is None]
            await self._look_ahead(opened, plain)
            for range_ in wanted:
                if range_ not in plain:
                    await self._put_together(opened, range_)
        except BaseException:
            self.close(opened)
            raise
        return opened

    async def open_as_it_is(self, manifest: Manifest, range_: Range) -> Opened:
        """A range of a component for forensics, without a first pass: what cannot be read is zeros.

        Raises:
            BlockMissing: the state has gone.
        """
        opened = Opened(manifest, as_it_is=True)
        if _part(manifest, range_).layout is not None:
            try:
                await self._put_together(opened, range_)
            except BaseException:
                self.close(opened)
                raise
        return opened

    def close(self, opened: Opened) -> None:
        """Give back what `open` holds."""
        self._memory.release(opened.held_bytes)
        opened.held_bytes = 0
        opened.ahead.clear()
        opened.whole.clear()

    async def stream(self, opened: Opened, ranges: Sequence[Range]) -> AsyncIterator[Buffer]:
        """Verified bytes of [start, end) of each named component, in order.

        Chunks are at most one block long and belong to the caller.

        Raises:
            StateFault: a block failed; what was yielded before is right, the rest must not follow.
            BlockMissing: the state has gone meanwhile (its lease ran out), which is no fault of it.
        """
        for range_ in ranges:
            assembled = opened.whole.get(range_)
            if assembled is not None:
                for start in range(0, len(assembled), _CHUNK_BYTES):
                    yield assembled[start : start + _CHUNK_BYTES].data
            elif _part(opened.manifest, range_).layout is not None:
                async for chunk in self._in_bands(opened, range_):
                    yield chunk
            else:
                async for chunk in self._in_order(opened, range_):
                    yield chunk

    async def _in_order(self, opened: Opened, range_: Range) -> AsyncIterator[Buffer]:
        def copies(step: _Read) -> list[Buffer]:
            kept = [opened.ahead.get((step.part.name, piece.seq)) for piece in step.slices]
            if any(copy is None for copy in kept):
                kept = list(self._read(opened, step))
            return [
                copy
                if (piece.start, piece.end) == (0, len(copy))
                else copy[piece.start : piece.end]
                for copy, piece in zip(kept, step.slices, strict=True)
                if copy is not None
            ]

        part = _part(opened.manifest, range_)
        # One step at a time: listing all blocks of a large component takes long on the event loop.
        steps = _grouped(part, part.slices(range_[1], range_[2]))
        async with aclosing(read_ahead(self._pool, copies, steps)) as steps_read:
            async for chunks in steps_read:
                for chunk in chunks:
                    yield chunk

    async def _in_bands(self, opened: Opened, range_: Range) -> AsyncIterator[Buffer]:
        name, start, end = range_
        for first in range(start, end, self._band_bytes):
            last = min(first + self._band_bytes, end)
            await self._bands.acquire(last - first)
            try:
                band = await self._assemble(opened, (name, first, last))
                for at in range(0, len(band), _CHUNK_BYTES):
                    yield band[at : at + _CHUNK_BYTES].data
            finally:
                self._bands.release(last - first)

    async def _look_ahead(self, opened: Opened, ranges: Sequence[Range]) -> None:
        """First pass over components in wire order."""
        pieces, ahead, held_bytes = await in_thread(
            self._pool, _leading, opened.manifest, ranges, self._ahead_bytes
        )
        if self._memory.try_acquire(held_bytes):
            opened.held_bytes += held_bytes
        else:
            # Memory is short: check everything in place instead of keeping copies.
            ahead = 0
        await in_two(self._pool, partial(self._read_ahead, opened), pieces[:ahead])
        await in_two(self._pool, partial(self._check_in_place, opened), pieces[ahead:])

    async def _put_together(self, opened: Opened, range_: Range) -> None:
        """First pass over a component of token windows."""
        _, start, end = range_
        if self._memory.try_acquire(end - start, whole=False):
            opened.held_bytes += end - start
            opened.whole[range_] = await self._assemble(opened, range_)
        elif not opened.as_it_is:
            pieces = await in_thread(self._pool, _pieces, opened.manifest, range_)
            await in_two(self._pool, partial(self._check_in_place, opened), pieces)

    async def _assemble(self, opened: Opened, range_: Range) -> Bytes:
        """Bytes [start, end) of a component of token windows, verified, in memory of their own."""
        _, start, end = range_
        part = _part(opened.manifest, range_)
        assert part.layout is not None
        # Large arrays of numpy lie on huge pages, which saves most of the page faults.
        target = np.empty(end - start, dtype=np.uint8)

        def place(pieces: Sequence[Piece]) -> None:
            assert part.layout is not None
            for step in _grouped(part, [Slice(s, ref, 0, ref.raw_bytes) for _, s, ref in pieces]):
                copies = self._read(opened, step)
                for copy, piece in zip(copies, step.slices, strict=True):
                    part.layout.scatter(piece.seq, copy, target, start, part.onto)

        pieces = await in_thread(self._pool, _pieces, opened.manifest, range_)
        await in_two(self._pool, place, pieces)
        return target

    def _read(self, opened: Opened, step: _Read) -> list[Buffer]:
        if opened.as_it_is:
            return [self._as_it_is(opened, step.part.name, piece) for piece in step.slices]
        try:
            return self._store.blocks.read([s.ref for s in step.slices])
        except BlockFault as error:
            seq = next(s.seq for s in step.slices if s.ref.digest == error.digest)
            raise self.fault(opened.manifest.state, step.part.name, seq, error) from error

    def _as_it_is(self, opened: Opened, component: str, piece: Slice) -> Buffer:
        try:
            return self._store.blocks.read([piece.ref])[0]
        except BlockFault as error:
            found = self.fault(opened.manifest.state, component, piece.seq, error)
            if isinstance(found, BlockMissing):
                raise found from error
            return bytearray(piece.ref.raw_bytes)

    def _read_ahead(self, opened: Opened, pieces: Sequence[Piece]) -> None:
        for part, seq, ref in pieces:
            step = _Read(part, (Slice(seq, ref, 0, ref.raw_bytes),))
            opened.ahead[part.name, seq] = self._read(opened, step)[0]

    def _check_in_place(self, opened: Opened, pieces: Sequence[Piece]) -> None:
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
                    raise self.fault(opened.manifest.state, part.name, seq, error)

    def fault(self, state: StateRow, component: str, seq: int, error: BlockFault) -> Exception:
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


def _part(manifest: Manifest, range_: Range) -> Part:
    part = manifest.part(range_[0])
    assert part is not None
    return part


def _pieces(manifest: Manifest, range_: Range) -> list[Piece]:
    """The blocks that hold bytes of a range."""
    _, start, end = range_
    part = _part(manifest, range_)
    return [(part, seq, part.blocks[seq]) for seq in part.needed(start, end)]


def _leading(
    manifest: Manifest, ranges: Sequence[Range], most_bytes: int
) -> tuple[list[Piece], int, int]:
    """The blocks of ranges in wire order, how many of the first fit, and their raw bytes."""
    pieces = [
        (_part(manifest, range_), piece.seq, piece.ref)
        for range_ in ranges
        for piece in _part(manifest, range_).slices(range_[1], range_[2])
    ]
    ends = list(accumulate(ref.raw_bytes for _, _, ref in pieces))
    leading = bisect_right(ends, most_bytes)
    return pieces, leading, ends[leading - 1] if leading else 0


def _grouped(part: Part, slices: Iterable[Slice]) -> Iterator[_Read]:
    for group in in_steps(slices, lambda piece: piece.ref.raw_bytes):
        yield _Read(part, tuple(group))
