"""Where a component is cut into blocks. A seam: what plans the cuts may know layouts, what stores the
pieces never does.

A plan depends on nothing but the component's length, so that equal leading bytes of two components
give equal blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.blocks.codec import HEADER_BYTES

# LMDB keeps a large value on whole pages behind a header of 16 bytes (FACTS 3.C). A full block stored
# raw takes exactly 256 pages of 4 KiB; one byte more would waste a page.
FIXED_CUT_BYTES: Final = (1 << 20) - 16 - HEADER_BYTES


@dataclass(frozen=True, slots=True)
class CutPlan:
    """Block lengths in order; block i holds the bytes behind those of the blocks before it."""

    lengths: tuple[int, ...]


class FixedCut:
    """Blocks of one size, the last one shorter."""

    def __init__(self, block_bytes: int = FIXED_CUT_BYTES) -> None:
        self._block_bytes = block_bytes

    def plan(self, component_bytes: int) -> CutPlan:
        """Cuts for a component of that many bytes; an empty component has no block."""
        whole, rest = divmod(component_bytes, self._block_bytes)
        return CutPlan((self._block_bytes,) * whole + ((rest,) if rest else ()))
