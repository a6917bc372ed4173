"""Geometry that nobody gave: what a KV descriptor says of its component.

Order of a page: K rows of each layer, then V rows of each layer, then index rows of each layer where
the descriptor has them. A transposed V holds, for each layer, one run a column: all tokens of its first
element, then of its second, and so on. A composite page is two such pages, one behind the other; its
window part begins at a later token.

A guess that does not add up to the component's length is no geometry. One that adds up and is wrong
costs duplicates that are not found, never a byte: whatever the runs, the component is put together
from the same places it was taken from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.engine.errors import InvalidPayload
from app.engine.geometry import Geometry, Layout, Runs
from app.engine.payload import V_TRANSPOSED, check_descriptor, flag_bits

_ELEMENTS = {1: "f16", "f16": "f16", 30: "bf16", "bf16": "bf16", 0: "f32", "f32": "f32"}


def of_descriptor(descriptor: Mapping[str, Any], raw_bytes: int) -> Geometry | None:
    """The geometry of a kv component, from its descriptor; None where the lengths do not add up.

    Args:
        descriptor: one that has passed `payload.check_descriptor`.
        raw_bytes: length of the component.
    """
    parts = descriptor.get("components") or [
        {
            "offset": 0,
            "payload_bytes": raw_bytes,
            "token_start": 0,
            "token_count": descriptor["token_count"],
            "flags": descriptor["flags"],
        }
    ]
    groups: list[Runs] = []
    for part in parts:
        found = list(_page(descriptor, part))
        if not found:
            return None
        groups += found
    kind = descriptor["k_type"]
    kind = kind.lower() if isinstance(kind, str) else kind
    element = _ELEMENTS.get(kind, "opaque") if isinstance(kind, (int, str)) else "opaque"
    geometry = Geometry(tuple(groups), element)
    try:
        Layout(geometry, raw_bytes)
    except InvalidPayload:
        return None
    return geometry


def _page(descriptor: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[Runs]:
    """Groups of one page; none if its length is not that of whole layers."""
    k_bytes, v_bytes = descriptor["k_row_bytes"], descriptor["v_row_bytes"]
    index_bytes = descriptor["k_idx_row_bytes"]
    rows = part["token_count"]
    layer_bytes = rows * (k_bytes + v_bytes + index_bytes)
    if not layer_bytes or part["payload_bytes"] % layer_bytes:
        return
    layers = part["payload_bytes"] // layer_bytes
    offset, first_row = part["offset"], part["token_start"]
    v_element = descriptor["v_element_bytes"]
    transposed = flag_bits(part.get("flags", descriptor["flags"])) & V_TRANSPOSED
    if transposed and v_element and v_bytes % v_element == 0:
        v_stride, v_runs = v_element, layers * (v_bytes // v_element)
    else:
        v_stride, v_runs = v_bytes, layers
    for stride, count in ((k_bytes, layers), (v_stride, v_runs), (index_bytes, layers)):
        if stride and count:
            yield Runs(offset, stride, rows, first_row, count, rows * stride)
            offset += rows * stride * count


def shorter_descriptor(
    descriptor: Mapping[str, Any], token_count: int, raw_bytes: int
) -> dict[str, Any]:
    """The descriptor of the first `token_count` tokens of a component, `raw_bytes` long.

    Raises:
        ValueError: a part of it does not reach back to the first token, or does not fit.
    """
    shorter = {**descriptor, "token_count": token_count, "payload_bytes": raw_bytes}
    if descriptor.get("components"):
        offset = 0
        parts = []
        for part in descriptor["components"]:
            size, rest = divmod(part["payload_bytes"] * token_count, part["token_count"] or 1)
            if part["token_start"] or part["token_count"] < token_count or rest:
                raise ValueError("a part of the page does not have the first tokens")
            parts.append(
                {**part, "offset": offset, "payload_bytes": size, "token_count": token_count}
            )
            offset += size
        shorter["components"] = parts
    try:
        check_descriptor(shorter, raw_bytes, token_count)
    except InvalidPayload as error:
        raise ValueError(error.detail) from error
    return shorter
