"""Kinds, components and KV descriptors: what belongs together is taken, everything else has its reason."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.errors import InvalidPayload
from app.engine.payload import (
    MOST_DESCRIPTOR_BYTES,
    WIRE_ORDER,
    PayloadKind,
    check_components,
    check_descriptor,
    checked_payload,
)

_SAMPLE = json.loads((Path(__file__).parents[1] / "data/states/hybrid.128.json").read_text())
SINGLE: dict[str, Any] = _SAMPLE["kv_descriptor"]
BYTES = SINGLE["payload_bytes"]

COMPOSITE: dict[str, Any] = {
    **SINGLE,
    "version": 2,
    "payload_bytes": 1000,
    "codec": 1,
    "component_count": 2,
    "components": [
        {"offset": 0, "payload_bytes": 700, "token_start": 0, "token_count": 128, "flags": 0},
        {"offset": 700, "payload_bytes": 300, "token_start": 96, "token_count": 32, "flags": 0},
    ],
}


def _reason(descriptor: object, kv_bytes: int, tokens: int = 128) -> str | None:
    with pytest.raises(InvalidPayload) as caught:
        check_descriptor(descriptor, kv_bytes, tokens)
    assert caught.value.code == "invalid_descriptor"
    return caught.value.field


def test_descriptors_of_real_states_are_taken() -> None:
    check_descriptor(SINGLE, BYTES, 128)
    check_descriptor({**SINGLE, "codec": "single", "flags": ["V_TRANSPOSED"]}, BYTES, 128)
    check_descriptor({**SINGLE, "k_idx_row_bytes": 4, "flags": ["HAS_K_IDX"]}, BYTES, 128)
    check_descriptor({**SINGLE, "k_idx_row_bytes": 4, "flags": 3, "k_type": "q8_0"}, BYTES, 128)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"payload_bytes": BYTES + 1}, "payload_bytes"),
        ({"k_idx_row_bytes": 1}, "k_idx_row_bytes"),
        ({"flags": 2}, "k_idx_row_bytes"),
        ({"flags": ["NOPE"]}, "flags"),
        ({"flags": "V_TRANSPOSED"}, "flags"),
        ({"flags": -1}, "flags"),
        ({"flags": True}, "flags"),
        ({"token_start": 1}, "token_start"),
        ({"token_count": 127}, "token_count"),
        ({"layer_end": -1}, "layer_end"),
        ({"layer_start": 7}, "layer_end"),
        ({"layer_count": 7}, "layer_count"),
        ({"component_count": 1}, "component_count"),
        ({"component_count": 1, "components": [{}]}, "component_count"),
        ({"components": {}}, "components"),
        ({"codec": 2}, "codec"),
        ({"codec": True}, "codec"),
        ({"codec": "zip"}, "codec"),
        ({"k_row_bytes": 1.0}, "k_row_bytes"),
        ({"k_row_bytes": "256"}, "k_row_bytes"),
        ({"k_row_bytes": 1 << 63}, "k_row_bytes"),
        ({"v_row_bytes": True}, "v_row_bytes"),
    ],
)
def test_each_violation_of_a_single_page_names_its_field(
    change: dict[str, Any], field: str
) -> None:
    assert _reason({**SINGLE, **change}, BYTES) == f"kv_descriptor.{field}"


@pytest.mark.parametrize("name", [key for key in SINGLE if key != "components"])
def test_no_field_may_be_missing(name: str) -> None:
    missing = {key: value for key, value in SINGLE.items() if key != name}
    assert _reason(missing, BYTES) == f"kv_descriptor.{name}"


@pytest.mark.parametrize("descriptor", [None, [], "x", 7])
def test_a_descriptor_is_an_object(descriptor: object) -> None:
    assert _reason(descriptor, BYTES) == "kv_descriptor"


def test_a_composite_page_is_taken_by_number_and_by_name() -> None:
    check_descriptor(COMPOSITE, 1000, 128)
    check_descriptor({**COMPOSITE, "codec": "composite"}, 1000, 128)


@pytest.mark.parametrize(
    ("part", "change", "field"),
    [
        (0, {"offset": 1}, "components.0.offset"),
        (0, {"token_start": 1}, "components.0.token_count"),
        (0, {"token_count": 127}, "components.0.token_count"),
        (0, {"payload_bytes": 600}, "components.1.offset"),
        (1, {"offset": 701}, "components.1.offset"),
        (1, {"payload_bytes": 299}, "components.1.payload_bytes"),
        (1, {"token_start": 95}, "components.1.token_count"),
        (1, {"flags": 2}, "components.1.flags"),
        (0, {"flags": ["HAS_K_IDX"]}, "components.0.flags"),
        (1, {"offset": "700"}, "components.1.offset"),
        (1, {"payload_bytes": -1}, "components.1.payload_bytes"),
    ],
)
def test_each_violation_of_a_composite_page_names_its_part(
    part: int, change: dict[str, Any], field: str
) -> None:
    descriptor = copy.deepcopy(COMPOSITE)
    descriptor["components"][part] |= change
    assert _reason(descriptor, 1000) == f"kv_descriptor.{field}"


def test_a_composite_page_has_version_2_and_two_parts() -> None:
    assert _reason({**COMPOSITE, "version": 1}, 1000) == "kv_descriptor.version"
    one = {**COMPOSITE, "components": COMPOSITE["components"][:1], "component_count": 1}
    assert _reason(one, 1000) == "kv_descriptor.components"
    three = {**COMPOSITE, "component_count": 3}
    assert _reason(three, 1000) == "kv_descriptor.component_count"
    assert _reason({**COMPOSITE, "components": [1, 2]}, 1000) == "kv_descriptor.components.0"


@pytest.mark.parametrize(
    ("kind", "components"),
    [
        ("full_state", {"full": 1}),
        ("full_state", {"full": 1, "logits": 1}),
        ("kv_recurrent", {"kv": 1, "recurrent": 1}),
        ("kv_recurrent", {"kv": 0, "recurrent": 1}),
        ("recurrent_only", {"recurrent": 1}),
        ("kv", {"kv": 1, "logits": 9}),
    ],
)
def test_components_that_make_a_kind_are_taken(kind: str, components: dict[str, int]) -> None:
    check_components(kind, components)


def test_components_are_put_in_wire_order() -> None:
    sizes, _ = checked_payload("full_state", {"logits": 1, "full": 2}, None, 1)
    assert list(sizes) == [name for name in WIRE_ORDER if name in sizes] == ["full", "logits"]


def test_an_empty_kv_needs_no_descriptor() -> None:
    assert checked_payload("kv_recurrent", {"kv": 0, "recurrent": 5}, None, 1)[1] is None


def test_a_descriptor_without_kv_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="invalid_descriptor"):
        checked_payload("full_state", {"full": 1}, SINGLE, 128)


def test_a_descriptor_is_bounded() -> None:
    big = {**SINGLE, "vendor": "x" * 5000}
    with pytest.raises(InvalidPayload, match="descriptor_too_large"):
        checked_payload("kv", {"kv": BYTES}, big, 128)


def test_unknown_keys_are_kept() -> None:
    _, text = checked_payload("kv", {"kv": BYTES}, {**SINGLE, "vendor": {"a": [1, "é"]}}, 128)
    assert text is not None
    assert json.loads(text)["vendor"] == {"a": [1, "é"]}


def _refusal(
    kind: str, components: dict[str, int], descriptor: dict[str, Any] | None, tokens: int = 128
) -> tuple[str, str | None]:
    with pytest.raises(InvalidPayload) as caught:
        checked_payload(kind, components, descriptor, tokens)
    return caught.value.code, caught.value.field


@pytest.mark.parametrize(
    ("kind", "components"),
    [
        # missing
        ("full_state", {}),
        ("full_state", {"logits": 1}),
        ("kv_recurrent", {"kv": 1}),
        ("kv_recurrent", {"recurrent": 1}),
        ("recurrent_only", {"logits": 1}),
        ("kv", {}),
        # foreign
        ("full_state", {"full": 1, "kv": 1}),
        ("full_state", {"full": 1, "recurrent": 1}),
        ("kv_recurrent", {"kv": 1, "recurrent": 1, "full": 1}),
        ("recurrent_only", {"recurrent": 1, "kv": 1}),
        ("recurrent_only", {"recurrent": 1, "kv": 0}),
        ("kv", {"kv": 1, "recurrent": 1}),
        ("kv", {"kv": 1, "other": 1}),
        ("kv", {"kv": 1, "KV": 1}),
        ("kv", {"kv": 1, "": 1}),
        # empty
        ("full_state", {"full": 0}),
        ("full_state", {"full": 1, "logits": 0}),
        ("kv_recurrent", {"kv": 1, "recurrent": 0}),
        ("kv_recurrent", {"kv": 0, "recurrent": 0}),
        ("recurrent_only", {"recurrent": 0}),
        ("kv", {"kv": 0}),
    ],
)
def test_components_that_do_not_make_a_kind_are_an_invalid_payload(
    kind: str, components: dict[str, int]
) -> None:
    assert _refusal(kind, components, None) == ("invalid_payload", "components")
    with pytest.raises(InvalidPayload):
        check_components(kind, components)


@pytest.mark.parametrize("kind", ["", "KV", "kv ", "rows"])
def test_an_unknown_kind_is_an_invalid_payload_too(kind: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        check_components(kind, {"kv": 1})
    assert (caught.value.code, caught.value.field) == ("invalid_payload", "kind")


@given(
    st.sampled_from(list(PayloadKind)),
    st.dictionaries(st.sampled_from(WIRE_ORDER), st.integers(0, 2)),
)
def test_a_kind_takes_exactly_its_own_components(kind: str, components: dict[str, int]) -> None:
    required = {
        "full_state": {"full"},
        "kv_recurrent": {"kv", "recurrent"},
        "recurrent_only": {"recurrent"},
        "kv": {"kv"},
    }[kind]
    empty = {name for name, size in components.items() if size == 0}
    fits = required <= components.keys() <= required | {"logits"}
    if fits and empty <= ({"kv"} if kind == "kv_recurrent" else set()):
        check_components(kind, components)
    else:
        with pytest.raises(InvalidPayload, match="invalid_payload"):
            check_components(kind, components)


@pytest.mark.parametrize(
    ("kind", "components", "descriptor"),
    [
        ("kv", {"kv": BYTES}, None),
        ("kv_recurrent", {"kv": BYTES, "recurrent": 1}, None),
        ("full_state", {"full": 1}, SINGLE),
        ("recurrent_only", {"recurrent": 1}, SINGLE),
        ("recurrent_only", {"recurrent": 1}, {}),
    ],
)
def test_a_descriptor_goes_with_kv_and_kv_with_a_descriptor(
    kind: str, components: dict[str, int], descriptor: dict[str, Any] | None
) -> None:
    assert _refusal(kind, components, descriptor) == ("invalid_descriptor", "kv_descriptor")


def test_an_empty_kv_may_have_a_descriptor_that_says_so() -> None:
    sizes, text = checked_payload(
        "kv_recurrent", {"recurrent": 5, "kv": 0}, {**SINGLE, "payload_bytes": 0}, 128
    )
    assert list(sizes.items()) == [("kv", 0), ("recurrent", 5)]
    assert text is not None
    assert json.loads(text)["payload_bytes"] == 0
    wrong = _refusal("kv_recurrent", {"recurrent": 5, "kv": 0}, SINGLE)
    assert wrong == ("invalid_descriptor", "kv_descriptor.payload_bytes")


def test_sizes_come_back_in_wire_order_whatever_order_they_came_in() -> None:
    components = {"logits": 3, "recurrent": 2, "kv": BYTES}
    sizes, _ = checked_payload("kv_recurrent", components, SINGLE, 128)
    assert list(sizes.items()) == [("kv", BYTES), ("recurrent", 2), ("logits", 3)]


@pytest.mark.parametrize(
    "name", sorted(SINGLE.keys() - {"components", "k_type", "v_type", "codec"})
)
@pytest.mark.parametrize("value", [None, "1", 1.0, True, [], {}, -1])
def test_numbers_are_integers_from_0_on(name: str, value: object) -> None:
    if name == "flags" and value == []:
        check_descriptor({**SINGLE, "flags": value}, BYTES, 128)
        return
    assert _reason({**SINGLE, name: value}, BYTES) == f"kv_descriptor.{name}"


@pytest.mark.parametrize("name", ["k_type", "v_type", "codec"])
def test_null_is_as_good_as_missing(name: str) -> None:
    assert _reason({**SINGLE, name: None}, BYTES) == f"kv_descriptor.{name}"


@pytest.mark.parametrize("codec", [0, "single"])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_single_page_has_any_version(codec: object, version: int) -> None:
    check_descriptor({**SINGLE, "version": version, "codec": codec}, BYTES, 128)


def test_a_single_page_without_a_list_of_components_is_taken() -> None:
    bare = {key: value for key, value in SINGLE.items() if key != "components"}
    check_descriptor(bare, BYTES, 128)
    check_descriptor({**SINGLE, "components": []}, BYTES, 128)


@pytest.mark.parametrize("codec", [0, "single"])
def test_a_single_page_has_no_components(codec: object) -> None:
    parts = {"component_count": 2, "components": COMPOSITE["components"]}
    assert _reason({**SINGLE, **parts, "codec": codec}, BYTES) == "kv_descriptor.component_count"


@pytest.mark.parametrize("codec", [-1, 2, 1.0, True, False, "", "SINGLE", "0", [], {}])
def test_a_codec_is_one_of_two(codec: object) -> None:
    assert _reason({**SINGLE, "codec": codec}, BYTES) == "kv_descriptor.codec"


@pytest.mark.parametrize("flags", [0, 1, 1 << 31, [], ["V_TRANSPOSED"], ["V_TRANSPOSED"] * 2])
def test_flags_are_a_mask_or_names(flags: object) -> None:
    check_descriptor({**SINGLE, "flags": flags}, BYTES, 128)


@pytest.mark.parametrize("flags", [2, 3, ["HAS_K_IDX"], ["HAS_K_IDX", "V_TRANSPOSED"]])
def test_an_index_has_rows_and_its_flag_or_neither(flags: object) -> None:
    check_descriptor({**SINGLE, "flags": flags, "k_idx_row_bytes": 1}, BYTES, 128)
    without = {**SINGLE, "flags": flags, "k_idx_row_bytes": 0}
    assert _reason(without, BYTES) == "kv_descriptor.k_idx_row_bytes"


@pytest.mark.parametrize(
    "flags", [1 << 32, -1, 1.0, "1", {}, [1], ["v_transposed"], ["V_TRANSPOSED", None], [["X"]]]
)
def test_other_flags_are_refused(flags: object) -> None:
    assert _reason({**SINGLE, "flags": flags}, BYTES) == "kv_descriptor.flags"


def test_layers_may_fill_their_range_and_no_more() -> None:
    for start, end, number in ((0, 0, 0), (3, 3, 0), (2, 6, 4), (2, 6, 1), (2, 6, 0)):
        layers = {"layer_start": start, "layer_end": end, "layer_count": number}
        check_descriptor({**SINGLE, **layers}, BYTES, 128)
    too_many = {"layer_start": 2, "layer_end": 6, "layer_count": 5}
    assert _reason({**SINGLE, **too_many}, BYTES) == "kv_descriptor.layer_count"


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_the_lengths_in_a_descriptor_are_those_of_payload_and_prefix(
    kv_bytes: int, tokens: int
) -> None:
    fits = {**SINGLE, "payload_bytes": kv_bytes, "token_count": tokens}
    check_descriptor(fits, kv_bytes, tokens)
    assert _reason(fits, kv_bytes + 1, tokens) == "kv_descriptor.payload_bytes"
    assert _reason(fits, kv_bytes, tokens + 1) == "kv_descriptor.token_count"


# ---- composite pages -------------------------------------------------------------------------


def _composite(
    base_bytes: int, window_bytes: int, tokens: int, window_tokens: int, flags: int = 0
) -> dict[str, Any]:
    return {
        **COMPOSITE,
        "payload_bytes": base_bytes + window_bytes,
        "token_count": tokens,
        "flags": flags,
        "k_idx_row_bytes": 8 if flags & 2 else 0,
        "components": [
            {
                "offset": 0,
                "payload_bytes": base_bytes,
                "token_start": 0,
                "token_count": tokens,
                "flags": flags,
            },
            {
                "offset": base_bytes,
                "payload_bytes": window_bytes,
                "token_start": tokens - window_tokens,
                "token_count": window_tokens,
                "flags": flags,
            },
        ],
    }


_COMPOSITES = st.tuples(
    st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.integers(1, 1 << 20), st.integers(0, 3)
).flatmap(
    lambda drawn: st.integers(0, drawn[2]).map(
        lambda window: _composite(drawn[0], drawn[1], drawn[2], window, drawn[3])
    )
)


@given(_COMPOSITES)
def test_every_base_and_window_that_fit_together_are_taken(page: dict[str, Any]) -> None:
    check_descriptor(page, page["payload_bytes"], page["token_count"])
    named = {**page, "codec": "composite"}
    _, text = checked_payload(
        "kv_recurrent",
        {"kv": page["payload_bytes"], "recurrent": 1},
        named,
        page["token_count"],
    )
    assert text is not None
    assert json.loads(text) == named


@given(
    _COMPOSITES,
    st.integers(0, 1),
    st.sampled_from(["offset", "payload_bytes", "token_start", "token_count"]),
    st.integers(-(1 << 33), 1 << 33).filter(bool),
)
def test_every_deviation_of_one_number_of_a_part_is_refused(
    page: dict[str, Any], part: int, name: str, by: int
) -> None:
    changed = copy.deepcopy(page)
    changed["components"][part][name] += by
    field = _reason(changed, page["payload_bytes"], page["token_count"])
    assert field is not None
    assert field.startswith("kv_descriptor.components.")


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("name", ["offset", "payload_bytes", "token_start", "token_count"])
@pytest.mark.parametrize("value", [None, "0", 0.0, False, -1, 1 << 63, []])
def test_the_numbers_of_a_part_are_integers_from_0_on(part: int, name: str, value: object) -> None:
    page = copy.deepcopy(COMPOSITE)
    page["components"][part][name] = value
    assert _reason(page, 1000) == f"kv_descriptor.components.{part}.{name}"
    del page["components"][part][name]
    assert _reason(page, 1000) == f"kv_descriptor.components.{part}.{name}"


def test_a_part_without_flags_has_none() -> None:
    page = copy.deepcopy(COMPOSITE)
    for part in page["components"]:
        del part["flags"]
    check_descriptor(page, 1000, 128)


@pytest.mark.parametrize("part", [0, 1])
def test_the_index_flags_of_page_and_parts_agree_and_others_need_not(part: int) -> None:
    page = _composite(700, 300, 128, 32, flags=2)
    check_descriptor(page, 1000, 128)
    page["components"][part]["flags"] = ["HAS_K_IDX", "V_TRANSPOSED"]
    check_descriptor(page, 1000, 128)
    page["components"][part]["flags"] = 1
    assert _reason(page, 1000) == f"kv_descriptor.components.{part}.flags"
    page["components"][part]["flags"] = None
    assert _reason(page, 1000) == f"kv_descriptor.components.{part}.flags"


@pytest.mark.parametrize("version", [0, 1, 3])
@pytest.mark.parametrize("codec", [1, "composite"])
def test_a_composite_page_has_no_other_version(version: int, codec: object) -> None:
    page = {**COMPOSITE, "version": version, "codec": codec}
    assert _reason(page, 1000) == "kv_descriptor.version"


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_a_composite_page_has_exactly_two_parts(number: int) -> None:
    parts = (COMPOSITE["components"] * 2)[:number]
    page = {**COMPOSITE, "components": parts, "component_count": number}
    assert _reason(page, 1000) == "kv_descriptor.components"


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("value", [None, 1, "x", []])
def test_a_part_is_an_object(part: int, value: object) -> None:
    page = copy.deepcopy(COMPOSITE)
    page["components"][part] = value
    assert _reason(page, 1000) == f"kv_descriptor.components.{part}"


# ---- the text that is kept -------------------------------------------------------------------


def _of_length(length: int) -> dict[str, Any]:
    descriptor = {**SINGLE, "vendor": ""}
    descriptor["vendor"] = "x" * (length - len(json.dumps(descriptor, separators=(",", ":"))))
    return descriptor


def test_a_descriptor_of_exactly_the_bound_is_taken_and_one_byte_more_is_not() -> None:
    _, text = checked_payload("kv", {"kv": BYTES}, _of_length(MOST_DESCRIPTOR_BYTES), 128)
    assert text is not None
    assert len(text.encode()) == MOST_DESCRIPTOR_BYTES
    refusal = _refusal("kv", {"kv": BYTES}, _of_length(MOST_DESCRIPTOR_BYTES + 1))
    assert refusal == ("descriptor_too_large", "kv_descriptor")


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), b"bytes", {1, 2}, object(), {(1, 2): 3}]
)
def test_a_descriptor_that_is_no_plain_json_is_refused(value: object) -> None:
    refusal = _refusal("kv", {"kv": BYTES}, {**SINGLE, "vendor": value})
    assert refusal == ("invalid_descriptor", "kv_descriptor")


def test_a_descriptor_that_is_nested_without_end_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    refusal = _refusal("kv", {"kv": BYTES}, {**SINGLE, "vendor": deep})
    assert refusal == ("invalid_descriptor", "kv_descriptor")


def test_the_text_passes_as_a_header_and_reads_back_the_same() -> None:
    given_one = {**SINGLE, "vendor": {"é": ["日本", "\n", None, 1.5, {"deep": True}]}}
    _, text = checked_payload("kv", {"kv": BYTES}, given_one, 128)
    assert text is not None
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == given_one


def test_a_refusal_tells_no_value_of_the_descriptor() -> None:
    with pytest.raises(InvalidPayload) as caught:
        check_descriptor({**SINGLE, "flags": ["SECRET"]}, BYTES, 128)
    assert "SECRET" not in str(caught.value)
