"""Geometry from a KV descriptor: what adds up is laid out as llama.cpp pages are, the rest is left alone."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine import geometry
from app.engine.derived import of_descriptor, shorter_descriptor
from app.engine.errors import InvalidPayload
from app.engine.geometry import MOST_ROW_BYTES, Geometry, Layout, Runs
from app.engine.payload import V_TRANSPOSED, check_descriptor
from tests.conftest import Sample

HAS_K_IDX = 2


def _single(tokens: int, layers: int, k: int, v: int, **more: Any) -> dict[str, Any]:
    index = more.get("k_idx_row_bytes", 0)
    return {
        "version": 1,
        "k_type": 1,
        "v_type": 1,
        "k_row_bytes": k,
        "v_row_bytes": v,
        "k_idx_row_bytes": 0,
        "v_element_bytes": 2,
        "v_embedding_width": v // 2,
        "token_start": 0,
        "token_count": tokens,
        "layer_start": 0,
        "layer_end": layers,
        "layer_count": layers,
        "flags": 0,
        "payload_bytes": tokens * layers * (k + v + index),
        "codec": 0,
        "component_count": 0,
        "components": [],
        **more,
    }


def _composite(parts: list[tuple[int, int, int]], tokens: int, **more: Any) -> dict[str, Any]:
    """`parts` are (layers, first token, tokens) of rows of 8 and 4 bytes."""
    components: list[dict[str, Any]] = []
    offset = 0
    for layers, first, count in parts:
        size = layers * count * 12
        components.append(
            {
                "offset": offset,
                "payload_bytes": size,
                "token_start": first,
                "token_count": count,
                "flags": more.get("flags", 0),
            }
        )
        offset += size
    return {
        **_single(tokens, sum(layers for layers, _, _ in parts), 8, 4),
        "version": 2,
        "codec": 1,
        "payload_bytes": offset,
        "component_count": len(parts),
        "components": components,
        **more,
    }


def _runs(descriptor: dict[str, Any], raw_bytes: int | None = None) -> tuple[Runs, ...] | None:
    size = descriptor["payload_bytes"] if raw_bytes is None else raw_bytes
    if raw_bytes is None:
        check_descriptor(descriptor, size, descriptor["token_count"])
    found = of_descriptor(descriptor, size)
    if found is None:
        return None
    layout = Layout(found, size)
    assert layout.frame_bytes == 0
    assert sum(layout.lengths) == size
    return found.groups


def _each(made: Geometry | None) -> list[tuple[int, int, int, int]]:
    assert made is not None
    return [
        (g.offset + run * g.spacing, g.stride, g.rows, g.first_row)
        for g in made.groups
        for run in range(g.count)
    ]


def test_descriptors_of_real_states_give_the_runs_that_were_measured(hybrid: list[Sample]) -> None:
    for sample in hybrid:
        data = sample.components["kv"]
        assert sample.kv_descriptor is not None
        measured = geometry.given(sample.geometry["kv"], len(data))
        found = of_descriptor(sample.kv_descriptor, len(data))
        assert _each(found) == _each(measured)
        assert found is not None
        assert found.element == measured.element


def test_growing_real_states_share_their_full_windows(hybrid: list[Sample]) -> None:
    blocks = []
    for sample in hybrid:
        data = sample.components["kv"]
        assert sample.kv_descriptor is not None
        found = of_descriptor(sample.kv_descriptor, len(data))
        assert found is not None
        layout = Layout(found, len(data))
        some = [bytearray(length) for length in layout.lengths]
        for seq, block in enumerate(some):
            layout.gather(seq, data, block)
        blocks.append(some)
    assert len({len(some) for some in blocks}) == 3
    for shorter, longer in pairwise(blocks):
        assert longer[: len(shorter)] == shorter


def test_k_rows_of_each_layer_and_then_v_rows() -> None:
    assert _runs(_single(10, 3, 8, 4)) == (
        Runs(0, 8, 10, 0, 3, 80),
        Runs(240, 4, 10, 0, 3, 40),
    )


def test_a_transposed_v_has_a_run_for_each_column() -> None:
    for flags in (V_TRANSPOSED, ["V_TRANSPOSED"]):
        assert _runs(_single(10, 3, 8, 6, flags=flags)) == (
            Runs(0, 8, 10, 0, 3, 80),
            Runs(240, 2, 10, 0, 9, 20),
        )


def test_a_model_without_v_rows_may_say_that_they_are_transposed() -> None:
    assert _runs(_single(10, 2, 8, 0, flags=V_TRANSPOSED)) == (Runs(0, 8, 10, 0, 2, 80),)


@pytest.mark.parametrize("element_bytes", [0, 4])
def test_a_transposed_v_without_whole_elements_has_rows(element_bytes: int) -> None:
    found = _runs(_single(10, 3, 8, 6, flags=V_TRANSPOSED, v_element_bytes=element_bytes))
    assert found == (Runs(0, 8, 10, 0, 3, 80), Runs(240, 6, 10, 0, 3, 60))


def test_index_rows_come_last() -> None:
    assert _runs(_single(10, 2, 8, 4, k_idx_row_bytes=6, flags=HAS_K_IDX)) == (
        Runs(0, 8, 10, 0, 2, 80),
        Runs(160, 4, 10, 0, 2, 40),
        Runs(240, 6, 10, 0, 2, 60),
    )
    both = HAS_K_IDX | V_TRANSPOSED
    assert _runs(_single(10, 2, 8, 4, k_idx_row_bytes=6, flags=both)) == (
        Runs(0, 8, 10, 0, 2, 80),
        Runs(160, 2, 10, 0, 4, 20),
        Runs(240, 6, 10, 0, 2, 60),
    )


def test_a_model_without_v_rows_has_k_rows_alone() -> None:
    assert _runs(_single(10, 2, 8, 0)) == (Runs(0, 8, 10, 0, 2, 80),)


def test_the_layers_are_those_that_the_bytes_hold() -> None:
    """A stage of a model says its range of layers, and may keep fewer in the cache."""
    stage = _single(10, 2, 8, 4, layer_start=4, layer_end=12, layer_count=8)
    assert _runs(stage) == (Runs(0, 8, 10, 0, 2, 80), Runs(160, 4, 10, 0, 2, 40))


def test_the_window_part_of_a_composite_page_begins_at_a_later_token() -> None:
    assert _runs(_composite([(2, 0, 10), (3, 6, 4)], 10)) == (
        Runs(0, 8, 10, 0, 2, 80),
        Runs(160, 4, 10, 0, 2, 40),
        Runs(240, 8, 4, 6, 3, 32),
        Runs(336, 4, 4, 6, 3, 16),
    )


def test_a_window_over_all_tokens_is_like_the_base() -> None:
    found = _runs(_composite([(1, 0, 10), (1, 0, 10)], 10))
    assert found is not None
    assert [(g.rows, g.first_row) for g in found] == [(10, 0)] * 4


def test_each_part_says_whether_its_v_is_transposed() -> None:
    descriptor = _composite([(1, 0, 10), (1, 6, 4)], 10)
    descriptor["components"][1]["flags"] = V_TRANSPOSED
    found = _runs(descriptor)
    assert found is not None
    assert found[1:] == (
        Runs(80, 4, 10, 0, 1, 40),
        Runs(120, 8, 4, 6, 1, 32),
        Runs(152, 2, 4, 6, 2, 8),
    )


@pytest.mark.parametrize("change", [-1, 1, 12, 119, 121, -119])
def test_lengths_that_do_not_add_up_are_no_geometry(change: int) -> None:
    assert _runs(_single(10, 3, 8, 4), 360 + change) is None


@pytest.mark.parametrize(
    "parts",
    [
        [(2, 0, 10), (0, 10, 0)],
        [(2, 0, 10), (0, 6, 4)],
        [(0, 0, 10), (2, 6, 4)],
        [(2, 1, 9), (2, 6, 4)],
    ],
)
def test_parts_that_do_not_add_up_are_no_geometry(parts: list[tuple[int, int, int]]) -> None:
    descriptor = _composite(parts, 10)
    assert of_descriptor(descriptor, descriptor["payload_bytes"]) is None


def test_a_page_without_rows_is_no_geometry() -> None:
    assert of_descriptor(_single(10, 3, 0, 0), 0) is None
    assert of_descriptor(_single(10, 3, 0, 0, payload_bytes=100), 100) is None
    assert of_descriptor(_single(10, 0, 8, 4), 0) is None


def test_a_row_that_is_too_long_is_no_geometry() -> None:
    assert of_descriptor(_single(1, 1, MOST_ROW_BYTES + 1, 0), MOST_ROW_BYTES + 1) is None
    assert of_descriptor(_single(1, 2, MOST_ROW_BYTES, 0), 2 * MOST_ROW_BYTES) is None


def test_more_columns_than_a_layout_takes_are_no_geometry() -> None:
    wide = _single(1, 1, 2, 1 << 20, flags=V_TRANSPOSED)
    assert of_descriptor(wide, wide["payload_bytes"]) is None


@pytest.mark.parametrize(
    ("kind", "element"),
    [
        (0, "f32"),
        (1, "f16"),
        (30, "bf16"),
        ("f16", "f16"),
        ("F16", "f16"),
        ("bf16", "bf16"),
        ("f32", "f32"),
        (2, "opaque"),
        ("q4_0", "opaque"),
        (999, "opaque"),
        ("", "opaque"),
    ],
)
def test_the_type_of_the_keys_names_the_element(kind: object, element: str) -> None:
    made = of_descriptor(_single(10, 3, 8, 4, k_type=kind), 360)
    assert made is not None
    assert made.element == element


@pytest.mark.parametrize(
    "kind",
    [
        1.5,
        True,
        *(pytest.param(kind) for kind in ([], [1], {}, {"a": 1})),
    ],
)
def test_a_type_of_any_shape_is_looked_at_and_passed_over(kind: object) -> None:
    """A descriptor may hold anything there: `check_descriptor` asks only that it is present."""
    descriptor = _single(10, 3, 8, 4, k_type=kind)
    check_descriptor(descriptor, 360, 10)
    assert of_descriptor(descriptor, 360) is not None


@settings(deadline=None)
@given(
    tokens=st.integers(1, 300),
    layers=st.integers(1, 5),
    rows=st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 9)),
    flags=st.integers(0, 3),
    element=st.integers(0, 4),
    off=st.sampled_from([0, 0, 0, 1, -1]),
)
def test_any_page_is_laid_out_whole_or_not_at_all(
    tokens: int, layers: int, rows: tuple[int, int, int], flags: int, element: int, off: int
) -> None:
    k, v, index = rows
    flags &= ~V_TRANSPOSED if v == 0 else flags
    descriptor = _single(
        tokens, layers, k, v, k_idx_row_bytes=index, flags=flags, v_element_bytes=element
    )
    size = max(0, descriptor["payload_bytes"] + off)
    found = of_descriptor(descriptor, size)
    if found is None:
        assert k + v + index == 0 or size % (tokens * (k + v + index)) or not size
        return
    layout = Layout(found, size)
    assert layout.frame_bytes == 0
    assert found.rows == tokens
    assert found.row_bytes * tokens == size


_ABSURD = st.sampled_from(
    [0, 1, 2, 3, 4, 34, 1 << 14, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 62) - 1]
)


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_an_absurd_page_is_laid_out_whole_or_not_at_all(data: st.DataObject) -> None:
    """Whatever passes `check_descriptor`, and quickly: it is looked at before anybody sent a byte."""
    k, v, tokens, layers = (data.draw(_ABSURD) for _ in range(4))
    flags = data.draw(st.integers(0, 3))
    index = data.draw(_ABSURD.filter(bool)) if flags & HAS_K_IDX else 0
    page = tokens * (k + v + index)
    size = data.draw(st.sampled_from([page, page * layers]) | _ABSURD)
    descriptor = _single(
        tokens,
        layers,
        k,
        v,
        k_idx_row_bytes=index,
        flags=flags,
        v_element_bytes=data.draw(_ABSURD),
        payload_bytes=size,
    )
    if data.draw(st.booleans()):
        base, window = data.draw(st.integers(0, size)), data.draw(st.integers(0, tokens))
        parts = [(0, base, 0, tokens), (base, size - base, tokens - window, window)]
        names = ("offset", "payload_bytes", "token_start", "token_count")
        descriptor |= {
            "version": 2,
            "codec": 1,
            "component_count": 2,
            "components": [
                dict(zip(names, part, strict=True)) | {"flags": flags} for part in parts
            ],
        }
    try:
        check_descriptor(descriptor, size, tokens)
    except InvalidPayload:
        return
    begun = time.thread_time()
    found = of_descriptor(descriptor, size)
    if found is not None:
        layout = Layout(found, size)
        assert layout.frame_bytes == 0
        assert sum(layout.lengths) == size
    assert time.thread_time() - begun < 5


# ---- descriptors of a prefix -------------------------------------------------------------------


def test_a_shorter_descriptor_says_the_prefix() -> None:
    shorter = shorter_descriptor(_single(10, 3, 8, 4, vendor="x"), 7, 252)
    assert shorter == {**_single(7, 3, 8, 4, vendor="x")}


def test_a_shorter_descriptor_of_parts_that_reach_back_says_the_prefix() -> None:
    descriptor = _composite([(2, 0, 10), (1, 0, 10)], 10)
    shorter = shorter_descriptor(descriptor, 4, 3 * 4 * 12)
    assert shorter == _composite([(2, 0, 4), (1, 0, 4)], 4)


def test_a_window_that_begins_later_has_no_shorter_descriptor() -> None:
    with pytest.raises(ValueError, match="first tokens"):
        shorter_descriptor(_composite([(2, 0, 10), (1, 6, 4)], 10), 8, 8 * 24)


def test_a_shorter_descriptor_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="part"):
        shorter_descriptor(_composite([(2, 0, 10), (1, 0, 10)], 10), 4, 3 * 4 * 12 + 1)
