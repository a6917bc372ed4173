"""Receiving components: cut, hash, compress and write while the bytes arrive, in bounded memory.

The body is copied once, into windows of a few blocks whose memory has room for each block's stored
header in front of it, so that a block that does not shrink is stored from where it was received. A
window is hashed (in order, for the component's digest), encoded and written while the next ones
arrive; the memory budget bounds all windows of the process, and a full writer holds up the socket.

An upload that ends in any other way than whole gives up all it had brought and leaves the recording
open for another try.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from blake3 import blake3
from uuid_utils import uuid7

from app.engine.errors import Conflicting, InvalidInput, NotFound, Unavailable
from app.engine.memory import MemoryBudget
from app.engine.policy import Policy
from app.engine.threads import in_thread
from app.engine.writer import BlockWriter
from storage.blocks.codec import HEADER_BYTES, EncodedBlock, encode_in_place, unencoded
from storage.blocks.store import BlockRef, BlockStore
from storage.cut import FixedCut
from storage.errors import Conflict, NotHeld
from storage.rows import ComponentRow, Limits, RecordingRow
from storage.store import Store

_WINDOW_BYTES: Final = 4 << 20
_WINDOWS_AT_ONCE: Final = 4
_BUFFERS_KEPT: Final = 16
_DIGESTS: Final = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}


class _Hasher(Protocol):
    def update(self, data: memoryview, /) -> object: ...

    def digest(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Receipt:
    """A component that has arrived whole. `digest` is BLAKE3-256 of its bytes."""

    name: str
    raw_bytes: int
    digest: bytes
    blocks: int


class Recorder:
    """Takes in the components of recordings."""

    def __init__(
        self,
        store: Store,
        writer: BlockWriter,
        policy: Policy,
        memory: MemoryBudget,
        small: Executor,
        pool: Executor,
    ) -> None:
        self._store = store
        self._writer = writer
        self._policy = policy
        self._memory = memory
        self._small = small
        self._pool = pool
        self._buffers = _Buffers()

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
        recording, component = await self._begin(state_id, name, length)
        hashers = {"blake3": blake3()} | {algorithm: _DIGESTS[algorithm]() for algorithm in digests}
        try:
            namespace = await in_thread(
                self._small, self._store.catalog.namespace_by_id, recording.state.namespace_id
            )
            limits = self._policy.limits(namespace)
            blocks = await self._take(recording, component, body, limits, list(hashers.values()))
            for algorithm, expected in digests.items():
                if hashers[algorithm].digest() != expected:
                    raise InvalidInput(
                        "digest_mismatch",
                        f"the body does not have the announced {algorithm} digest",
                        "Content-Digest",
                    )
            digest = hashers["blake3"].digest()
            await asyncio.wrap_future(
                self._writer.call(
                    lambda: self._store.finish_component(recording.state, component.ordinal, digest)
                )
            )
        except NotHeld as error:
            raise NotFound(
                "record_not_found", "the recording was aborted or expired meanwhile"
            ) from error
        except BaseException:
            # In order behind the writes of this upload; nobody has to wait for it.
            self._writer.call(
                lambda: self._store.forget_component(recording.state, component.ordinal)
            )
            raise
        return Receipt(name, component.raw_bytes, digest, blocks)

    async def _begin(
        self, state_id: str, name: str, length: int | None
    ) -> tuple[RecordingRow, ComponentRow]:
        recording = await in_thread(self._small, self._store.catalog.recording, state_id)
        if recording is None:
            state = self._store.catalog.state(state_id)
            if state is not None:
                raise Conflicting("record_committed", "the recording has been committed")
            raise NotFound("record_not_found", "no such recording is under way")
        component = next((c for c in recording.components if c.name == name), None)
        if component is None:
            raise NotFound("component_not_announced", "admission did not name this component")
        if length is not None and length != component.raw_bytes:
            raise InvalidInput(
                "length_mismatch",
                f"{component.raw_bytes} bytes were announced and {length} are being sent",
                "Content-Length",
            )
        if component.digest is not None:
            raise Conflicting("component_complete", "the component has arrived already")
        if self._writer.stopped:
            raise Unavailable("stopped", "the writer has stopped", 30)
        try:
            await in_thread(self._small, self._store.begin_component, state_id, name, str(uuid7()))
        except NotHeld as error:
            raise NotFound("record_not_found", "no such recording is under way") from error
        except Conflict as error:
            raise Conflicting("upload_in_progress", "the component is being uploaded") from error
        return recording, component

    async def _take(
        self,
        recording: RecordingRow,
        component: ComponentRow,
        body: AsyncIterator[bytes],
        limits: Limits,
        hashers: Sequence[_Hasher],
    ) -> int:
        """Receive all windows; returns the number of blocks."""
        source = _Source(body, component.raw_bytes)
        in_order = asyncio.Lock()  # first come, first served: windows are hashed as they were cut
        places = asyncio.Semaphore(_WINDOWS_AT_ONCE)
        seq = 0
        try:
            async with asyncio.TaskGroup() as windows:
                for lengths in _windows(component.raw_bytes):
                    await places.acquire()
                    await self._memory.acquire(sum(lengths))
                    window = _Window(lengths, self._buffers)
                    try:
                        await source.fill(window)
                    except BaseException:
                        self._memory.release(sum(lengths))
                        raise
                    windows.create_task(
                        self._store_window(
                            recording,
                            component.ordinal,
                            seq,
                            window,
                            limits,
                            hashers,
                            in_order,
                            places,
                        )
                    )
                    seq += len(lengths)
                await source.expect_end()
        except BaseExceptionGroup as group:
            # The first fault ended the upload; those that followed from it say nothing more.
            raise group.exceptions[0] from None
        return seq

    async def _store_window(
        self,
        recording: RecordingRow,
        ordinal: int,
        first_seq: int,
        window: _Window,
        limits: Limits,
        hashers: Sequence[_Hasher],
        in_order: asyncio.Lock,
        places: asyncio.Semaphore,
    ) -> None:
        try:
            async with in_order:
                await in_thread(self._pool, window.hash, hashers)
            blocks = await in_thread(
                self._pool,
                window.encode,
                self._store.blocks,
                self._store.generation,
                self._policy.settings.least_gain,
            )
            written = self._writer.write(recording.state, ordinal, first_seq, blocks, limits)
            # Whatever becomes of this upload, the writer is done with the memory when this is.
            written.add_done_callback(lambda _: self._buffers.give_back(window.memory))
            await asyncio.wrap_future(written)
        finally:
            self._memory.release(window.raw_bytes)
            places.release()


class _Buffers:
    """Window memory to be used again: new memory costs a page fault for every 4 KiB of it."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """At least `size` bytes of whatever content."""
        # Memory is given back on the writer's thread: taken first, looked at then.
        with suppress(IndexError):
            memory = self._free.pop()
            if len(memory) >= size > len(memory) // 2:
                return memory
        return bytearray(size)

    def give_back(self, memory: bytearray) -> None:
        """Nobody reads or writes it any more."""
        if len(memory) > _WINDOW_BYTES and len(self._free) < _BUFFERS_KEPT:
            self._free.append(memory)


class _Window:
    """Memory for a few blocks, each with room for its stored header in front."""

    def __init__(self, lengths: Sequence[int], buffers: _Buffers) -> None:
        self.raw_bytes = sum(lengths)
        self.memory = buffers.take(self.raw_bytes + HEADER_BYTES * len(lengths))
        memory = memoryview(self.memory)
        self.blocks: list[memoryview] = []
        self._refs: list[BlockRef] = []
        start = 0
        for length in lengths:
            end = start + HEADER_BYTES + length
            self.blocks.append(memory[start:end])
            start = end

    def hash(self, hashers: Sequence[_Hasher]) -> None:
        """Digest each block, and the component as it goes on, while the block is in the cache."""
        for block in self.blocks:
            raw = block[HEADER_BYTES:]
            self._refs.append(BlockRef(blake3(raw).digest(), len(raw)))
            for hasher in hashers:
                hasher.update(raw)

    def encode(self, store: BlockStore, generation: int, least_gain: float) -> list[EncodedBlock]:
        """Compress the blocks that the store does not hold."""
        held = store.stored_bytes(self._refs)
        return [
            encode_in_place(block, ref.digest, generation=generation, least_gain=least_gain)
            if value_bytes is None
            else unencoded(
                block, ref.digest, value_bytes, generation=generation, least_gain=least_gain
            )
            for block, ref, value_bytes in zip(self.blocks, self._refs, held, strict=True)
        ]


class _Source:
    """The body, handed out in pieces of the sizes asked for."""

    def __init__(self, body: AsyncIterator[bytes], expected: int) -> None:
        self._body = body
        self._expected = expected
        self._got = 0
        self._rest = memoryview(b"")

    async def fill(self, window: _Window) -> None:
        """Fill a window's blocks."""
        for block in window.blocks:
            target = block[HEADER_BYTES:]
            while target:
                if not self._rest:
                    self._rest = memoryview(await self._next())
                size = min(len(target), len(self._rest))
                target[:size] = self._rest[:size]
                target, self._rest = target[size:], self._rest[size:]

    async def expect_end(self) -> None:
        """Nothing may follow."""
        if self._rest:
            raise self._wrong("more than")
        async for _ in self._body:
            raise self._wrong("more than")

    async def _next(self) -> bytes:
        chunk = await anext(self._body, None)
        if chunk is None:
            raise self._wrong(f"{self._got} of")
        self._got += len(chunk)
        return chunk

    def _wrong(self, sent: str) -> InvalidInput:
        return InvalidInput(
            "length_mismatch",
            f"{self._expected} bytes were announced and {sent} them were sent",
            "body",
        )


def _windows(component_bytes: int) -> Iterator[list[int]]:
    """Block lengths of a component, in groups of about one window."""
    group: list[int] = []
    for length in FixedCut().plan(component_bytes).lengths:
        group.append(length)
        if sum(group) >= _WINDOW_BYTES:
            yield group
            group = []
    if group:
        yield group
