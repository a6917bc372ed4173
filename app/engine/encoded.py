"""Giving components back zstd-encoded (RFC 8878) where their stored form allows it.

Blocks that are stored as zstd frames go out as they are; a block that is stored raw between them is put
into a frame of raw blocks. Frames one after another are a zstd stream, so nothing is compressed anew.
Byte planes are no encoding that HTTP knows: a component with one, or one of token windows, is not
given back this way, and neither is one that it would hardly shorten.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from app.engine.manifest import Manifest, Part
from app.engine.reader import Reader
from app.engine.steps import in_steps, read_ahead
from app.engine.threads import in_thread, in_two
from storage.blocks.codec import HEADER_BYTES, RAW, ZSTD, Buffer, codec_of
from storage.blocks.store import BlockRef
from storage.errors import BlockFault, BlockMissing
from storage.rows import StateRow
from storage.store import Store

# Worth it from here on: below, a client that decodes has more work than it saves.
_MOST_OF_RAW: Final = 0.9
# RFC 8878, 3.1.1: magic; single segment with a content size of 4 bytes; blocks of at most 128 KiB.
_FRAME: Final = struct.Struct("<IBI")
_MAGIC: Final = 0xFD2FB528
_SINGLE_SEGMENT_4_BYTES: Final = 0xA0
_MOST_BLOCK_BYTES: Final = 128 << 10
_BLOCK_HEADER_BYTES: Final = 3


@dataclass(frozen=True, slots=True)
class _Sent:
    part: str
    seq: int
    ref: BlockRef
    codec: int
    value_bytes: int

    @property
    def wire_bytes(self) -> int:
        if self.codec == ZSTD:
            return self.value_bytes - HEADER_BYTES
        blocks = -(-self.ref.raw_bytes // _MOST_BLOCK_BYTES)
        return _FRAME.size + blocks * _BLOCK_HEADER_BYTES + self.ref.raw_bytes


@dataclass(frozen=True, slots=True)
class Encoded:
    """A state, or one component of it, that goes out encoded."""

    manifest: Manifest
    blocks: tuple[_Sent, ...]
    stream_bytes: int
    """length of the encoded body"""


class EncodedReader:
    """Reads states whose stored form is an encoding of HTTP."""

    def __init__(self, store: Store, reader: Reader, pool: Executor) -> None:
        self._store = store
        self._reader = reader
        self._pool = pool

    async def open(self, state: StateRow, component: str | None) -> Encoded | None:
        """First pass over all components, or one; None where the stored form does not allow it.

        A damaged or missing block is left to be found by who reads the plain form.

        Raises:
            StateFault: the manifest is not as it was sealed.
        """
        manifest = await in_thread(self._pool, self._reader.manifest, state)
        parts = [p for p in manifest.parts if component in (None, p.name)]
        if any(part.layout is not None for part in parts):
            return None
        wanted = await in_thread(self._pool, _places, parts)

        def look(some: Sequence[tuple[str, int, BlockRef]]) -> list[_Sent | None]:
            forms = self._store.blocks.forms([ref for _, _, ref in some])
            return [
                None if form is None else _Sent(name, seq, ref, form.codec, form.value_bytes)
                for (name, seq, ref), form in zip(some, forms, strict=True)
            ]

        halves = await in_two(self._pool, look, wanted)
        return await in_thread(self._pool, _worth_it, manifest, parts, halves)

    async def stream(self, encoded: Encoded) -> AsyncIterator[Buffer]:
        """The encoded body; chunks belong to the caller.

        Raises:
            StateFault: a block failed; what was yielded before is right, the rest must not follow.
            BlockMissing: the state has gone, or a block was stored anew while it was being sent.
        """

        def read(blocks: Sequence[_Sent]) -> list[Buffer]:
            return self._read(encoded, blocks)

        steps = in_steps(encoded.blocks, lambda block: block.value_bytes)
        async with aclosing(read_ahead(self._pool, read, steps)) as chunks_of_steps:
            async for chunks in chunks_of_steps:
                for chunk in chunks:
                    yield chunk

    def _read(self, encoded: Encoded, blocks: Sequence[_Sent]) -> list[Buffer]:
        try:
            values, sizes = self._store.blocks.values([block.ref for block in blocks], 0)
        except BlockFault as error:
            block = next(b for b in blocks if b.ref.digest == error.digest)
            raise self._reader.fault(
                encoded.manifest.state, block.part, block.seq, error
            ) from error
        chunks: list[Buffer] = []
        at = 0
        for block, size in zip(blocks, sizes, strict=True):
            if size != block.value_bytes or codec_of(values[at:]) != block.codec:
                raise BlockMissing("the block was stored anew meanwhile", block.ref.digest)
            payload = values[at + HEADER_BYTES : at + size]
            chunks += [payload] if block.codec == ZSTD else _framed(payload)
            at += size
        return chunks


def _places(parts: Sequence[Part]) -> list[tuple[str, int, BlockRef]]:
    return [(part.name, seq, ref) for part in parts for seq, ref in enumerate(part.blocks)]


def _worth_it(
    manifest: Manifest, parts: Sequence[Part], halves: Sequence[Sequence[_Sent | None]]
) -> Encoded | None:
    found = [block for half in halves for block in half]
    blocks = tuple(b for b in found if b is not None and b.codec in (RAW, ZSTD))
    stream_bytes = sum(block.wire_bytes for block in blocks)
    if len(blocks) != len(found) or stream_bytes > _MOST_OF_RAW * sum(p.raw_bytes for p in parts):
        return None
    return Encoded(manifest, blocks, stream_bytes)


def _framed(raw: memoryview) -> list[Buffer]:
    """A frame of raw blocks around the bytes, which are not copied."""
    chunks: list[Buffer] = [_FRAME.pack(_MAGIC, _SINGLE_SEGMENT_4_BYTES, len(raw))]
    for start in range(0, len(raw), _MOST_BLOCK_BYTES):
        piece = raw[start : start + _MOST_BLOCK_BYTES]
        last = start + len(piece) == len(raw)
        chunks += [(len(piece) << 3 | last).to_bytes(_BLOCK_HEADER_BYTES, "little"), piece]
    return chunks
