"""Where components are cut: every byte lies in exactly one block, and equal beginnings are cut alike."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.blocks.codec import HEADER_BYTES, PAGE_BYTES, footprint_bytes
from storage.cut import FIXED_CUT_BYTES, CutPlan, FixedCut

_STATES = Path(__file__).parents[1] / "data" / "states"


def _blocks(component: bytes, plan: CutPlan) -> list[bytes]:
    blocks, position = [], 0
    for length in plan.lengths:
        blocks.append(component[position : position + length])
        position += length
    return blocks


@given(st.integers(0, 40 << 20))
def test_cuts_add_up_and_all_but_the_last_are_full(size: int) -> None:
    lengths = FixedCut().plan(size).lengths
    assert sum(lengths) == size
    assert all(0 < length <= FIXED_CUT_BYTES for length in lengths)
    assert all(length == FIXED_CUT_BYTES for length in lengths[:-1])


@given(st.integers(0, 1 << 62), st.integers(1 << 55, 1 << 60))
def test_lengths_far_beyond_memory_are_planned_exactly(size: int, block_bytes: int) -> None:
    assert sum(FixedCut(block_bytes).plan(size).lengths) == size


@given(st.binary(max_size=500), st.integers(1, 60))
def test_the_blocks_put_together_are_the_component(component: bytes, block_bytes: int) -> None:
    plan = FixedCut(block_bytes).plan(len(component))
    assert b"".join(_blocks(component, plan)) == component


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_equal_beginnings_give_equal_full_blocks(shared: bytes, one: bytes, other: bytes) -> None:
    cut = FixedCut(32)
    first = _blocks(shared + one, cut.plan(len(shared + one)))
    second = _blocks(shared + other, cut.plan(len(shared + other)))
    whole = len(shared) // 32
    assert first[:whole] == second[:whole] == _blocks(shared, cut.plan(len(shared)))[:whole]


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (0, ()),
        (1, (1,)),
        (FIXED_CUT_BYTES - 1, (FIXED_CUT_BYTES - 1,)),
        (FIXED_CUT_BYTES, (FIXED_CUT_BYTES,)),
        (FIXED_CUT_BYTES + 1, (FIXED_CUT_BYTES, 1)),
        (2 * FIXED_CUT_BYTES, (FIXED_CUT_BYTES, FIXED_CUT_BYTES)),
    ],
)
def test_the_cut_at_each_border_is_known(size: int, lengths: tuple[int, ...]) -> None:
    assert FixedCut().plan(size) == CutPlan(lengths)


def test_a_plan_depends_on_the_length_alone() -> None:
    assert FixedCut().plan(5_000_000) == FixedCut().plan(5_000_000)


def test_a_full_block_stored_raw_wastes_no_page() -> None:
    full = footprint_bytes(FIXED_CUT_BYTES + HEADER_BYTES)
    assert footprint_bytes(FIXED_CUT_BYTES + HEADER_BYTES + 1) == full + 4096


@pytest.mark.parametrize("size", [5000, 65_472, FIXED_CUT_BYTES, FIXED_CUT_BYTES + 1])
def test_lmdb_takes_the_pages_that_are_counted(size: int, tmp_path: Path) -> None:
    env = lmdb.open(str(tmp_path), map_size=1 << 28)
    with env.begin(write=True) as txn:
        txn.put(bytes(32), bytes(HEADER_BYTES + size))
    assert env.stat()["overflow_pages"] == footprint_bytes(HEADER_BYTES + size) // PAGE_BYTES
    env.close()


@pytest.mark.parametrize("path", sorted(_STATES.glob("*.bin")), ids=lambda path: path.name)
def test_real_states_are_cut_without_loss(path: Path) -> None:
    component = path.read_bytes()
    blocks = _blocks(component, FixedCut().plan(len(component)))
    assert b"".join(blocks) == component
    assert len(blocks) == -(-len(component) // FIXED_CUT_BYTES)
