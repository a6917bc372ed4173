"""Giving states back in the native form: stored values as they lie, and what a client needs to verify,
decode and place each of them.

Only the blocks asked for are read. The first pass checks each value in place (header, key and checksum)
and notes its length; the second copies it inside a short read transaction and checks the copy, which
is what is sent. A value is not decoded here: the client that decodes it proves it by its digest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass

from app.engine.framing import FRAME_BYTES, FrameKind, frame, head
from app.engine.geometry import Layout
from app.engine.manifest import Manifest, Part, shortened
from app.engine.reader import Reader
from app.engine.steps import in_steps, read_ahead
from app.engine.threads import in_thread, in_two
from storage.blocks.codec import Buffer
from storage.blocks.store import BlockRef, Held, StoredForm
from storage.errors import BlockFault, BlockMissing
from storage.rows import StateRow
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Selection:
    """Which blocks a client wants: not those it has, and of token windows those with `tokens`."""

    have: frozenset[bytes] = frozenset()
    tokens: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Sent:
    """A block to be sent: its component's place and its own, and the length of its value."""

    component: int
    seq: int
    ref: BlockRef
    value_bytes: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A state whose chosen blocks have passed the first pass."""

    manifest: Manifest
    preface: bytes
    blocks: tuple[_Sent, ...]
    stream_bytes: int
    """length of the whole block stream"""


class BlockReader:
    """Reads the stored values of states."""

    def __init__(self, store: Store, reader: Reader, pool: Executor) -> None:
        self._store = store
        self._reader = reader
        self._pool = pool

    async def open(
        self, state: StateRow, selection: Selection, prefix_tokens: int | None = None
    ) -> Stored:
        """First pass over the blocks that are to be sent.

        Raises:
            StateFault: something about the state is not as it was recorded.
        """
        manifest = await in_thread(self._pool, self._reader.manifest, state)
        if prefix_tokens is not None:
            manifest = await in_thread(self._pool, shortened, manifest, prefix_tokens)
        chosen = await in_thread(self._pool, _chosen, manifest, selection)

        def measure(some: Sequence[tuple[int, int, BlockRef]]) -> list[_Sent]:
            forms = self._store.blocks.forms([ref for _, _, ref in some])
            return [
                _Sent(component, seq, ref, self._size(manifest, component, seq, ref, form))
                for (component, seq, ref), form in zip(some, forms, strict=True)
            ]

        measured = await in_two(self._pool, measure, chosen)
        blocks = tuple(block for half in measured for block in half)
        return await in_thread(self._pool, _stored, manifest, blocks)

    async def stream(self, stored: Stored) -> AsyncIterator[Buffer]:
        """The block stream; chunks belong to the caller.

        Raises:
            StateFault: a block failed; what was yielded before is right, the rest must not follow.
            BlockMissing: the state has gone, or a block was stored anew while it was being sent.
        """
        yield stored.preface

        def read(blocks: Sequence[_Sent]) -> Buffer:
            return self._read(stored, blocks)

        steps = in_steps(stored.blocks, lambda block: block.value_bytes)
        async with aclosing(read_ahead(self._pool, read, steps)) as steps_read:
            async for frames in steps_read:
                yield frames
        yield frame(FrameKind.END, 0, 0, 0)

    def _read(self, stored: Stored, blocks: Sequence[_Sent]) -> Buffer:
        """Frames of some blocks, one behind another."""
        try:
            frames, sizes = self._store.blocks.values([b.ref for b in blocks], FRAME_BYTES)
        except BlockFault as error:
            block = next(b for b in blocks if b.ref.digest == error.digest)
            name = stored.manifest.parts[block.component].name
            raise self._reader.fault(stored.manifest.state, name, block.seq, error) from error
        at = 0
        for block, size in zip(blocks, sizes, strict=True):
            if size != block.value_bytes:
                raise BlockMissing("the block was stored anew meanwhile", block.ref.digest)
            frames[at : at + FRAME_BYTES] = frame(FrameKind.BLOCK, block.component, block.seq, size)
            at += FRAME_BYTES + size
        return frames

    def _size(
        self, manifest: Manifest, component: int, seq: int, ref: BlockRef, form: StoredForm | None
    ) -> int:
        if form is not None:
            return form.value_bytes
        error: BlockFault = BlockFault("the stored block is damaged or missing", ref.digest)
        if self._store.blocks.held([ref]) == [Held.ABSENT]:
            error = BlockMissing("the block is not there", ref.digest)
        raise self._reader.fault(manifest.state, manifest.parts[component].name, seq, error)


def _chosen(manifest: Manifest, selection: Selection) -> list[tuple[int, int, BlockRef]]:
    return [
        (place, seq, part.blocks[seq])
        for place, part in enumerate(manifest.parts)
        for seq in _wanted(part, selection.tokens)
        if part.blocks[seq].digest not in selection.have
    ]


def _wanted(part: Part, tokens: tuple[int, int] | None) -> Sequence[int]:
    if part.layout is None:
        return range(len(part.blocks))
    whole = part.needed(0, part.raw_bytes)
    if tokens is None:
        return whole
    assert part.onto is not None
    first, last = tokens
    rows = set(part.layout.of_rows(first, min(last, part.onto.geometry.rows)))
    return [seq for seq in whole if seq in rows or seq >= part.layout.windows]


def _stored(manifest: Manifest, blocks: tuple[_Sent, ...]) -> Stored:
    document = _document(manifest)
    preface = b"".join(
        (head(len(blocks) + 2), frame(FrameKind.MANIFEST, 0, 0, len(document)), document)
    )
    frames_bytes = (len(blocks) + 1) * FRAME_BYTES + sum(block.value_bytes for block in blocks)
    return Stored(manifest, preface, blocks, len(preface) + frames_bytes)


def _document(manifest: Manifest) -> bytes:
    """The manifest as clients see it (docs/native.md)."""
    state = manifest.state
    document = {
        "version": 1,
        "state_id": state.state_id,
        "page_id": state.page_id,
        "kind": state.kind,
        "token_count": state.token_count,
        "kv_descriptor": None if state.kv_descriptor is None else json.loads(state.kv_descriptor),
        "components": [_component(part) for part in manifest.parts],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _component(part: Part) -> dict[str, object]:
    digest = part.bytes_digest
    return {
        "name": part.name,
        "bytes": part.raw_bytes,
        "digest": None if digest is None else digest.hex(),
        "element": None if part.layout is None else part.layout.geometry.element,
        "window_rows": None if part.layout is None else part.layout.window_rows,
        # Where the blocks were cut from, and where their rows belong in these bytes.
        "runs": None if part.layout is None else _runs(part.layout),
        "target_runs": None if part.onto is part.layout else _runs(part.onto),
        "blocks": [[ref.digest.hex(), ref.raw_bytes] for ref in part.blocks],
    }


def _runs(layout: Layout | None) -> list[dict[str, int]]:
    assert layout is not None
    return [
        {
            "offset": group.offset,
            "stride": group.stride,
            "rows": group.rows,
            "first_row": group.first_row,
            "count": group.count,
            "spacing": group.spacing,
        }
        for group in layout.geometry.groups
    ]
