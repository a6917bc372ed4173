"""KV descriptors: checked, laid out, and cut to fewer tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import from_json

from app.engine.derived import of_descriptor, shorter_descriptor
from app.engine.errors import InvalidPayload
from app.engine.geometry import Layout
from app.engine.payload import check_descriptor, flag_bits
from tests.fuzz.roundtrip import apart_and_together

_MOST_BYTES: Final = 1 << 16


def seeds() -> Iterator[bytes]:
    plain: dict[str, Any] = {
        **dict.fromkeys(("layer_start", "token_start", "k_idx_row_bytes", "component_count"), 0),
        **{"version": 1, "layer_end": 2, "layer_count": 2, "token_count": 8, "flags": 0},
        **{"k_type": "f16", "v_type": 1, "k_row_bytes": 4, "v_row_bytes": 8, "codec": "single"},
        **{"v_element_bytes": 2, "payload_bytes": 192},
    }
    yield json.dumps(plain).encode()
    yield json.dumps(plain | {"flags": ["V_TRANSPOSED"]}).encode()
    indexed = {"flags": 3, "k_idx_row_bytes": 4, "payload_bytes": 256}
    yield json.dumps(plain | indexed).encode()
    parts = [
        {"offset": 0, "payload_bytes": 192, "token_start": 0, "token_count": 8},
        {"offset": 192, "payload_bytes": 48, "token_start": 6, "token_count": 2, "flags": 1},
    ]
    composite = {"version": 2, "codec": 1, "component_count": 2, "components": parts}
    yield json.dumps(plain | composite | {"payload_bytes": 240}).encode()


def target(data: bytes) -> None:
    try:
        descriptor = from_json(data, allow_inf_nan=False)
    except ValueError:
        return
    sizes = [0, 0]
    if isinstance(descriptor, dict):
        for index, name in enumerate(("payload_bytes", "token_count")):
            value = descriptor.get(name)
            if type(value) is int and 0 <= value < 1 << 63:
                sizes[index] = value
    raw_bytes, tokens = sizes
    try:
        check_descriptor(descriptor, raw_bytes, tokens)
    except InvalidPayload as error:
        assert error.code == "invalid_descriptor"
        return
    assert flag_bits(descriptor["flags"]) >= 0
    found = of_descriptor(descriptor, raw_bytes)
    if found is None:
        return
    layout = Layout(found, raw_bytes)
    assert layout.block_count > 0
    if raw_bytes <= _MOST_BYTES:
        apart_and_together(layout, bytes(index * 7 % 251 for index in range(raw_bytes)))
    if tokens > 1 and (shorter := layout.prefix(tokens // 2)) is not None:
        try:
            cut = shorter_descriptor(descriptor, tokens // 2, shorter.raw_bytes)
        except ValueError:
            return
        check_descriptor(cut, shorter.raw_bytes, tokens // 2)
