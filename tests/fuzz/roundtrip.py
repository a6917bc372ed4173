"""What must hold of every layout that was accepted, whoever made it up."""

from __future__ import annotations

from typing import Final

import numpy as np

from app.engine.errors import InvalidPayload
from app.engine.geometry import Geometry, Layout

_MOST_BLOCKS: Final = 2048


def apart_and_together(layout: Layout, data: bytes) -> None:
    """Every byte lies in one block, and comes back to its place: whole, in part, and from storage."""
    assert Geometry.unpack(layout.geometry.pack()) == layout.geometry
    if layout.block_count > _MOST_BLOCKS:
        return
    lengths = layout.lengths
    assert len(lengths) == layout.block_count
    assert sum(lengths) == len(data) == layout.raw_bytes
    blocks = []
    for seq, length in enumerate(lengths):
        assert length > 0
        if seq < layout.windows:
            assert length == layout.window_bytes(seq)
        block = bytearray(length)
        layout.gather(seq, data, block)
        blocks.append(block)
    whole = np.empty(len(data), dtype=np.uint8)
    for seq, block in enumerate(blocks):
        layout.scatter(seq, block, whole)
    assert whole.tobytes() == data
    start, end = len(data) // 3, len(data) - len(data) // 4
    if start < end:
        part = np.empty(end - start, dtype=np.uint8)
        for seq in layout.needed(start, end):
            layout.scatter(seq, blocks[seq], part, start)
        assert part.tobytes() == data[start:end]
    rows = layout.geometry.rows // 2
    if rows:
        _shorter(layout, blocks, data, rows)


def _shorter(layout: Layout, blocks: list[bytearray], data: bytes, rows: int) -> None:
    try:
        shorter = layout.prefix(rows)
    except InvalidPayload:
        return
    if shorter is None:
        return
    cut = np.zeros(shorter.raw_bytes, dtype=np.uint8)
    for seq in layout.of_rows(0, rows):
        layout.scatter(seq, blocks[seq], cut, onto=shorter)
    expected = b"".join(
        data[start : start + rows * group.stride]
        for group in layout.geometry.groups
        for start in range(
            group.offset, group.offset + group.count * max(1, group.spacing), max(1, group.spacing)
        )[: group.count]
    )
    assert cut.tobytes() == expected
