"""Kinds, components and KV descriptors: what belongs together is taken, everything else has its reason."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from app.engine.errors import InvalidPayload
from app.engine.payload import WIRE_ORDER, check_components, check_descriptor, checked_payload

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
