"""Memory for a few blocks on their way into the store, and what threads do with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from blake3 import blake3

from app.engine.cutting import Plan
from app.engine.spool import Spool
from storage.blocks.codec import HEADER_BYTES, EncodedBlock, encode_in_place, unencoded
from storage.blocks.store import BlockRef, BlockStore

BATCH_BYTES: Final = 4 << 20
_BUFFERS_KEPT: Final = 8


class Hasher(Protocol):
    """An incremental digest."""

    def update(self, data: memoryview, /) -> object:
        """Go on with these bytes."""

    def digest(self) -> bytes:
        """The digest of all bytes so far."""


class Buffers:
    """Batch memory to be used again: new memory costs a page fault for every 4 KiB of it."""

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
        if len(memory) > BATCH_BYTES and len(self._free) < _BUFFERS_KEPT:
            self._free.append(memory)


class Batch:
    """Memory for a few blocks, each with room for its stored header in front."""

    def __init__(self, lengths: Sequence[int], buffers: Buffers) -> None:
        self.raw_bytes = sum(lengths)
        self.memory = buffers.take(self.raw_bytes + HEADER_BYTES * len(lengths))
        memory = memoryview(self.memory)
        self.blocks: list[memoryview] = []
        self.refs: list[BlockRef] = []
        self._filled = self._current = self._offset = 0
        start = 0
        for length in lengths:
            end = start + HEADER_BYTES + length
            self.blocks.append(memory[start:end])
            start = end

    @property
    def left(self) -> int:
        """Raw bytes that have not come yet."""
        return self.raw_bytes - self._filled

    def take(self, piece: memoryview) -> int:
        """Copy the next bytes in, as many as there is room for; returns how many."""
        taken = 0
        while taken < len(piece) and self._current < len(self.blocks):
            target = self.blocks[self._current][HEADER_BYTES + self._offset :]
            size = min(len(target), len(piece) - taken)
            target[:size] = piece[taken : taken + size]
            taken += size
            self._offset += size
            if size == len(target):
                self._current, self._offset = self._current + 1, 0
        self._filled += taken
        return taken

    def save(self, spool: Spool) -> None:
        """Append to a spool what has come so far."""
        left = self._filled
        for block in self.blocks:
            raw = block[HEADER_BYTES:][:left]
            spool.write(raw)
            left -= len(raw)

    def load(self, spool: Spool) -> None:
        """Take all bytes from where they were kept."""
        with spool.mapped() as whole:
            self.take(whole)

    def gather(self, plan: Plan, first_seq: int, spool: Spool) -> None:
        """Fill the blocks from a whole component, and digest each."""
        with spool.mapped() as whole:
            for index, block in enumerate(self.blocks):
                raw = block[HEADER_BYTES:]
                plan.gather(first_seq + index, whole, raw)
                self.refs.append(BlockRef(blake3(raw).digest(), len(raw)))

    def spool(self, spool: Spool, hashers: Sequence[Hasher]) -> None:
        """Append the bytes to a spool, and go on with the component's digests."""
        for block in self.blocks:
            raw = block[HEADER_BYTES:]
            for hasher in hashers:
                hasher.update(raw)
            spool.write(raw)

    def hash(self, hashers: Sequence[Hasher]) -> None:
        """Digest each block, and the component as it goes on, while the block is in the cache."""
        for block in self.blocks:
            raw = block[HEADER_BYTES:]
            self.refs.append(BlockRef(blake3(raw).digest(), len(raw)))
            for hasher in hashers:
                hasher.update(raw)

    def encode(
        self,
        store: BlockStore,
        generation: int,
        least_gain: float,
        foreign: Collection[bytes] = frozenset(),
    ) -> list[EncodedBlock]:
        """Compress the blocks that the store does not hold.

        Args:
            foreign: digests of those that are to be treated as if it did not, whether it does or not.
        """
        held = [
            None if ref.digest in foreign else form
            for ref, form in zip(self.refs, store.forms(self.refs), strict=True)
        ]
        encoded = [
            encode_in_place(block, ref.digest, generation=generation, least_gain=least_gain)
            if form is None
            else unencoded(
                block, ref.digest, form.value_bytes, generation=generation, least_gain=least_gain
            )
            for block, ref, form in zip(self.blocks, self.refs, held, strict=True)
        ]
        for block in encoded:
            block.anew = block.digest in foreign
        return encoded


def groups(lengths: Sequence[int]) -> Iterator[Sequence[int]]:
    """Block lengths in groups of about one batch."""
    first = size = 0
    for index, length in enumerate(lengths):
        size += length
        if size >= BATCH_BYTES:
            yield lengths[first : index + 1]
            first, size = index + 1, 0
    if first < len(lengths):
        yield lengths[first:]
