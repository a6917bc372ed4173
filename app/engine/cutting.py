"""Which bytes of a component make which block: a plan for what is in wire order, one for token windows.

A plan says how long each block is and fills it from the whole component. Where nothing is known of a
component's layout, blocks of one size in wire order need no plan ahead (`storage.cut`); where it is a
slot file of a version that we do not know, its content decides, so that inserted headers shift the
cuts along with the bytes (FastCDC: Xia et al., IEEE TPDS 31(9), 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from pyfastcdc import FastCDC

from app.engine.geometry import Layout
from storage.blocks.codec import Buffer
from storage.cut import FIXED_CUT_BYTES, FixedCut

# In a growing slot file 16 KiB finds most of the rows again (DESIGN section 3: 1.15 x newly stored at
# 4 KiB, 2.56 x at 64 KiB); smaller blocks cost more rows of metadata than they save.
_CONTENT_BYTES = 16 << 10


class Plan(Protocol):
    """Blocks of one component, in order."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Raw bytes of each block."""

    def gather(self, seq: int, source: Buffer, block: Buffer) -> None:
        """Fill `block` with what block `seq` holds of the whole component `source`."""


@dataclass(frozen=True, slots=True)
class InOrder:
    """Blocks that follow one another on the wire."""

    lengths: tuple[int, ...]
    _ends: tuple[int, ...]

    def gather(self, seq: int, source: Buffer, block: Buffer) -> None:
        """See `Plan`."""
        end = self._ends[seq]
        memoryview(block)[:] = memoryview(source)[end - self.lengths[seq] : end]


def in_order(lengths: tuple[int, ...]) -> InOrder:
    """The plan of blocks of these lengths."""
    return InOrder(lengths, tuple(accumulate(lengths)))


def fixed(component_bytes: int) -> InOrder:
    """Blocks of one size."""
    return in_order(FixedCut().plan(component_bytes).lengths)


def by_content(component: Buffer) -> InOrder:
    """Blocks that end where the bytes say so."""
    cutter = FastCDC(_CONTENT_BYTES)
    return in_order(tuple(chunk.length for chunk in cutter.cut_buf(memoryview(component))))


def block_count(layout: Layout | None, component_bytes: int) -> int:
    """How many blocks the plan has, counted without making it: whoever asks says how large it is."""
    if layout is not None:
        return layout.block_count
    return -(-component_bytes // FIXED_CUT_BYTES)


def planned(layout: Layout | None, component_bytes: int) -> Plan:
    """The plan of a component with or without geometry."""
    return layout or fixed(component_bytes)
