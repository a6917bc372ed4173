"""Recording in the native form: the client says which blocks there are and sends those that are needed.

1. `need` takes the digests of all blocks of a component, in order. Those whose bytes somebody has
   already brought by the tenant, and that are intact, become the recording's at once; the places
   of the others are the answer. A digest alone proves nothing: a block that only other tenants
   hold is asked for like one that nobody holds, and the answer to both is the same.
2. `receive` takes the blocks asked for. Each is decoded (never beyond its planned length) and must
   have the digest that it claims before anything trusts it; then it is owned and written as it came.

Where every place is filled the component is whole, known by the digest of its list of blocks. An upload
that ends in any other way leaves nothing; `need` may then be asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from app.engine.cutting import Plan, planned
from app.engine.errors import EngineError, InvalidInput, NotFound, Refused
from app.engine.eviction import Evictor
from app.engine.framing import FRAME_BYTES, HEAD_BYTES, FrameKind, invalid, read_frame, read_head
from app.engine.geometry import Geometry, Layout
from app.engine.manifest import blocks_digest
from app.engine.memory import MemoryBudget
from app.engine.notes import Notes
from app.engine.stages import Stage, Stages
from app.engine.threads import in_thread
from app.engine.uploads import Uploads
from app.engine.writer import BlockWriter
from storage.blocks.codec import HEADER_BYTES, EncodedBlock, check, decode
from storage.blocks.store import BlockRef
from storage.errors import BlockDamaged, NotHeld, OverLimit
from storage.rows import Arrival, ComponentRow, Limits, OwnedBlock, StateRow
from storage.store import Store

_BATCH_BYTES: Final = 4 << 20
_NEED_BATCH: Final = 256
_ROOM_ATTEMPTS: Final = 8
# A value is there twice for a while: as it came and decoded.
_COPIES: Final = 2
_PATIENCE_S: Final = 2.0
# What a stored value may take beyond its raw bytes: its header and the lengths of four planes.
_SLACK_BYTES: Final = HEADER_BYTES + 16
# A stored value's header has its digest and its generation here (storage/blocks/codec.py).
_DIGEST: Final = slice(24, 56)
_GENERATION: Final = slice(16, 24)


@dataclass(frozen=True, slots=True)
class Need:
    """Places whose blocks have to be sent; none: the component has arrived."""

    seqs: tuple[int, ...]
    digest: bytes | None


@dataclass(slots=True)
class _Batch:
    """Blocks that have come and are not stored yet, and what they hold of the memory budget."""

    blocks: list[tuple[int, bytearray]] = field(default_factory=list)
    held_bytes: int = 0


class Exchange:
    """Takes in components block by block."""

    def __init__(
        self,
        store: Store,
        writer: BlockWriter,
        evictor: Evictor,
        uploads: Uploads,
        memory: MemoryBudget,
        notes: Notes,
        small: Executor,
        pool: Executor,
    ) -> None:
        self._store = store
        self._writer = writer
        self._evictor = evictor
        self._uploads = uploads
        self._memory = memory
        self._notes = notes
        self._stages = Stages(notes)
        self._small = small
        self._pool = pool

    async def need(self, state_id: str, name: str, digests: Sequence[str]) -> Need:
        """Say which of a component's blocks have to be sent.

        Args:
            digests: BLAKE3-256 of each block's raw bytes in hex, in order of the plan.

        Raises:
            NotFound: no such recording, or it did not announce the component.
            Conflicting: the component has arrived, or is being uploaded.
            InvalidInput: not as many digests as the component has blocks.
            Refused, Unavailable: no room, or the writer has stopped.
        """
        recording, component = await self._uploads.begin(state_id, name)
        try:
            plan = await in_thread(self._pool, _plan, component)
            limits = await self._uploads.limits(recording.state)
            wanted = await in_thread(self._pool, _wanted, plan, digests)
            held: set[int] = set()
            for first in range(0, len(wanted), _NEED_BATCH):
                some = wanted[first : first + _NEED_BATCH]
                held |= await in_thread(
                    self._small, self._own_shown, recording.state, component.ordinal, some, limits
                )
            self._notes.count("blocks_deduplicated", "", len(held))
            seqs, held_bytes = await in_thread(self._pool, _missing, plan, held)
            self._notes.count("raw_bytes_deduplicated", "", held_bytes)
            if len(held) == len(wanted):
                digest = await self._finish(recording.state, component, plan)
                return Need((), digest)
            await in_thread(
                self._small, self._store.pause_component, recording.state, component.ordinal
            )
        except BaseException as error:
            await self._uploads.forget(recording.state, component.ordinal, error)
            seen = _as_seen(error)
            if seen is not None:
                raise seen from error
            raise
        return Need(seqs, None)

    def _own_shown(
        self,
        recording: StateRow,
        ordinal: int,
        blocks: Sequence[tuple[int, BlockRef]],
        limits: Limits,
    ) -> set[int]:
        """`Store.own_shown`, with room made for it."""
        for _ in range(_ROOM_ATTEMPTS):
            try:
                return self._store.own_shown(recording, ordinal, blocks, limits)
            except OverLimit as over:
                self._evictor.make_room(over, limits)
        raise Refused("at_capacity", "no room could be made", retry_after_s=5)

    async def receive(self, state_id: str, name: str, body: AsyncIterator[bytes]) -> bytes:
        """Take in the blocks that `need` asked for; returns the component's digest.

        Args:
            body: a block stream (`framing`) without a manifest, in ascending order of seq.

        Raises:
            NotFound, Conflicting: as `need`.
            InvalidInput: framing, a block or its place is wrong, or blocks are missing at the end.
            Refused, Unavailable: no room, or the writer has stopped.
        """
        recording, component = await self._uploads.begin(state_id, name, keep=True)
        try:
            plan = await in_thread(self._pool, _plan, component)
            limits = await self._uploads.limits(recording.state)
            await self._take(recording.state, component, plan, limits, _Stream(body))
            return await self._finish(recording.state, component, plan)
        except BaseException as error:
            await self._uploads.forget(recording.state, component.ordinal, error)
            seen = _as_seen(error)
            if seen is not None:
                raise seen from error
            raise

    async def _take(
        self,
        state: StateRow,
        component: ComponentRow,
        plan: Plan,
        limits: Limits,
        stream: _Stream,
    ) -> None:
        filled = {b.seq for b in await self._owned(state, component)}
        frames = read_head(await stream.read(HEAD_BYTES))
        if frames > len(plan.lengths) + 1:
            raise invalid("more frames than the component has blocks")
        last = -1
        batch = _Batch()
        flush = partial(self._flush, state, component, plan, limits, batch)
        try:
            for left in range(frames - 1, -1, -1):
                coming = asyncio.ensure_future(self._frame(stream, plan, filled, last, left))
                try:
                    await asyncio.wait({coming}, timeout=_PATIENCE_S)
                    if not coming.done():
                        # A slow client holds no memory that others wait for.
                        await flush()
                    found = await coming
                finally:
                    coming.cancel()
                if found is None:
                    break
                last, value = found
                self._notes.count("received_bytes", "blocks", len(value))
                size = _COPIES * len(value)
                if not self._memory.try_acquire(size):
                    # Nobody waits for memory while holding some.
                    await flush()
                    await self._memory.acquire(size)
                batch.held_bytes += size
                batch.blocks.append((last, value))
                if batch.held_bytes >= _COPIES * _BATCH_BYTES:
                    await flush()
            await stream.expect_end()
            await flush()
        finally:
            self._memory.release(batch.held_bytes)

    async def _frame(
        self, stream: _Stream, plan: Plan, filled: set[int], last: int, left: int
    ) -> tuple[int, bytearray] | None:
        """The next block's place and value, or None at the end."""
        frame = read_frame(await stream.read(FRAME_BYTES))
        if (frame.kind is FrameKind.END) != (left == 0):
            raise invalid("the end frame is the last of the frames announced")
        if frame.kind is FrameKind.END:
            return None
        if frame.kind is not FrameKind.BLOCK or frame.component:
            raise invalid("an upload has blocks of one component only")
        if not last < frame.seq < len(plan.lengths):
            raise invalid("blocks come in ascending order of their place")
        if frame.seq in filled:
            raise _bad_block("a block was sent that was not asked for")
        if not HEADER_BYTES < frame.payload_bytes <= plan.lengths[frame.seq] + _SLACK_BYTES:
            raise invalid("a block's value is longer than its raw bytes allow")
        return frame.seq, await stream.read(frame.payload_bytes)

    async def _flush(
        self,
        state: StateRow,
        component: ComponentRow,
        plan: Plan,
        limits: Limits,
        batch: _Batch,
    ) -> None:
        """Store what has come and give its memory back."""
        blocks, batch.blocks = batch.blocks, []
        try:
            if blocks:
                await self._store_batch(state, component, plan, limits, blocks)
        finally:
            self._memory.release(batch.held_bytes)
            batch.held_bytes = 0

    async def _store_batch(
        self,
        state: StateRow,
        component: ComponentRow,
        plan: Plan,
        limits: Limits,
        batch: Sequence[tuple[int, bytearray]],
    ) -> None:
        def verified() -> list[EncodedBlock]:
            blocks = _verified(batch, plan)
            foreign = self._uploads.foreign(limits, {block.digest for block in blocks})
            for block in blocks:
                block.anew = block.digest in foreign
            return blocks

        blocks = await self._stages.in_thread(Stage.HASH, self._pool, verified)
        await asyncio.wrap_future(
            self._writer.write(state, component.ordinal, [seq for seq, _ in batch], blocks, limits)
        )

    async def _finish(self, state: StateRow, component: ComponentRow, plan: Plan) -> bytes:
        """The component is whole if every place is filled with a block of its length."""
        refs = [BlockRef(b.digest, b.raw_bytes) for b in await self._owned(state, component)]
        if tuple(ref.raw_bytes for ref in refs) != tuple(plan.lengths):
            raise InvalidInput(
                "blocks_missing", f"{len(plan.lengths) - len(refs)} blocks have not come", "body"
            )
        arrival = Arrival(blocks_digest(refs), by_blocks=True)
        # In order behind the writes of this upload.
        await asyncio.wrap_future(
            self._writer.call(
                lambda: self._store.finish_component(state, component.ordinal, arrival)
            )
        )
        return arrival.digest

    async def _owned(self, state: StateRow, component: ComponentRow) -> list[OwnedBlock]:
        _, blocks = await in_thread(self._small, self._store.catalog.contents, state.id)
        return [block for block in blocks if block.ordinal == component.ordinal]


class _Stream:
    """A body, handed out in pieces of the sizes asked for."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._rest = memoryview(b"")

    async def read(self, size: int) -> bytearray:
        """Exactly `size` bytes in memory of their own."""
        piece = bytearray(size)
        target = memoryview(piece)
        while target:
            if not self._rest:
                chunk = await anext(self._body, None)
                if chunk is None:
                    raise invalid("the block stream ends too early")
                self._rest = memoryview(chunk)
            taken = min(len(target), len(self._rest))
            target[:taken] = self._rest[:taken]
            target, self._rest = target[taken:], self._rest[taken:]
        return piece

    async def expect_end(self) -> None:
        """Nothing may follow."""
        if self._rest:
            raise invalid("bytes follow the end frame")
        async for chunk in self._body:
            if chunk:
                raise invalid("bytes follow the end frame")


def _plan(component: ComponentRow) -> Plan:
    layout = None
    if component.geometry is not None:
        layout = Layout(Geometry.unpack(component.geometry), component.raw_bytes)
    plan = planned(layout, component.raw_bytes)
    len(plan.lengths)  # counted out on this thread
    return plan


def _wanted(plan: Plan, digests: Sequence[str]) -> list[tuple[int, BlockRef]]:
    """Each place with the block that the client says belongs there."""
    if len(digests) != len(plan.lengths):
        raise InvalidInput(
            "invalid_blocks",
            f"the component has {len(plan.lengths)} blocks and {len(digests)} are named",
            "digests",
        )
    return [
        (seq, BlockRef(bytes.fromhex(digest), length))
        for seq, (digest, length) in enumerate(zip(digests, plan.lengths, strict=True))
    ]


def _missing(plan: Plan, held: Collection[int]) -> tuple[tuple[int, ...], int]:
    """The places that are not held, and the raw bytes of those that are."""
    seqs = tuple(seq for seq in range(len(plan.lengths)) if seq not in held)
    return seqs, sum(plan.lengths[seq] for seq in held)


def _verified(batch: Sequence[tuple[int, bytearray]], plan: Plan) -> list[EncodedBlock]:
    """Blocks as they came, each proven to be what its header says and of its planned length."""
    blocks = []
    for seq, value in batch:
        digest = bytes(value[_DIGEST])
        raw_bytes = plan.lengths[seq]
        if any(value[_GENERATION]):
            raise _bad_block("a client writes no generation")
        try:
            check(value, digest, raw_bytes)
            decode(value, digest, raw_bytes)
        except BlockDamaged as error:
            raise _bad_block(f"block {seq}: {error.reason}") from error
        blocks.append(EncodedBlock(digest, raw_bytes, len(value), value))
    return blocks


def _bad_block(detail: str) -> InvalidInput:
    return InvalidInput("invalid_blocks", detail, "body")


def _as_seen(error: BaseException) -> EngineError | None:
    if isinstance(error, NotHeld):
        return NotFound("record_not_found", "the recording was aborted or expired meanwhile")
    return None
