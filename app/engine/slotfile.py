"""What a llama.cpp slot file says of itself: where the rows of its tokens lie.

Owns the reading of sequence state files (magic "ggsq", version 3) as far as geometry needs it. A file is
somebody else's bytes: every count is checked against the bytes that are left before it is used, nothing
is allocated by a claimed number, and the work is bounded. A file that is not understood to its last
byte has no geometry; one that is understood wrongly costs duplicates that are not found, never a byte.

The file, all numbers little-endian, from ggml-org/llama.cpp (MIT) as of the second half of 2026:

- head: u32 magic, u32 3, u32 n, n x i32 tokens (src/llama-context.cpp, `state_seq_save_file`). Newer
  servers put a pack in the place of the tokens: i32 -1, u32 1, u32 n and the tokens, u32 m and m x u32
  where media begin, m times u32 size and a chunk, padded to 4 bytes (tools/server/server-common.cpp,
  `server_tokens::serialize`; pull request 26640).
- the sections of the model's memory, which the file does not name: one cache; two for sliding windows or
  an indexer (src/llama-kv-cache-iswa.cpp, -dsa.cpp); a recurrent part alone or behind the caches, or with
  an indexer's cache behind it (src/llama-memory-hybrid.cpp, -hybrid-iswa.cpp, -hybrid-idx.cpp).
- a cache: u32 streams; for each u32 cells and, if there are any, for each cell i32 position, u32 n,
  12 bytes more for models with 2D positions or token n-grams (pull request 27762), n x i32 sequence ids;
  u32 transposed, u32 layers; K of each layer: i32 type, u64 row bytes, a row a cell; V likewise, or absent
  altogether (MLA), or transposed: i32 type, u32 element bytes, u32 columns, each column all its cells
  (src/llama-kv-cache.cpp, `state_write`).
- a recurrent part: u32 cells, each i32 position, u32 n, n x i32; u32 0, u32 layers; R and then S of those
  layers that have them: i32 type, u64 row bytes, rows; u64 row bytes and rows without a type may follow
  an R (src/llama-memory-recurrent.cpp, `state_write`).

Where a section ends is known only from what follows it, so all readings are tried until one ends with
the file. (One cut exactly between two caches, or before the V of its last one, looks like a whole file
of another model.) Nothing of a recurrent part belongs to a token: it stays in the frame. Row i of a
cache is the token at position i where its cells are a few stretches of positions (those of a sliding
window are, at the end, and in the order of a ring), else its i-th cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.engine.errors import InvalidPayload
from app.engine.geometry import MOST_ROW_BYTES, Geometry, Layout, Runs, grouped
from storage.blocks.codec import Buffer

HEAD_BYTES: Final = 8
MOST_STREAMS: Final = 256
MOST_LAYERS: Final = 1024
MOST_CACHES: Final = 4
MOST_STRETCHES: Final = 4
MOST_WALKED_CELLS: Final = 1 << 14
MOST_WORK: Final = 1 << 16

_MAGIC: Final = b"qsgg"
_VERSION: Final = 3
_PACK: Final = 0xFFFFFFFF
_PACK_VERSION: Final = 1
_EXTRA_BYTES: Final = 12
_PIECE_BYTES: Final = 64 << 10
_MOST_SEQUENCES: Final = 256
_MOST_TYPES: Final = 256
# ggml's numbers of the types that geometry has names for, and the bytes of their smallest unit
_ELEMENTS: Final = {0: ("f32", 4), 1: ("f16", 2), 30: ("bf16", 2), 8: ("q8_0", 34)}


class SlotStatus(StrEnum):
    """How far a component was understood."""

    PARSED = "slot_file"
    """to the last byte: it has a geometry"""
    NOT_A_SLOT_FILE = "no_slot_file"
    """it does not begin like one"""
    UNKNOWN_VERSION = "slot_file_version"
    """a slot file, but of no version that is known here"""
    NOT_UNDERSTOOD = "slot_file_not_understood"
    """of the known version, but cut, damaged, of an unknown kind of memory, or without rows"""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A geometry exactly where `status` is PARSED; it has passed `Layout` over the whole component."""

    geometry: Geometry | None
    status: SlotStatus


class _Unreadable(Exception):
    """This reading of the bytes does not work out."""


class _TooMuch(Exception):
    """There were too many readings to try."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The cells of one stream.

    Attributes:
        cells: how many.
        offset: where their metadata begins.
        stride: bytes of it a cell; 0 where cells differ.
        runs: K and V, all cells.
        types: ggml's numbers of the types of `runs`.
    """

    cells: int
    offset: int
    stride: int
    runs: tuple[Runs, ...]
    types: frozenset[int]


class _Node(NamedTuple):
    """A place in the file and what is read there: a section, or one of `streams` streams of a cache.

    What can follow depends on these alone, so no node is looked at twice.
    """

    at: int
    streams: int = 0
    caches: int = 0
    recurrent: bool = False


_Chain = tuple["_Chain", _Part] | None
_Readings = list[tuple[_Node, _Part | None]]


def is_slot_file(head: Buffer) -> bool:
    """Whether a component that begins with these bytes (HEAD_BYTES are enough) is a slot file."""
    return bytes(head[: len(_MAGIC)]) == _MAGIC


def of_slot_file(data: Buffer) -> Parsed:
    """The geometry of a slot file; raises nothing, whatever the bytes.

    Args:
        data: the whole component, contiguous; it is read in place and not held on to.
    """
    view = memoryview(data).cast("B")
    if not is_slot_file(view[:HEAD_BYTES]):
        return Parsed(None, SlotStatus.NOT_A_SLOT_FILE)
    file = _File(view)
    try:
        if file.u32(len(_MAGIC)) != _VERSION:
            return Parsed(None, SlotStatus.UNKNOWN_VERSION)
        tokens, at = _tokens(file, HEAD_BYTES)
        return Parsed(_geometry(file, tokens, _memory(file, at)), SlotStatus.PARSED)
    except (_Unreadable, _TooMuch):
        return Parsed(None, SlotStatus.NOT_UNDERSTOOD)


class _File:
    """Reads inside the bounds of the file, and bounds what the reading costs."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.end = len(view)
        self._work = MOST_WORK

    def behind(self, at: int, count: int, size: int = 1) -> int:
        """The place behind `count` things of `size` bytes, which must all be there."""
        if count * size > self.end - at:
            raise _Unreadable
        return at + count * size

    def u32(self, at: int) -> int:
        self._spend(1)
        return int.from_bytes(self._view[at : self.behind(at, 4)], "little")

    def u64(self, at: int) -> int:
        return self.u32(at) | self.u32(at + 4) << 32

    def words(self, at: int, rows: int, stride: int) -> Iterator[npt.NDArray[np.uint32]]:
        """So many rows of u32, where they lie, a few at a time: what is made of them stays small."""
        self.behind(at, rows, stride)
        step = _PIECE_BYTES // stride
        for first in range(0, rows, step):
            some = min(step, rows - first)
            self._spend(1 + some * stride // 4096)
            yield np.ndarray(
                (some, stride // 4), np.dtype("<u4"), buffer=self._view, offset=at + first * stride
            )

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise _TooMuch


def _tokens(file: _File, at: int) -> tuple[Runs | None, int]:
    """The run of the tokens, if it can be found, and the place behind their list."""
    count = file.u32(at)
    end = file.behind(at + 4, count, 4)
    try:
        if count and file.u32(at + 4) == _PACK:
            at = _packed(file, at + 8, end)
            count = file.u32(at)
    except _Unreadable:
        count = 0
    return (Runs(at + 4, 4, count) if count else None), end


def _packed(file: _File, at: int, end: int) -> int:
    """Where the number of tokens lies in the pack whose version lies at `at`."""
    if file.u32(at) != _PACK_VERSION:
        raise _Unreadable
    tokens = at + 4
    media = file.behind(tokens + 4, file.u32(tokens), 4)
    at = file.behind(media + 4, file.u32(media), 4)
    for _ in range(file.u32(media)):
        at = file.behind(at + 4, file.u32(at))
    if not 0 <= end - at < 4:
        raise _Unreadable
    return tokens


def _memory(file: _File, at: int) -> list[_Part]:
    """All streams that have cells, from the first section to the end of the file."""
    stack: list[tuple[_Node, _Chain]] = [(_Node(at), None)]
    seen: set[_Node] = set()
    while stack:
        node, chain = stack.pop()
        if node.at == file.end and not node.streams and (node.caches or node.recurrent):
            return _in_order(chain)
        if node in seen:
            continue
        seen.add(node)
        following = [
            (after, chain if part is None else (chain, part))
            for read in ((_stream,) if node.streams else (_cache, _recurrent))
            for after, part in _tried(read, file, node)
        ]
        stack += reversed(following)
    raise _Unreadable


def _in_order(chain: _Chain) -> list[_Part]:
    parts = []
    while chain is not None:
        chain, part = chain
        parts.append(part)
    return parts[::-1]


def _tried(read: Callable[[_File, _Node], _Readings], file: _File, node: _Node) -> _Readings:
    """What may follow a node, the likeliest first, each with the stream read on the way."""
    try:
        return read(file, node)
    except _Unreadable:
        return []


def _cache(file: _File, node: _Node) -> _Readings:
    streams = file.u32(node.at)
    if node.caches == MOST_CACHES or not 0 < streams <= MOST_STREAMS:
        raise _Unreadable
    return [(node._replace(at=node.at + 4, streams=streams, caches=node.caches + 1), None)]


def _stream(file: _File, node: _Node) -> _Readings:
    cells = file.u32(node.at)
    after = node._replace(streams=node.streams - 1)
    if not cells:
        return [(after._replace(at=node.at + 4), None)]
    return [
        (after._replace(at=end), _Part(cells, node.at + 4, stride, runs, types))
        for at, stride in _cells(file, node.at + 4, cells)
        for end, runs, types in _layers(file, at, cells)
    ]


def _cells(file: _File, at: int, cells: int) -> Iterator[tuple[int, int]]:
    """Places behind the metadata of cells, each with its bytes a cell, or 0 where cells differ."""
    first = file.u32(at + 4)
    for extra in (0, _EXTRA_BYTES):
        stride = 8 + extra + 4 * first
        if 0 < first <= _MOST_SEQUENCES and cells * stride <= file.end - at:
            likely = True
            for words in file.words(at, cells, stride):
                if (words[:, 1] != first).any():
                    break
                ids = words[:, 2 + extra // 4 :]
                likely &= bool((words[:, 0] < 1 << 31).all() and (ids < _MOST_SEQUENCES).all())
            else:
                if likely:
                    yield at + cells * stride, stride
                continue
        end = _walk(file, at, cells, extra)
        if end is not None:
            yield end, 0


def _walk(file: _File, at: int, cells: int, extra: int) -> int | None:
    """The place behind cells that differ in size."""
    if cells > MOST_WALKED_CELLS:
        return None
    for _ in range(cells):
        if at + 8 > file.end or not 0 < (count := file.u32(at + 4)) <= _MOST_SEQUENCES:
            return None
        at += 8 + extra + 4 * count
    return at


def _layers(
    file: _File, at: int, cells: int
) -> Iterator[tuple[int, tuple[Runs, ...], frozenset[int]]]:
    """The place behind K and V of all layers, and the one behind K alone, if they are there."""
    try:
        transposed, layers = file.u32(at), file.u32(at + 4)
        if transposed > 1 or layers > MOST_LAYERS:
            return
        k_end, k_runs, k_types = _rows(file, at + 8, cells, layers, transposed=False)
    except _Unreadable:
        return
    try:
        end, v_runs, v_types = _rows(file, k_end, cells, layers, transposed=bool(transposed))
        yield end, (*k_runs, *v_runs), k_types | v_types
    except _Unreadable:
        pass
    if layers:
        yield k_end, tuple(k_runs), k_types


def _rows(
    file: _File, at: int, cells: int, layers: int, *, transposed: bool
) -> tuple[int, list[Runs], frozenset[int]]:
    """The place behind K or V of all layers, and what they are."""
    runs, types = [], set()
    for _ in range(layers):
        kind = file.u32(at)
        if transposed:
            stride, columns = file.u32(at + 4), file.u32(at + 8)
        else:
            stride, columns = file.u64(at + 4), 1
        unit = _ELEMENTS[kind][1] if kind in _ELEMENTS else 1
        if kind >= _MOST_TYPES or not 0 < stride * columns <= MOST_ROW_BYTES or stride % unit:
            raise _Unreadable
        end = file.behind(at + 12, cells * columns, stride)
        runs.append(Runs(at + 12, stride, cells, count=columns, spacing=cells * stride))
        types.add(kind)
        at = end
    return at, runs, frozenset(types)


def _recurrent(file: _File, node: _Node) -> _Readings:
    """R of some layers and S of as many; the sizes of each are those of its first one."""
    cells = file.u32(node.at)
    if node.recurrent or cells > MOST_WALKED_CELLS:
        raise _Unreadable
    at = node.at + 4
    for _ in range(cells):
        at = file.behind(at + 8, file.u32(at + 4), 4)
    transposed, layers = file.u32(at), file.u32(at + 4)
    if transposed or not 0 < layers <= MOST_LAYERS:
        raise _Unreadable
    at, r_layers = _alike(file, at + 8, cells, layers, extended=True)
    at, s_layers = _alike(file, at, cells, r_layers, extended=False)
    if s_layers != r_layers:
        raise _Unreadable
    return [(node._replace(at=at, recurrent=True), None)]


def _alike(file: _File, at: int, cells: int, most: int, *, extended: bool) -> tuple[int, int]:
    """The place behind rows of one type and size, each with its header, and their number."""
    head = (file.u32(at), file.u64(at + 4))
    if head[0] >= _MOST_TYPES:
        raise _Unreadable
    count = 0
    while count < most and (count == 0 or _is_head(file, at, head)):
        at = file.behind(at + 12, cells, head[1])
        count += 1
        if extended and file.u32(at) >= _MOST_TYPES:
            at = file.behind(at + 8, cells, file.u64(at))
    return at, count


def _is_head(file: _File, at: int, head: tuple[int, int]) -> bool:
    return at + 12 <= file.end and (file.u32(at), file.u64(at + 4)) == head


def _geometry(file: _File, tokens: Runs | None, parts: list[_Part]) -> Geometry:
    rows = max([0 if tokens is None else tokens.rows, *(part.cells for part in parts)])
    types = frozenset().union(*(part.types for part in parts))
    element = _ELEMENTS.get(min(types), ("opaque", 1))[0] if len(types) == 1 else "opaque"
    by_position = [_stretches(file, part, rows) for part in parts]
    by_cell = [[(0, part.cells, 0)] for part in parts]
    for stretches in (by_position, by_cell):
        runs = [] if tokens is None else [tokens]
        for part, of_part in zip(parts, stretches, strict=True):
            for stretch in of_part:
                runs += _placed(part, *stretch)
        geometry = _grouped(runs, element)
        try:
            Layout(geometry, file.end)
        except InvalidPayload:  # no run of all rows, no rows at all, or more than Layout takes
            continue
        return geometry
    raise _Unreadable


def _stretches(file: _File, part: _Part, rows: int) -> list[tuple[int, int, int]]:
    """Stretches of cells at consecutive positions: (first cell, cells, first position).

    The cells in their own order where their positions are no such rows.
    """
    in_order = [(0, part.cells, 0)]
    if not part.stride:
        return in_order
    begins: list[tuple[int, int]] = []
    cell, before = 0, None
    for words in file.words(part.offset, part.cells, part.stride):
        here = words[:, 0]
        steps = np.diff(here, prepend=here[:1] if before is None else before)
        new = np.flatnonzero(steps != 1)[: MOST_STRETCHES + 1].tolist()
        begins += [(cell + index, int(here[index])) for index in new]
        if len(begins) > MOST_STRETCHES or int(here.max()) >= rows:
            return in_order
        cell, before = cell + len(here), here[-1:]
    ends = [*(first for first, _ in begins[1:]), part.cells]
    return [(first, end - first, at) for (first, at), end in zip(begins, ends, strict=True)]


def _placed(part: _Part, cell: int, cells: int, first_row: int) -> Iterator[Runs]:
    """Runs of a part's cells [cell, cell + cells), as rows from first_row on."""
    runs = part.runs
    if part.stride:
        runs = (Runs(part.offset, part.stride, part.cells), *runs)
    for run in runs:
        yield replace(run, offset=run.offset + cell * run.stride, rows=cells, first_row=first_row)


def _grouped(runs: list[Runs], element: str) -> Geometry:
    """All runs in order; single ones at one distance become groups, columns already are."""
    groups: list[Runs] = []
    for single, some in groupby(runs, key=lambda run: run.count == 1):
        if single:
            groups += grouped(replace(run, spacing=0) for run in some).groups
        else:
            groups += some
    return Geometry(tuple(groups), element)
