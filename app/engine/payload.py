"""What a payload is made of, and which KV descriptors fit it (DESIGN section 2, rule 4).

The same checks run at admission, where a violation is refused, and at every restore, where it is a
deterministic failure. Names and units of a descriptor:

    version, layer_start, layer_end, layer_count    which layers
    token_start, token_count                        which tokens; token_start is 0
    k_type, v_type                                  the runtime's type ids; k_type may be a name
    k_row_bytes, v_row_bytes, v_element_bytes, k_idx_row_bytes, payload_bytes
    flags            bit mask (1 V_TRANSPOSED, 2 HAS_K_IDX) or a list of those names
    codec            0 or "single"; 1 or "composite" (a base part and a sliding-window part)
    component_count, components[]  for a composite: exactly two, each with
        offset, payload_bytes, token_start, token_count, flags

Unknown keys are kept and given back.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, Final

from app.engine.errors import InvalidPayload

WIRE_ORDER: Final = ("full", "kv", "recurrent", "logits")
MOST_DESCRIPTOR_BYTES: Final = 4096
_COMPOSITE_VERSION: Final = 2
_MOST: Final = 1 << 63


class PayloadKind(enum.StrEnum):
    """What a state consists of; `logits` may go with every kind."""

    FULL_STATE = "full_state"
    KV_RECURRENT = "kv_recurrent"
    RECURRENT_ONLY = "recurrent_only"
    KV = "kv"


_REQUIRED: Final = {
    PayloadKind.FULL_STATE: ("full",),
    PayloadKind.KV_RECURRENT: ("kv", "recurrent"),
    PayloadKind.RECURRENT_ONLY: ("recurrent",),
    PayloadKind.KV: ("kv",),
}
_SIZES: Final = (
    "layer_start",
    "layer_end",
    "token_start",
    "token_count",
    "layer_count",
    "k_row_bytes",
    "v_row_bytes",
    "v_element_bytes",
    "k_idx_row_bytes",
    "payload_bytes",
    "component_count",
)
V_TRANSPOSED: Final = 1
_HAS_K_IDX: Final = 2
_FLAGS: Final = {"V_TRANSPOSED": V_TRANSPOSED, "HAS_K_IDX": _HAS_K_IDX}


def checked_payload(
    kind: str,
    components: Mapping[str, int],
    descriptor: Mapping[str, Any] | None,
    token_count: int,
) -> tuple[dict[str, int], str | None]:
    """Check what a client wants to record.

    Args:
        components: raw bytes by name.

    Returns:
        The sizes in wire order, and the descriptor as JSON text.

    Raises:
        InvalidPayload: kind, components and descriptor do not fit together.
    """
    check_components(kind, components)
    ordered = {name: components[name] for name in WIRE_ORDER if name in components}
    if descriptor is None:
        if ordered.get("kv"):
            raise _bad_descriptor("a non-empty kv component needs its descriptor", None)
        return ordered, None
    if "kv" not in ordered:
        raise _bad_descriptor("a descriptor goes with a kv component only", None)
    text = _descriptor_text(descriptor)
    check_descriptor(descriptor, ordered["kv"], token_count)
    return ordered, text


def check_components(kind: str, components: Mapping[str, int]) -> None:
    """Refuse components that do not belong to the kind, or are empty where they must not be.

    Only the kv of a `kv_recurrent` may be empty (a model without attention layers in this stage).

    Raises:
        InvalidPayload: with the reason.
    """
    try:
        required = _REQUIRED[PayloadKind(kind)]
    except ValueError:
        raise InvalidPayload("invalid_payload", "the kind is not known", "kind") from None
    for name in required:
        if name not in components:
            raise _bad_payload(f"{kind} needs a component {name}")
    for name, size in components.items():
        if name not in (*required, "logits"):
            raise _bad_payload(f"{name} does not belong to {kind}")
        if size == 0 and not (name == "kv" and kind == PayloadKind.KV_RECURRENT.value):
            raise _bad_payload(f"the component {name} of {kind} must not be empty")


def check_descriptor(descriptor: Any, kv_bytes: int, token_count: int) -> None:
    """Every check of rule 4 on a KV descriptor.

    Args:
        kv_bytes: length of the kv component.
        token_count: tokens of the prefix.

    Raises:
        InvalidPayload: `invalid_descriptor` with the field and the reason.
    """
    if not isinstance(descriptor, Mapping):
        raise _bad_descriptor("the descriptor is a JSON object", None)
    version = _integer(descriptor, "version")
    sizes = {name: _integer(descriptor, name) for name in _SIZES}
    for name in ("k_type", "v_type"):
        _present(descriptor, name)
    flags = _flags(descriptor.get("flags"), "flags")
    if sizes["payload_bytes"] != kv_bytes:
        raise _bad_descriptor(
            "payload_bytes is not the length of the kv component", "payload_bytes"
        )
    if (sizes["k_idx_row_bytes"] > 0) != bool(flags & _HAS_K_IDX):
        raise _bad_descriptor("k_idx_row_bytes > 0 exactly with HAS_K_IDX", "k_idx_row_bytes")
    if sizes["token_start"] != 0:
        raise _bad_descriptor("token_start is 0", "token_start")
    if sizes["token_count"] != token_count:
        raise _bad_descriptor("token_count is the number of tokens of the prefix", "token_count")
    if sizes["layer_end"] < sizes["layer_start"]:
        raise _bad_descriptor("layer_end lies before layer_start", "layer_end")
    if sizes["layer_count"] > sizes["layer_end"] - sizes["layer_start"]:
        raise _bad_descriptor("layer_count exceeds the layer range", "layer_count")
    parts = descriptor.get("components", [])
    if not isinstance(parts, list):
        raise _bad_descriptor("components is a list", "components")
    if len(parts) != sizes["component_count"]:
        raise _bad_descriptor("component_count is the length of components", "component_count")
    codec = _codec(_present(descriptor, "codec"))
    if codec == "single":
        if sizes["component_count"] != 0:
            raise _bad_descriptor("a single page has no components", "component_count")
    else:
        if version != _COMPOSITE_VERSION:
            raise _bad_descriptor("a composite page has version 2", "version")
        _check_composite(parts, kv_bytes, token_count, flags)


def _check_composite(parts: list[Any], kv_bytes: int, token_count: int, flags: int) -> None:
    """Base at offset 0 over all tokens; the window directly behind it to the end; same last token."""
    if len(parts) != 2:
        raise _bad_descriptor("a composite page has a base and a window part", "components")
    base, window = (_part(part, index) for index, part in enumerate(parts))
    if base["offset"] != 0:
        raise _bad_descriptor("the base part begins at offset 0", "components.0.offset")
    if (base["token_start"], base["token_count"]) != (0, token_count):
        raise _bad_descriptor(
            "the base part covers the page's token range", "components.0.token_count"
        )
    if window["offset"] != base["payload_bytes"]:
        raise _bad_descriptor(
            "the window part lies directly behind the base part", "components.1.offset"
        )
    if window["offset"] + window["payload_bytes"] != kv_bytes:
        raise _bad_descriptor(
            "the window part reaches to the end of the payload", "components.1.payload_bytes"
        )
    if window["token_start"] + window["token_count"] != token_count:
        raise _bad_descriptor("both parts end with the same token", "components.1.token_count")
    for index, part in enumerate((base, window)):
        if (part["flags"] ^ flags) & _HAS_K_IDX:
            raise _bad_descriptor("the parts' index flags agree", f"components.{index}.flags")


def _part(part: Any, index: int) -> dict[str, int]:
    field = f"components.{index}"
    if not isinstance(part, Mapping):
        raise _bad_descriptor("a part is a JSON object", field)
    found = {
        name: _integer(part, name, f"{field}.{name}")
        for name in ("offset", "payload_bytes", "token_start", "token_count")
    }
    found["flags"] = _flags(part.get("flags", 0), f"{field}.flags")
    return found


def _codec(value: Any) -> str:
    if type(value) is int and value in (0, 1):
        return ("single", "composite")[value]
    if value in ("single", "composite"):
        return str(value)
    raise _bad_descriptor("codec is 0, 1, single or composite", "codec")


def flag_bits(value: Any) -> int:
    """The flags of a checked descriptor as a bit mask."""
    return _flags(value, "flags")


def _flags(value: Any, field: str) -> int:
    if type(value) is int and 0 <= value < 1 << 32:
        return value
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        if unknown := [name for name in value if name not in _FLAGS]:
            raise _bad_descriptor(f"{len(unknown)} unknown flag names", field)
        return sum({_FLAGS[name] for name in value})
    raise _bad_descriptor("flags is a bit mask or a list of names", field)


def _integer(source: Mapping[str, Any], name: str, field: str | None = None) -> int:
    value = source.get(name)
    if type(value) is not int or not 0 <= value < _MOST:
        raise _bad_descriptor(f"{name} is a non-negative integer", field or name)
    return value


def _present(source: Mapping[str, Any], name: str) -> Any:
    if source.get(name) is None:
        raise _bad_descriptor(f"{name} is missing", name)
    return source[name]


def _descriptor_text(descriptor: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(descriptor, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise _bad_descriptor("the descriptor is plain JSON", None) from None
    if len(text) > MOST_DESCRIPTOR_BYTES:
        raise InvalidPayload(
            "descriptor_too_large", "a descriptor has at most 4 KiB of JSON", "kv_descriptor"
        )
    return text


def _bad_payload(detail: str) -> InvalidPayload:
    return InvalidPayload("invalid_payload", detail, "components")


def _bad_descriptor(detail: str, field: str | None) -> InvalidPayload:
    where = "kv_descriptor" if field is None else f"kv_descriptor.{field}"
    return InvalidPayload("invalid_descriptor", detail, where)
