"""Receiving components: cut, hash, compress and write while the bytes arrive, in bounded memory.

The body is copied once, into batches of a few blocks whose memory has room for each block's stored
header in front of it, so that a block that does not shrink is stored from where it was received. A
batch is hashed (in order, for the component's digest), encoded and written while the next ones
arrive; the memory budget bounds all batches of the process, and a full writer holds up the socket.

A component with geometry is gathered first, in a file without a name (`spool.py`), because a token
window has rows from its beginning and its end. A slot file brings its geometry along; one that does
not parse is cut where its content says.

An upload that ends in any other way than whole gives up all it had brought and leaves the recording
open for another try.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from app.engine.admission import ownership_bytes
from app.engine.batches import Batch, Buffers, Hasher, groups
from app.engine.cutting import Plan, by_content, fixed
from app.engine.errors import InvalidInput, NotFound, Unavailable
from app.engine.geometry import Geometry, Layout
from app.engine.memory import MemoryBudget
from app.engine.notes import Notes
from app.engine.policy import Policy
from app.engine.slotfile import HEAD_BYTES, is_slot_file, of_slot_file
from app.engine.source import Source
from app.engine.spool import Spool
from app.engine.stages import Stage, Stages
from app.engine.threads import in_thread
from app.engine.uploads import Uploads
from app.engine.writer import BlockWriter
from storage.blocks.codec import EncodedBlock
from storage.errors import NotHeld
from storage.rows import Arrival, ComponentRow, Limits, RecordingRow
from storage.store import Store

_BATCHES_AT_ONCE: Final = 4
# A batch is there twice for a while: as it came and as it is stored.
_COPIES: Final = 2
# A batch that has not come within this time is no longer waited for in memory.
_PATIENCE_S: Final = 2.0
_DIGESTS: Final = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}


@dataclass(frozen=True, slots=True)
class Receipt:
    """A component that has arrived whole. `digest` is BLAKE3-256 of its bytes."""

    name: str
    raw_bytes: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Upload:
    """One component on its way: what it belongs to, and the digests of its bytes."""

    recording: RecordingRow
    component: ComponentRow
    limits: Limits
    hashers: Sequence[Hasher]


class Recorder:
    """Takes in the components of recordings."""

    def __init__(
        self,
        store: Store,
        writer: BlockWriter,
        policy: Policy,
        uploads: Uploads,
        memory: MemoryBudget,
        notes: Notes,
        pool: Executor,
    ) -> None:
        self._store = store
        self._notes = notes
        self._stages = Stages(notes)
        self._writer = writer
        self._policy = policy
        self._memory = memory
        self._uploads = uploads
        self._pool = pool
        self._buffers = Buffers()

    async def receive(
        self,
        state_id: str,
        name: str,
        body: AsyncIterator[bytes],
        length: int | None,
        digests: Mapping[str, bytes],
    ) -> Receipt:
        """Take in one component.

        Args:
            state_id: a recording under way.
            name: a component it announced.
            body: the bytes in order; whatever it raises ends the upload.
            length: what the sender says it will send, if it says so.
            digests: what the bytes must hash to, by RFC 9530 algorithm name (sha-256, sha-512).

        Raises:
            NotFound: no such recording, or it did not announce the component.
            Conflicting: the component has arrived, or is being uploaded.
            InvalidInput: length or digest are not as announced.
            Refused, Unavailable: no room, or the writer has stopped.
        """
        recording, component = await self._uploads.begin(state_id, name, length=length)
        hashers = {"blake3": blake3()} | {algorithm: _DIGESTS[algorithm]() for algorithm in digests}

        def check() -> None:
            for algorithm, expected in digests.items():
                if hashers[algorithm].digest() != expected:
                    raise InvalidInput(
                        "digest_mismatch",
                        f"the body does not have the announced {algorithm} digest",
                        "Content-Digest",
                    )

        source = Source(body, component.raw_bytes)
        try:
            limits = await self._uploads.limits(recording.state)
            upload = _Upload(recording, component, limits, list(hashers.values()))
            if component.geometry is not None or (
                name == "full" and is_slot_file(await source.peek(HEAD_BYTES))
            ):
                arrival = await self._gather(upload, source, check)
            else:
                await self._stream(upload, source)
                check()
                arrival = Arrival(hashers["blake3"].digest())
            await asyncio.wrap_future(
                self._writer.call(
                    lambda: self._store.finish_component(
                        recording.state, component.ordinal, arrival
                    )
                )
            )
        except NotHeld as error:
            raise NotFound(
                "record_not_found", "the recording was aborted or expired meanwhile"
            ) from error
        except BaseException as error:
            await source.close()
            await self._uploads.forget(recording.state, component.ordinal, error)
            raise
        return Receipt(name, component.raw_bytes, arrival.digest)

    async def _stream(self, upload: _Upload, source: Source) -> None:
        """Blocks in wire order, each batch stored while the next ones arrive."""
        in_order = asyncio.Lock()  # first come, first served: batches are hashed as they were cut

        async def work(batch: Batch, first_seq: int) -> None:
            async with in_order:
                await self._stages.in_thread(Stage.HASH, self._pool, batch.hash, upload.hashers)
            await self._write(upload, batch, first_seq)

        await self._each(fixed(upload.component.raw_bytes).lengths, work, source)
        await source.expect_end()

    async def _gather(self, upload: _Upload, source: Source, check: Callable[[], None]) -> Arrival:
        """The whole component first, then its blocks."""
        spool = await in_thread(self._pool, Spool, self._store.folder.path)
        try:
            await self._into(spool, upload, source)
            check()
            return await self._out_of(spool, upload)
        finally:
            spool.close()

    async def _into(self, spool: Spool, upload: _Upload, source: Source) -> None:
        """All bytes of the body, in order."""
        in_order = asyncio.Lock()

        async def keep(batch: Batch, _: int) -> None:
            async with in_order:
                await in_thread(self._pool, batch.spool, spool, upload.hashers)
            self._buffers.give_back(batch.memory)

        await self._each(fixed(upload.component.raw_bytes).lengths, keep, source)
        await source.expect_end()

    async def _out_of(self, spool: Spool, upload: _Upload) -> Arrival:
        """The blocks of a component that is all there."""
        digest = upload.hashers[0].digest()
        layout, plan = await in_thread(self._pool, self._plan, upload.component, spool)
        lengths = await in_thread(self._pool, lambda: plan.lengths)

        async def cut(batch: Batch, first_seq: int) -> None:
            await self._stages.in_thread(
                Stage.HASH, self._pool, batch.gather, plan, first_seq, spool
            )
            spool.let_go()
            await self._write(upload, batch, first_seq)

        await self._each(lengths, cut)
        if await in_thread(self._pool, spool.digest) != digest:
            raise Unavailable("spool_damaged", "the gathered bytes changed on the device", 5)
        known = upload.component.geometry
        packed = None if layout is None or known is not None else layout.geometry.pack()
        charged = fixed(upload.component.raw_bytes) if known is None else plan
        return Arrival(
            digest,
            geometry=packed,
            row_bytes=0 if layout is None else layout.geometry.row_bytes,
            overhead_bytes=len(packed or b"")
            + ownership_bytes(len(lengths))
            - ownership_bytes(len(charged.lengths)),
        )

    def _plan(self, component: ComponentRow, spool: Spool) -> tuple[Layout | None, Plan]:
        """How a gathered component is cut: by its geometry, the one that it brings, or its content."""
        if component.geometry is not None:
            layout = Layout(Geometry.unpack(component.geometry), component.raw_bytes)
            return layout, layout
        with spool.mapped() as whole:
            found = of_slot_file(whole)
            self._notes.count("geometry", found.status)
            if found.geometry is not None:
                layout = Layout(found.geometry, component.raw_bytes)
                return layout, layout
            return None, by_content(whole)

    async def _each(
        self,
        lengths: Sequence[int],
        work: Callable[[Batch, int], Awaitable[None]],
        source: Source | None = None,
    ) -> None:
        """Run `work` on all batches, a few at once; each is filled from `source` first, in order."""
        places = asyncio.Semaphore(_BATCHES_AT_ONCE)
        seq = 0

        async def run(batch: Batch, first_seq: int) -> None:
            try:
                await work(batch, first_seq)
            finally:
                self._memory.release(_COPIES * batch.raw_bytes)
                places.release()

        fault: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as batches:
                for group in groups(lengths):
                    await places.acquire()
                    batch = await self._batch(group, source)
                    batches.create_task(run(batch, seq))
                    seq += len(group)
        except BaseExceptionGroup as group_:
            # The first fault ended the upload; those that followed from it say nothing more.
            fault = group_.exceptions[0]
        try:
            if fault is not None:
                raise fault
        finally:
            # Or the fault, which refers to this frame, would keep all batches until a collection.
            del fault, batches

    async def _batch(self, lengths: Sequence[int], source: Source | None) -> Batch:
        """A batch with its memory taken from the budget, filled if there is a source.

        A client that takes longer than its patience gives the memory back: the rest of the batch is
        kept on the device until it is whole, so that slow clients hold up nobody.
        """
        batch = await self._empty(lengths)
        try:
            if source is None:
                return batch
            if await source.fill(batch, _PATIENCE_S):
                self._notes.count("received_bytes", "plain", batch.raw_bytes)
                return batch
            spool = await in_thread(self._pool, Spool, self._store.folder.path)
        except BaseException:
            self._memory.release(_COPIES * batch.raw_bytes)
            raise
        try:
            return await self._slowly(batch, lengths, source, spool)
        finally:
            spool.close()

    async def _slowly(
        self, batch: Batch, lengths: Sequence[int], source: Source, spool: Spool
    ) -> Batch:
        """Go on with a batch on the device; the memory of the old one is given back."""
        try:
            await in_thread(self._pool, batch.save, spool)
        finally:
            self._memory.release(_COPIES * batch.raw_bytes)
        left = batch.left
        self._notes.count("received_bytes", "plain", batch.raw_bytes - left)
        self._buffers.give_back(batch.memory)
        while left:
            piece = await source.take(left)
            await in_thread(self._pool, spool.write, piece)
            left -= len(piece)
            self._notes.count("received_bytes", "plain", len(piece))
        batch = await self._empty(lengths)
        try:
            await in_thread(self._pool, batch.load, spool)
        except BaseException:
            self._memory.release(_COPIES * batch.raw_bytes)
            raise
        return batch

    async def _empty(self, lengths: Sequence[int]) -> Batch:
        """A batch whose memory is taken from the budget."""
        size = _COPIES * sum(lengths)
        await self._memory.acquire(size)
        try:
            return Batch(lengths, self._buffers)
        except BaseException:
            self._memory.release(size)
            raise

    def _encode(self, upload: _Upload, batch: Batch) -> list[EncodedBlock]:
        """Encoded but for what the uploader's dedupe scope holds: to others it is as new."""
        foreign = self._uploads.foreign(upload.limits, {ref.digest for ref in batch.refs})
        return batch.encode(
            self._store.blocks,
            self._store.generation,
            self._policy.settings.least_gain,
            foreign,
        )

    async def _write(self, upload: _Upload, batch: Batch, first_seq: int) -> None:
        """Encode the blocks and have them owned and written."""
        blocks = await self._stages.in_thread(
            Stage.COMPRESS, self._pool, self._encode, upload, batch
        )
        written = self._writer.write(
            upload.recording.state,
            upload.component.ordinal,
            range(first_seq, first_seq + len(blocks)),
            blocks,
            upload.limits,
        )
        # Whatever becomes of this upload, the writer is done with the memory when this is.
        written.add_done_callback(lambda _: self._buffers.give_back(batch.memory))
        await asyncio.wrap_future(written)
