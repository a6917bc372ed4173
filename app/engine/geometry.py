"""How a component is laid out, and how it is taken apart into token windows and put together again.

A component with geometry holds *rows*, one for each token, in *runs*: row i of a run lies at
`offset + (i - first_row) * stride`, and a run has `rows` of them. Bytes under no run are the *frame*.

Block order of such a component (DESIGN section 3, "Blocks are token windows"):

1. Window w holds rows [w*W, (w+1)*W) of every run, gathered in run order, and is one block.
2. The frame, its pieces in the order of their offsets, is cut into blocks of FIXED_CUT_BYTES.

W is a power of two: the greatest, up to 64, whose window has at most 256 KiB, but as many rows as make
16 KiB and at least 1. It depends on the sum of the strides alone, so a growing prefix shares every full
window with its earlier states.

Runs of one stride that follow each other at one distance are a *group* and are copied by one call,
whether they are sixty layers or thirty thousand columns of a transposed V.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.engine.errors import InvalidPayload
from storage.blocks.codec import Buffer
from storage.cut import FIXED_CUT_BYTES

ELEMENTS: Final = ("opaque", "f16", "bf16", "f32", "q8_0")
MOST_RUNS: Final = 1 << 18
MOST_GROUPS: Final = 4096
MOST_BLOCKS: Final = 1 << 22
MOST_ROW_BYTES: Final = 16 << 20
WINDOW_BYTES: Final = 256 << 10
LEAST_WINDOW_BYTES: Final = 16 << 10
MOST_WINDOW_ROWS: Final = 64
_MOST: Final = 1 << 62
_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BBHI")
_GROUP: Final = struct.Struct("<6Q")

_NUMBERS: Final = {2: np.uint16, 4: np.uint32, 8: np.uint64}

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Runs:
    """A group of `count` equal runs, `spacing` bytes from one to the next.

    Row i, for first_row <= i < first_row + rows, of run j lies at
    `offset + j * spacing + (i - first_row) * stride` and has `stride` bytes.
    """

    offset: int
    stride: int
    rows: int
    first_row: int = 0
    count: int = 1
    spacing: int = 0

    def held(self, first: int, last: int) -> tuple[int, int]:
        """Which of rows [first, last) these runs have; empty as (n, n)."""
        low = max(first, self.first_row)
        return low, max(low, min(last, self.first_row + self.rows))

    def start(self, row: int) -> int:
        """Where that row of the first run lies."""
        return self.offset + (row - self.first_row) * self.stride


@dataclass(frozen=True, slots=True)
class Geometry:
    """The runs of a component, and what its numbers are (`element`, one of ELEMENTS)."""

    groups: tuple[Runs, ...]
    element: str = "opaque"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row over all runs."""
        return sum(group.stride * group.count for group in self.groups)

    @property
    def rows(self) -> int:
        """Rows, counted from the first token."""
        return max((group.first_row + group.rows for group in self.groups), default=0)

    def pack(self) -> bytes:
        """Its stored form: version, element, number of groups, and six u64 a group, little-endian."""
        head = _HEAD.pack(_FORMAT, ELEMENTS.index(self.element), 0, len(self.groups))
        return head + b"".join(
            _GROUP.pack(g.offset, g.stride, g.rows, g.first_row, g.count, g.spacing)
            for g in self.groups
        )

    @staticmethod
    def unpack(packed: bytes) -> Geometry:
        """What `pack` made.

        Raises:
            ValueError: it did not make this.
        """
        try:
            version, element, zero, count = _HEAD.unpack_from(packed)
            if version != _FORMAT or zero or len(packed) != _HEAD.size + count * _GROUP.size:
                raise ValueError("not a packed geometry")
            groups = tuple(Runs(*fields) for fields in _GROUP.iter_unpack(packed[_HEAD.size :]))
            return Geometry(groups, ELEMENTS[element])
        except (struct.error, IndexError) as error:
            raise ValueError("not a packed geometry") from error


def grouped(runs: Iterable[Runs], element: str = "opaque") -> Geometry:
    """A geometry of single runs in order; equal runs at one distance are put into groups."""
    groups: list[Runs] = []
    first: Runs | None = None
    count = spacing = last_offset = 0
    for run in runs:
        if (
            first is not None
            and run.offset > last_offset
            and (run.stride, run.rows, run.first_row) == (first.stride, first.rows, first.first_row)
            and (count == 1 or run.offset - last_offset == spacing)
        ):
            count, spacing, last_offset = count + 1, run.offset - last_offset, run.offset
            continue
        if first is not None:
            groups.append(replace(first, count=count, spacing=spacing))
        first, count, spacing, last_offset = run, 1, 0, run.offset
    if first is not None:
        groups.append(replace(first, count=count, spacing=spacing))
    return Geometry(tuple(groups), element)


def given(document: Mapping[str, Any], raw_bytes: int) -> Geometry:
    """The geometry a client gave: {rows, runs: [{offset, stride, rows?, first_row?}], element?}.

    Unknown keys, labels among them, are passed over.

    Raises:
        InvalidPayload: `invalid_geometry`, with what does not fit.
    """
    rows = _integer(document.get("rows"), "rows")
    element = document.get("element", "opaque")
    if element not in ELEMENTS:
        raise _bad(f"element is one of {', '.join(ELEMENTS)}", "element")
    runs = document.get("runs")
    if not isinstance(runs, list) or not runs:
        raise _bad("runs is a list of at least one run", "runs")
    if len(runs) > MOST_RUNS:
        raise _bad(f"at most {MOST_RUNS} runs", "runs")
    geometry = grouped((_run(run, index, rows) for index, run in enumerate(runs)), element)
    if geometry.rows != rows:
        raise _bad("the longest run has as many rows as rows says", "rows")
    Layout(geometry, raw_bytes)
    return geometry


class Layout:
    """A geometry over a component of `raw_bytes`: its blocks, and the way in and out of them."""

    def __init__(self, geometry: Geometry, raw_bytes: int) -> None:
        """
        Raises:
            InvalidPayload: `invalid_geometry`: runs overlap, leave the component, or are too many.
        """
        if len(geometry.groups) > MOST_GROUPS:
            raise _bad(f"more than {MOST_GROUPS} runs without a regular distance", "runs")
        if sum(group.count for group in geometry.groups) > MOST_RUNS:
            raise _bad(f"at most {MOST_RUNS} runs", "runs")
        for group in geometry.groups:
            _check_group(group, raw_bytes)
        if not 0 < geometry.row_bytes <= MOST_ROW_BYTES:
            raise _bad(f"a row over all runs has 1 to {MOST_ROW_BYTES} bytes", "runs")
        if not any(g.first_row == 0 and g.rows == geometry.rows for g in geometry.groups):
            raise _bad("at least one run has every row", "runs")
        self.geometry = geometry
        self.raw_bytes = raw_bytes
        self.window_rows = window_rows(geometry.row_bytes)
        self.windows = -(-geometry.rows // self.window_rows)
        # Before anything is counted out: whoever announces a component says how large it is.
        if self.windows > MOST_BLOCKS or raw_bytes > MOST_BLOCKS * FIXED_CUT_BYTES:
            raise _bad(f"more than {MOST_BLOCKS} blocks", "runs")
        self._frame = _gaps(geometry.groups, raw_bytes)

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes under no run."""
        return int((self._frame[:, 1] - self._frame[:, 0]).sum())

    @property
    def block_count(self) -> int:
        """How many blocks there are; no window is empty, so that none need be counted out."""
        return self.windows + -(-self.frame_bytes // FIXED_CUT_BYTES)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Raw bytes of each block: windows, then pieces of the frame."""
        whole, rest = divmod(self.frame_bytes, FIXED_CUT_BYTES)
        frame = [FIXED_CUT_BYTES] * whole + ([rest] if rest else [])
        return (*self._window_lengths(), *frame)

    def _window_lengths(self) -> list[int]:
        """`window_bytes` of every window, at the cost of windows plus groups, not of their product.

        The bytes of all rows before row r grow linearly between the rows where a group begins or
        ends. Each such bend adds its (change of slope) * (r - bend).
        """
        groups = self.geometry.groups
        first = np.array([g.first_row for g in groups], dtype=np.int64)
        last = first + np.array([g.rows for g in groups], dtype=np.int64)
        slope = np.array([g.count * g.stride for g in groups], dtype=np.int64)
        bends, slopes = np.append(first, last), np.append(slope, -slope)
        order = np.argsort(bends)
        bends, slopes = bends[order], slopes[order]
        edges = np.arange(self.windows + 1, dtype=np.int64) * self.window_rows
        passed = np.searchsorted(bends, edges)
        slope_there = np.append(0, np.cumsum(slopes))[passed]
        bent = np.append(0, np.cumsum(slopes * bends))[passed]
        lengths: list[int] = np.diff(edges * slope_there - bent).tolist()
        return lengths

    def window_bytes(self, window: int) -> int:
        """Raw bytes of one window."""
        first = window * self.window_rows
        total = 0
        for group in self.geometry.groups:
            low, high = group.held(first, first + self.window_rows)
            total += group.count * (high - low) * group.stride
        return total

    def gather(self, seq: int, source: Buffer, block: Buffer) -> None:
        """Copy what block `seq` holds out of a whole component."""
        target = np.frombuffer(block, dtype=np.uint8)
        if seq < self.windows:
            for _, at, length, shape, group, low in self._pieces(seq, self):
                _copy(target[at : at + length].reshape(shape), _runs(source, group, low, shape))
            return
        view = np.frombuffer(source, dtype=np.uint8)
        for start, end, at in self._frame_pieces(seq):
            target[at : at + end - start] = view[start:end]

    def scatter(
        self,
        seq: int,
        block: Buffer,
        target: Bytes,
        start: int = 0,
        onto: Layout | None = None,
    ) -> None:
        """Copy a block into its places among bytes [start, start + len(target)) of the component.

        Args:
            onto: another layout of the same runs with fewer rows, for a prefix of the component.
        """
        onto = onto or self
        source = np.frombuffer(block, dtype=np.uint8)
        end = start + len(target)
        if seq >= self.windows:
            for piece, stop, at in self._frame_pieces(seq, start, end):
                low, high = max(piece, start), min(stop, end)
                target[low - start : high - start] = source[at + low - piece : at + high - piece]
            return
        for index, at, length, shape, _, low in self._pieces(seq, onto):
            place = onto.geometry.groups[index]
            runs = source[at : at + length].reshape(place.count, -1)[:, : shape[1]]
            first = place.start(low)
            last = first + (place.count - 1) * place.spacing + shape[1]
            if start <= first and last <= end:
                _copy(_runs(target, replace(place, offset=place.offset - start), low, shape), runs)
                continue
            for run in _touched(place, first, shape[1], start, end):
                from_ = first + run * place.spacing
                cut, stop = max(from_, start), min(from_ + shape[1], end)
                target[cut - start : stop - start] = runs[run, cut - from_ : stop - from_]

    def needed(self, start: int, end: int) -> list[int]:
        """The blocks that hold any of bytes [start, end), in order."""
        wanted = np.zeros(self.windows, dtype=bool)
        for group in self.geometry.groups:
            size = group.rows * group.stride
            for run in _touched(group, group.offset, size, start, end, whole=True):
                from_ = group.offset + run * group.spacing
                low = max(start - from_, 0) // group.stride + group.first_row
                high = -(-min(end - from_, size) // group.stride) + group.first_row
                wanted[low // self.window_rows : -(-high // self.window_rows)] = True
                if wanted.all():
                    break
        found: list[int] = np.flatnonzero(wanted).tolist()
        return found + list(self._frame_blocks(start, end))

    def of_rows(self, first: int, last: int) -> list[int]:
        """The windows that hold any of rows [first, last)."""
        if first >= last:
            return []
        return list(
            range(first // self.window_rows, min(-(-last // self.window_rows), self.windows))
        )

    def prefix(self, rows: int) -> Layout | None:
        """The layout of rows 0 to `rows` alone, runs directly one after another in their order.

        None where that is not the component of the shorter prefix: where a frame would have to
        change with it, or a run does not reach back to the first row.
        """
        groups = self.geometry.groups
        if self.frame_bytes or any(g.first_row or g.rows < rows for g in groups):
            return None
        if any(a.offset >= b.offset for a, b in pairwise(groups)):
            return None
        shorter, offset = [], 0
        for group in groups:
            if group.count > 1 and group.spacing != group.rows * group.stride:
                return None  # interleaved groups: the order of bytes is not the order of groups
            size = rows * group.stride
            shorter.append(replace(group, offset=offset, rows=rows, spacing=size))
            offset += group.count * size
        return Layout(Geometry(tuple(shorter), self.geometry.element), offset)

    def _pieces(
        self, window: int, onto: Layout
    ) -> Iterator[tuple[int, int, int, tuple[int, int], Runs, int]]:
        """For each group with rows in the window: its index, where its bytes begin in the block, their
        number, (runs, bytes of each that `onto` has too), the group, and the first row."""
        first = window * self.window_rows
        at = 0
        for index, group in enumerate(self.geometry.groups):
            low, high = group.held(first, first + self.window_rows)
            length = group.count * (high - low) * group.stride
            kept = min(
                high, onto.geometry.groups[index].first_row + onto.geometry.groups[index].rows
            )
            if kept > low:
                yield index, at, length, (group.count, (kept - low) * group.stride), group, low
            at += length

    def _frame_blocks(self, start: int, end: int) -> range:
        """The blocks that hold bytes of the frame among [start, end)."""
        before, _ = self._frame_ends
        low = int(np.searchsorted(self._frame[:, 1], start, side="right"))
        high = int(np.searchsorted(self._frame[:, 0], end, side="left"))
        if low >= high:
            return range(0)
        first = int(before[low]) + max(0, start - int(self._frame[low, 0]))
        stop = min(end, int(self._frame[high - 1, 1]))
        last = int(before[high - 1]) + stop - int(self._frame[high - 1, 0]) - 1
        return range(
            self.windows + first // FIXED_CUT_BYTES, self.windows + last // FIXED_CUT_BYTES + 1
        )

    def _frame_pieces(
        self, seq: int, start: int = 0, end: int = _MOST
    ) -> Iterator[tuple[int, int, int]]:
        """Pieces of the frame in a frame block: (start, end) in the component, place in the block.

        Only those with any of bytes [start, end); at the cost of these alone.
        """
        skip = (seq - self.windows) * FIXED_CUT_BYTES
        room = min(FIXED_CUT_BYTES, self.frame_bytes - skip)
        before, behind = self._frame_ends
        first = max(
            int(np.searchsorted(behind, skip, side="right")),
            int(np.searchsorted(self._frame[:, 1], start, side="right")),
        )
        for index in range(first, len(behind)):
            at = max(0, int(before[index]) - skip)
            piece = int(self._frame[index, 0]) + max(0, skip - int(before[index]))
            size = min(int(self._frame[index, 1]) - piece, room - at)
            if size <= 0 or piece >= end:
                return
            yield piece, piece + size, at

    @cached_property
    def _frame_ends(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """How many frame bytes lie before and up to the end of each piece of the frame."""
        behind = np.cumsum(self._frame[:, 1] - self._frame[:, 0])
        return behind - (self._frame[:, 1] - self._frame[:, 0]), behind


def window_rows(row_bytes: int) -> int:
    """Rows of a window: see the module's docstring."""
    fitting = max(1, WINDOW_BYTES // row_bytes)
    enough = 1 << (-(-LEAST_WINDOW_BYTES // row_bytes) - 1).bit_length()
    return max(min(MOST_WINDOW_ROWS, 1 << (fitting.bit_length() - 1)), enough)


def _runs(buffer: Buffer | Bytes, group: Runs, row: int, shape: tuple[int, int]) -> Bytes:
    """The bytes of `shape` (runs, bytes of each) from a row on, where they lie."""
    return np.ndarray(
        shape, np.uint8, buffer=buffer, offset=group.start(row), strides=(group.spacing, 1)
    )


def _copy(target: Bytes, source: Bytes) -> None:
    """Copy runs; the few bytes a transposed row has go as one number instead of byte by byte."""
    width = _NUMBERS.get(target.shape[1])
    if width is None:
        target[...] = source
    else:
        target.view(width)[...] = source.view(width)


def _touched(
    group: Runs, first: int, size: int, start: int, end: int, *, whole: bool = False
) -> Iterable[int]:
    """Which runs of a group, each `size` bytes from `first` on, have any of bytes [start, end).

    With `whole`, the first run that lies inside stands for all that do.
    """
    if group.count == 1:
        return (0,) if first < end and first + size > start else ()
    low = max(0, -(-(start - first - size + 1) // group.spacing))
    high = min(group.count, -(-(end - first) // group.spacing))
    if not whole or high - low <= 3:
        return range(low, high)
    return (low, low + 1, high - 1)


def _check_group(group: Runs, raw_bytes: int) -> None:
    if not (0 < group.stride <= MOST_ROW_BYTES and 0 < group.rows < _MOST and group.count > 0):
        raise _bad("a run has at least one row of at least one byte", "runs")
    if not (0 <= group.offset < _MOST and 0 <= group.first_row < 1 << 31 and group.rows < 1 << 31):
        raise _bad("a run begins inside the component", "runs")
    # Of a single run the spacing means nothing, but numpy multiplies by it.
    if not 0 <= group.spacing < _MOST:
        raise _bad("runs lie inside the component", "runs")
    size = group.rows * group.stride
    if group.count > 1 and group.spacing < size:
        raise _bad("runs overlap", "runs")
    if group.offset + (group.count - 1) * group.spacing + size > raw_bytes:
        raise _bad("a run leaves the component", "runs")


def _gaps(groups: Sequence[Runs], raw_bytes: int) -> npt.NDArray[np.int64]:
    """(start, end) of all bytes under no run, in order; refuses runs that overlap."""
    starts = np.concatenate(
        [g.offset + g.spacing * np.arange(g.count, dtype=np.int64) for g in groups]
    )
    sizes = np.repeat(
        np.array([g.rows * g.stride for g in groups], dtype=np.int64), [g.count for g in groups]
    )
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + sizes)[order]
    if np.any(ends[:-1] > starts[1:]):
        raise _bad("runs overlap", "runs")
    gaps = np.stack([np.append(0, ends), np.append(starts, raw_bytes)], axis=1)
    return gaps[gaps[:, 0] < gaps[:, 1]]


def _run(run: Any, index: int, rows: int) -> Runs:
    where = f"runs.{index}"
    if not isinstance(run, Mapping):
        raise _bad("a run is a JSON object", where)
    first_row = _integer(run.get("first_row", 0), f"{where}.first_row")
    return Runs(
        offset=_integer(run.get("offset"), f"{where}.offset"),
        stride=_integer(run.get("stride"), f"{where}.stride"),
        rows=_integer(run.get("rows", rows - first_row), f"{where}.rows"),
        first_row=first_row,
    )


def _integer(value: Any, field: str) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise _bad("a non-negative integer is needed", field)
    return value


def _bad(detail: str, field: str) -> InvalidPayload:
    return InvalidPayload("invalid_geometry", detail, f"geometry.{field}")
