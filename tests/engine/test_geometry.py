"""Token windows: what was taken apart is put together again exactly, in part too; bad runs are refused."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine import geometry
from app.engine.errors import InvalidPayload
from app.engine.geometry import (
    ELEMENTS,
    LEAST_WINDOW_BYTES,
    MOST_BLOCKS,
    MOST_GROUPS,
    MOST_ROW_BYTES,
    MOST_RUNS,
    MOST_WINDOW_ROWS,
    WINDOW_BYTES,
    Geometry,
    Layout,
    Runs,
    grouped,
    window_rows,
)
from storage.cut import FIXED_CUT_BYTES


@dataclass(frozen=True)
class Case:
    """A geometry over bytes it fits."""

    groups: tuple[Runs, ...]
    data: bytes

    @property
    def layout(self) -> Layout:
        return Layout(Geometry(self.groups), len(self.data))


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    """Groups one behind the other or woven into each other, frames between, in any order of offsets."""
    rows = draw(st.integers(1, 300))
    wanted = draw(st.integers(1, 5))
    whole = draw(st.integers(0, wanted - 1))  # this one has every row
    groups: list[Runs] = []
    at = draw(st.integers(0, 40))
    while len(groups) < wanted:
        woven = draw(st.integers(1, min(3, wanted - len(groups))))
        count = draw(st.sampled_from([1, 1, 2, 3, 17, 64]))
        inner = at
        some: list[tuple[int, int, int, int]] = []
        for index in range(len(groups), len(groups) + woven):
            first = 0 if index == whole else draw(st.integers(0, rows - 1))
            held = rows - first if index == whole else draw(st.integers(1, rows - first))
            stride = draw(st.sampled_from([1, 2, 3, 4, 8, 24, 100]))
            some.append((inner, stride, held, first))
            inner += held * stride + draw(st.sampled_from([0, 0, 1, 12]))
        spacing = inner - at + draw(st.sampled_from([0, 0, 5]))
        groups += [
            Runs(offset, stride, held, first, count, spacing if count > 1 else 0)
            for offset, stride, held, first in some
        ]
        at += spacing * count + draw(st.sampled_from([0, 7, 300]))
    raw_bytes = at + draw(st.sampled_from([0, 1, 50]))
    order = draw(st.permutations(groups))
    return Case(tuple(order), random.Random(draw(st.integers(0, 9))).randbytes(raw_bytes))


def _blocks(layout: Layout, data: bytes) -> list[bytes]:
    blocks = []
    for seq, length in enumerate(layout.lengths):
        block = bytearray(length)
        layout.gather(seq, data, block)
        blocks.append(bytes(block))
    return blocks


def _places(layout: Layout) -> list[list[int]]:
    """The byte of the component behind each byte of each block: the definition, byte by byte."""
    groups, width = layout.geometry.groups, layout.window_rows
    covered: set[int] = set()
    blocks: list[list[int]] = []
    for window in range(layout.windows):
        block: list[int] = []
        for group in groups:
            low, high = group.held(window * width, (window + 1) * width)
            for run in range(group.count):
                start = group.offset + run * group.spacing
                block += range(
                    start + (low - group.first_row) * group.stride,
                    start + (high - group.first_row) * group.stride,
                )
        covered.update(block)
        blocks.append(block)
    frame = [at for at in range(layout.raw_bytes) if at not in covered]
    cuts = range(0, len(frame), FIXED_CUT_BYTES)
    return blocks + [frame[cut : cut + FIXED_CUT_BYTES] for cut in cuts]


# ---- there and back ----------------------------------------------------------------------------


@settings(deadline=None)
@given(_cases())
def test_every_byte_lies_in_the_block_that_the_definition_names(case: Case) -> None:
    layout = case.layout
    places = _places(layout)
    assert [len(block) for block in places] == list(layout.lengths)
    assert sum(layout.lengths) == len(case.data)
    assert _blocks(layout, case.data) == [bytes(case.data[at] for at in b) for b in places]
    assert layout.frame_bytes == sum(layout.lengths[layout.windows :])
    windows = range(layout.windows)
    assert [layout.window_bytes(w) for w in windows] == list(layout.lengths[: layout.windows])


@settings(deadline=None)
@given(_cases())
def test_what_was_taken_apart_is_put_together_again(case: Case) -> None:
    layout = case.layout
    back = np.zeros(len(case.data), np.uint8)
    for seq, block in enumerate(_blocks(layout, case.data)):
        layout.scatter(seq, block, back)
    assert back.tobytes() == case.data


@settings(deadline=None)
@given(_cases(), st.data())
def test_any_range_is_put_together_from_the_blocks_it_needs(
    case: Case, data: st.DataObject
) -> None:
    layout = case.layout
    start = data.draw(st.integers(0, len(case.data)))
    end = data.draw(st.integers(start, len(case.data)))
    needed = layout.needed(start, end)
    assert needed == sorted(set(needed))
    within = [any(start <= at < end for at in block) for block in _places(layout)]
    assert {seq for seq, any_ in enumerate(within) if any_} <= set(needed)
    target = np.zeros(end - start, np.uint8)
    blocks = _blocks(layout, case.data)
    for seq in needed:
        layout.scatter(seq, blocks[seq], target, start)
    assert target.tobytes() == case.data[start:end]


@settings(deadline=None)
@given(_cases(), st.integers(1, 97))
def test_pieces_behind_each_other_make_the_whole(case: Case, steps: int) -> None:
    layout = case.layout
    blocks = _blocks(layout, case.data)
    step = -(-len(case.data) // steps)
    found = b""
    for start in range(0, len(case.data), step):
        target = np.zeros(min(step, len(case.data) - start), np.uint8)
        for seq in layout.needed(start, start + len(target)):
            layout.scatter(seq, blocks[seq], target, start)
        found += target.tobytes()
    assert found == case.data


def test_a_large_frame_is_cut_at_the_fixed_length() -> None:
    raw_bytes = 2 * FIXED_CUT_BYTES + 5000
    run = Runs(FIXED_CUT_BYTES - 100, 16, 100)
    data = random.Random(3).randbytes(raw_bytes)
    layout = Layout(Geometry((run,)), raw_bytes)
    frame = data[: run.offset] + data[run.offset + 1600 :]
    blocks = _blocks(layout, data)
    assert layout.windows == 1
    assert blocks[1:] == [
        frame[cut : cut + FIXED_CUT_BYTES] for cut in range(0, len(frame), FIXED_CUT_BYTES)
    ]
    back = np.zeros(raw_bytes, np.uint8)
    for seq, block in enumerate(blocks):
        layout.scatter(seq, block, back)
    assert back.tobytes() == data
    assert layout.needed(0, 1) == [1]
    assert layout.needed(run.offset, run.offset + 1) == [0]
    assert layout.needed(raw_bytes - 1, raw_bytes) == [3]


def test_a_frame_of_many_pieces_is_put_together() -> None:
    group = Runs(3, 2, 5, 0, 4000, 12)
    data = random.Random(4).randbytes(12 * 4000 + 3)
    layout = Layout(Geometry((group,)), len(data))
    back = np.zeros(len(data), np.uint8)
    for seq, block in enumerate(_blocks(layout, data)):
        layout.scatter(seq, block, back)
    assert back.tobytes() == data


# ---- prefixes ----------------------------------------------------------------------------------


@st.composite
def _models(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, int]:
    """(stride, runs) of each kind of rows, and a shorter and a longer number of tokens."""
    kinds = draw(
        st.lists(
            st.tuples(st.sampled_from([2, 4, 8, 100, 300]), st.sampled_from([1, 2, 3, 32])),
            min_size=1,
            max_size=3,
        )
    )
    longer = draw(st.integers(1, 400))
    return kinds, draw(st.integers(1, longer)), longer


def _of_tokens(kinds: list[tuple[int, int]], tokens: int) -> Case:
    """A component of runs one behind the other; a row is the same in each that has it."""
    groups, at, data = [], 0, b""
    for index, (stride, count) in enumerate(kinds):
        groups.append(Runs(at, stride, tokens, 0, count, tokens * stride))
        at += count * tokens * stride
        for run in range(count):
            data += random.Random(f"{index} {run}").randbytes(400 * stride)[: tokens * stride]
    return Case(tuple(groups), data)


@settings(deadline=None)
@given(_models())
def test_a_prefix_is_the_component_of_the_shorter_text(
    model: tuple[list[tuple[int, int]], int, int],
) -> None:
    kinds, shorter, longer = model
    short, long = _of_tokens(kinds, shorter), _of_tokens(kinds, longer)
    layout = long.layout
    prefix = layout.prefix(shorter)
    assert prefix is not None
    assert prefix.raw_bytes == len(short.data)
    target = np.zeros(prefix.raw_bytes, np.uint8)
    blocks = _blocks(layout, long.data)
    for seq in layout.of_rows(0, shorter):
        layout.scatter(seq, blocks[seq], target, onto=prefix)
    assert target.tobytes() == short.data


@settings(deadline=None)
@given(_models(), st.data())
def test_any_range_of_a_prefix_is_put_together(
    model: tuple[list[tuple[int, int]], int, int], data: st.DataObject
) -> None:
    kinds, shorter, longer = model
    short, long = _of_tokens(kinds, shorter), _of_tokens(kinds, longer)
    layout = long.layout
    prefix = layout.prefix(shorter)
    assert prefix is not None
    start = data.draw(st.integers(0, len(short.data) - 1))
    end = data.draw(st.integers(start + 1, len(short.data)))
    target = np.zeros(end - start, np.uint8)
    blocks = _blocks(layout, long.data)
    for seq in prefix.needed(start, end):  # windows of both are of the same width
        layout.scatter(seq, blocks[seq], target, start, prefix)
    assert target.tobytes() == short.data[start:end]


@settings(deadline=None)
@given(_models())
def test_growing_prefixes_share_every_full_window(
    model: tuple[list[tuple[int, int]], int, int],
) -> None:
    kinds, shorter, longer = model
    short, long = _of_tokens(kinds, shorter), _of_tokens(kinds, longer)
    full = shorter // short.layout.window_rows
    assert long.layout.window_rows == short.layout.window_rows
    first, second = _blocks(short.layout, short.data), _blocks(long.layout, long.data)
    assert first[:full] == second[:full]


@pytest.mark.parametrize(
    ("groups", "raw_bytes"),
    [
        ((Runs(1, 4, 10),), 41),  # a frame before
        ((Runs(0, 4, 10),), 41),  # and behind
        ((Runs(0, 4, 10), Runs(40, 4, 5, 5)), 60),  # does not reach back
        ((Runs(0, 4, 10), Runs(40, 4, 5)), 60),  # does not reach on
        ((Runs(40, 4, 10), Runs(0, 4, 10)), 80),  # not in the order of bytes
        ((Runs(0, 4, 10, 0, 2, 60), Runs(40, 2, 10, 0, 2, 60)), 120),  # woven
    ],
)
def test_other_layouts_have_no_prefix(groups: tuple[Runs, ...], raw_bytes: int) -> None:
    assert Layout(Geometry(groups), raw_bytes).prefix(8) is None


def test_of_rows_names_the_windows_of_a_range() -> None:
    layout = Layout(Geometry((Runs(0, 4096, 100),)), 409600)
    assert layout.window_rows == 64
    assert layout.of_rows(0, 0) == layout.of_rows(5, 5) == layout.of_rows(9, 5) == []
    assert layout.of_rows(0, 64) == [0]
    assert layout.of_rows(63, 65) == [0, 1]
    assert layout.of_rows(64, 100) == layout.of_rows(64, 1000) == [1]


# ---- windows -----------------------------------------------------------------------------------


@given(st.integers(1, MOST_ROW_BYTES))
def test_a_window_is_as_wide_as_the_limits_let_it(row_bytes: int) -> None:
    rows = window_rows(row_bytes)
    assert rows & (rows - 1) == 0
    assert rows * row_bytes >= LEAST_WINDOW_BYTES
    if rows > MOST_WINDOW_ROWS:
        assert rows // 2 * row_bytes < LEAST_WINDOW_BYTES  # no wider than it must be
    else:
        assert rows == 1 or rows * row_bytes <= WINDOW_BYTES
        assert rows == MOST_WINDOW_ROWS or 2 * rows * row_bytes > WINDOW_BYTES


@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [
        (1, 16384),
        (255, 128),
        (256, 64),
        (4096, 64),
        (4097, 32),
        (8192, 32),
        (131072, 2),
        (131073, 1),
        (262144, 1),
        (MOST_ROW_BYTES, 1),
    ],
)
def test_widths_at_the_limits(row_bytes: int, rows: int) -> None:
    assert window_rows(row_bytes) == rows


# ---- the stored form ---------------------------------------------------------------------------


@settings(deadline=None)
@given(_cases(), st.sampled_from(ELEMENTS))
def test_a_stored_geometry_comes_back(case: Case, element: str) -> None:
    made = Geometry(case.groups, element)
    assert Geometry.unpack(made.pack()) == made


@given(st.binary(max_size=120))
def test_other_bytes_are_no_stored_geometry(packed: bytes) -> None:
    try:
        found = Geometry.unpack(packed)
    except ValueError:
        return
    assert found.pack() == packed


@pytest.mark.parametrize("change", [(0, 2), (1, len(ELEMENTS)), (1, 255), (2, 1), (4, 0), (4, 3)])
def test_a_changed_stored_geometry_is_refused(change: tuple[int, int]) -> None:
    packed = bytearray(Geometry((Runs(0, 4, 10), Runs(40, 4, 10))).pack())
    packed[change[0]] = change[1]
    for bad in (bytes(packed), bytes(packed[:-1]), b"", bytes(packed[:7])):
        with pytest.raises(ValueError, match="not a packed geometry"):
            Geometry.unpack(bad)


# ---- groups ------------------------------------------------------------------------------------


def _singles(groups: tuple[Runs, ...]) -> list[tuple[int, int, int, int]]:
    return [
        (g.offset + run * g.spacing, g.stride, g.rows, g.first_row)
        for g in groups
        for run in range(g.count)
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 10, 20, 30, 35, 40, 60]),
            st.sampled_from([1, 2]),
            st.sampled_from([3, 5]),
            st.sampled_from([0, 2]),
        ),
        max_size=40,
    )
)
def test_grouping_changes_no_run_and_no_order(runs: list[tuple[int, int, int, int]]) -> None:
    made = grouped(Runs(*run) for run in runs)
    assert _singles(made.groups) == runs
    assert made.row_bytes == sum(run[1] for run in runs)
    assert made.rows == max((run[2] + run[3] for run in runs), default=0)


def test_runs_at_one_distance_are_one_group() -> None:
    made = grouped((Runs(100 + 1000 * i, 4, 50) for i in range(60)), "f16")
    assert made == Geometry((Runs(100, 4, 50, 0, 60, 1000),), "f16")


def test_descending_runs_are_kept_apart_and_in_order() -> None:
    runs = [Runs(offset, 4, 10) for offset in (80, 40, 0)]
    assert grouped(runs).groups == tuple(runs)
    data = random.Random(5).randbytes(120)
    layout = Layout(grouped(runs), 120)
    assert _blocks(layout, data) == [data[80:] + data[40:80] + data[:40]]


# ---- what is refused ---------------------------------------------------------------------------


def _refused(groups: tuple[Runs, ...], raw_bytes: int) -> str:
    with pytest.raises(InvalidPayload) as caught:
        Layout(Geometry(groups), raw_bytes)
    assert caught.value.code == "invalid_geometry"
    assert caught.value.field is not None
    return caught.value.detail


WHOLE = Runs(0, 4, 10)


@pytest.mark.parametrize(
    "groups",
    [
        (WHOLE, Runs(39, 4, 10)),
        (WHOLE, Runs(0, 4, 10)),
        (WHOLE, Runs(8, 1, 1)),
        (Runs(40, 4, 10), Runs(20, 4, 6)),
        (Runs(0, 4, 10, 0, 3, 39),),
        (Runs(0, 4, 10, 0, 2, 0),),
        (Runs(0, 4, 10, 0, 3, 100), Runs(30, 4, 10, 0, 3, 100)),
        (Runs(0, 4, 10, 0, 3, 100), Runs(45, 4, 14, 0, 2, 100)),
    ],
)
def test_runs_that_overlap_are_refused(groups: tuple[Runs, ...]) -> None:
    assert _refused(groups, 1000) == "runs overlap"


@pytest.mark.parametrize(
    "run",
    [
        Runs(0, 4, 26),
        Runs(1, 4, 25),
        Runs(100, 1, 1),
        Runs(0, 4, 10, 0, 3, 31 + 9),
        Runs(0, 4, 1, 0, 2, 97),
        Runs(0, 101, 1),
        Runs((1 << 62) - 1, 1, 1),
        Runs(0, MOST_ROW_BYTES, (1 << 31) - 1),
        Runs(0, 1, 1, 0, 2, (1 << 62) - 1),
        Runs(0, 4, 10, 0, MOST_RUNS, 40),
    ],
)
def test_runs_that_leave_the_component_are_refused(run: Runs) -> None:
    assert _refused((run,), 100) == "a run leaves the component"


@pytest.mark.parametrize(
    "run",
    [
        Runs(0, 0, 10),
        Runs(0, 4, 0),
        Runs(0, 4, 10, 0, 0),
        Runs(0, -4, 10),
        Runs(0, 4, -10),
        Runs(-1, 4, 10),
        Runs(0, 4, 10, -1),
        Runs(0, 4, 10, 0, -1),
        Runs(0, MOST_ROW_BYTES + 1, 1),
        Runs(1 << 62, 4, 10),
        Runs(1 << 63, 4, 10),
        Runs(0, 4, 1 << 31),
        Runs(0, 4, 1 << 63),
        Runs(0, 4, 10, 1 << 31),
        Runs(0, 1 << 62, 10),
        Runs(0, 1 << 63, 1 << 63),
        Runs(0, 1, 1, 0, 2, (1 << 64) - 1),
    ],
)
def test_numbers_out_of_bounds_are_refused(run: Runs) -> None:
    _refused((run,), 100)
    _refused((WHOLE, run), 1 << 62)


def test_a_row_has_its_limit_over_all_runs() -> None:
    size = MOST_ROW_BYTES
    Layout(Geometry((Runs(0, size // 2, 1), Runs(size // 2, size // 2, 1))), size)
    _refused((Runs(0, size, 1), Runs(size, 1, 1)), size + 1)
    _refused((Runs(0, size // 2, 1, 0, 3, size),), 4 * size)


def test_some_run_has_every_row() -> None:
    assert _refused((), 100) != ""
    _refused((Runs(0, 4, 5), Runs(20, 4, 5, 5)), 100)
    _refused((Runs(0, 4, 5, 1),), 100)
    Layout(Geometry((Runs(0, 4, 10), Runs(40, 4, 5, 5))), 100)


def test_too_many_runs_are_refused_at_once() -> None:
    begun = time.thread_time()
    _refused((Runs(0, 1, 1, 0, MOST_RUNS + 1, 1),), 1 << 30)
    _refused((Runs(0, 1, 1, 0, 1 << 60, 1),), 1 << 62)
    _refused(tuple(Runs(2 * i, 1, 1) for i in range(MOST_GROUPS + 1)), 1 << 30)
    assert time.thread_time() - begun < 5
    Layout(Geometry((Runs(0, 2, 4, 0, MOST_RUNS, 8),)), 8 * MOST_RUNS)


def test_more_blocks_than_a_component_can_have_are_refused_at_once() -> None:
    """Whoever announces a component says its size; nothing of that size may be counted out first."""
    begun = time.thread_time()
    _refused((WHOLE,), 1 << 50)
    _refused((Runs(0, WINDOW_BYTES, (1 << 31) - 1),), 1 << 50)
    _refused((Runs(0, 256, 64 * MOST_BLOCKS + 1),), 256 * (64 * MOST_BLOCKS + 1))
    _refused((WHOLE,), 1 << 64)
    Layout(Geometry((Runs(0, 256, 64 * MOST_BLOCKS),)), 256 * 64 * MOST_BLOCKS)
    assert time.thread_time() - begun < 5


def test_the_lengths_of_very_many_windows_are_counted_quickly() -> None:
    windows = MOST_BLOCKS // 4
    layout = Layout(Geometry((Runs(0, WINDOW_BYTES, windows),)), windows * WINDOW_BYTES)
    begun = time.thread_time()
    assert layout.lengths == (WINDOW_BYTES,) * windows
    assert time.thread_time() - begun < 5


def test_the_lengths_of_the_most_groups_are_counted_quickly() -> None:
    rows, groups, at = 60_000, [], 0
    for index in range(MOST_GROUPS):
        held = rows - index % 37
        groups.append(Runs(at, 16, held, index % 37 if index % 2 else 0))
        at += 16 * held + index % 5
    layout = Layout(Geometry(tuple(groups)), at)
    begun = time.thread_time()
    lengths = layout.lengths
    assert time.thread_time() - begun < 3
    assert sum(lengths) == at
    for window in (0, 1, layout.windows - 2, layout.windows - 1):
        assert lengths[window] == layout.window_bytes(window)


# ---- what a client gives -----------------------------------------------------------------------


def _given(raw_bytes: int = 1000, **document: Any) -> Geometry:
    return geometry.given({"rows": 10, "runs": [{"offset": 0, "stride": 4}], **document}, raw_bytes)


def test_a_document_is_taken_and_what_is_unknown_passed_over() -> None:
    runs = [
        {"offset": 8, "stride": 4, "label": "k0", "x": [1]},
        {"offset": 60, "stride": 4},
        {"offset": 112, "stride": 4},
        {"offset": 200, "stride": 2, "first_row": 6},
        {"offset": 300, "stride": 2, "first_row": 2, "rows": 3},
    ]
    assert _given(runs=runs, element="bf16", note=None) == Geometry(
        (Runs(8, 4, 10, 0, 3, 52), Runs(200, 2, 4, 6), Runs(300, 2, 3, 2)), "bf16"
    )


BAD_NUMBERS = [
    -1,
    True,
    False,
    1.0,
    4.5,
    math.nan,
    math.inf,
    "4",
    None,
    [],
    {},
    1 << 62,
    1 << 63,
    10**30,
]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("name", ["offset", "stride", "rows", "first_row"])
def test_a_number_of_a_run_that_is_none_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidPayload) as caught:
        _given(runs=[{"offset": 0, "stride": 4}, {"offset": 500, "stride": 4, name: value}])
    assert caught.value.code == "invalid_geometry"
    assert caught.value.field == f"geometry.runs.1.{name}"


@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_a_number_of_rows_that_is_none_is_named(value: object) -> None:
    with pytest.raises(InvalidPayload) as caught:
        _given(rows=value)
    assert caught.value.field == "geometry.rows"


@pytest.mark.parametrize(
    "document",
    [
        {"runs": []},
        {"runs": None},
        {"runs": {}},
        {"runs": "x"},
        {"runs": [None]},
        {"runs": [[]]},
        {"runs": [{}]},
        {"runs": [{"offset": 0}]},
        {"runs": [{"stride": 4}]},
        {"rows": 0},
        {"rows": 1 << 40},
        {"rows": 251},
        {"element": "f64"},
        {"element": None},
        {"element": 1},
        {"runs": [{"offset": 0, "stride": 4, "first_row": 11}]},
        {"runs": [{"offset": 0, "stride": 4, "first_row": 10}]},
        {"runs": [{"offset": 0, "stride": 4, "first_row": 1}]},
        {"runs": [{"offset": 0, "stride": 0}]},
        {"runs": [{"offset": 0, "stride": 4, "rows": 0}]},
        {"runs": [{"offset": 0, "stride": 4}, {"offset": 39, "stride": 4}]},
        {"runs": [{"offset": 961, "stride": 4}]},
    ],
)
def test_documents_that_do_not_fit_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload, match="invalid_geometry"):
        _given(**document)


@pytest.mark.parametrize("element", [[], {}, [1]])
def test_an_element_of_another_shape_is_refused(element: object) -> None:
    with pytest.raises(InvalidPayload, match="invalid_geometry"):
        _given(element=element)


@pytest.mark.parametrize("rows", [9, 11])
def test_the_longest_run_has_as_many_rows_as_the_document_says(rows: int) -> None:
    with pytest.raises(InvalidPayload, match="invalid_geometry"):
        _given(runs=[{"offset": 0, "stride": 4, "rows": rows}])


def test_a_million_runs_are_refused_at_once() -> None:
    runs = [{"offset": 0, "stride": 4}] * 1_000_000
    begun = time.thread_time()
    with pytest.raises(InvalidPayload, match="at most"):
        _given(runs=runs)
    assert time.thread_time() - begun < 5


def test_the_most_runs_are_taken_in_reasonable_time() -> None:
    """Thirty thousand columns of a transposed V, and more."""
    runs = [{"offset": 20 * i, "stride": 2} for i in range(MOST_RUNS)]
    begun = time.thread_time()
    made = _given(raw_bytes=20 * MOST_RUNS, runs=runs)
    assert time.thread_time() - begun < 60
    assert made.groups == (Runs(0, 2, 10, 0, MOST_RUNS, 20),)


def test_an_empty_component_has_no_geometry() -> None:
    with pytest.raises(InvalidPayload):
        _given(raw_bytes=0)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                name: st.integers(0, 60) | st.sampled_from([1 << 31, (1 << 62) - 1, 1 << 62, -1])
                for name in ("offset", "stride", "rows", "first_row")
            },
        ),
        max_size=6,
    ),
    st.integers(0, 30) | st.just(1 << 31),
    st.integers(0, 400),
)
def test_any_document_is_taken_whole_or_refused(
    runs: list[dict[str, int]], rows: int, raw_bytes: int
) -> None:
    try:
        made = geometry.given({"rows": rows, "runs": runs}, raw_bytes)
    except InvalidPayload as error:
        assert error.code == "invalid_geometry"
        return
    data = random.Random(6).randbytes(raw_bytes)
    layout = Layout(made, raw_bytes)
    back = np.zeros(raw_bytes, np.uint8)
    for seq, block in enumerate(_blocks(layout, data)):
        layout.scatter(seq, block, back)
    assert back.tobytes() == data
