"""Geometry: as stored, as a client's JSON, and as numbers near the limits."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic_core import from_json

from app.engine.errors import InvalidPayload
from app.engine.geometry import Geometry, Layout, Runs, given
from tests.fuzz.roundtrip import apart_and_together

_NATIVE: Final = Path(__file__).parents[2] / "data" / "native"
_PACKED, _JSON, _NUMBERS = range(3)


def seeds() -> Iterator[bytes]:
    rows = Geometry((Runs(8, 4, 20), Runs(100, 2, 20, count=3, spacing=50)), "f16")
    yield bytes([_PACKED, 0, 1]) + rows.pack()
    yield bytes([_JSON]) + struct.pack("<H", 64032) + (_NATIVE / "geometry.json").read_bytes()
    yield bytes([_JSON, 0, 1]) + b'{"rows":3,"runs":[{"offset":0,"stride":4}]}'
    for numbers in ((0, 1, 10, 0, 1, 0), (0, 4, 8, 0, 2, 32, 64, 8, 4, 4, 1, 0)):
        yield bytes([_NUMBERS, 200, 0]) + bytes(numbers)


def target(data: bytes) -> None:
    if len(data) < 3:
        return
    form, raw_bytes, rest = data[0] % 3, int.from_bytes(data[1:3], "little"), data[3:]
    # ValueError is what unpack and from_json declare, InvalidPayload what is wrong as a geometry.
    with suppress(InvalidPayload, ValueError):
        if form == _PACKED:
            found = Geometry.unpack(rest)
            assert found.pack() == rest
        elif form == _JSON:
            document = from_json(rest, allow_inf_nan=False)
            if not isinstance(document, dict):
                return
            found = given(document, raw_bytes)
        else:
            fields = [rest[at : at + 6] for at in range(0, len(rest) - 5, 6)]
            found = Geometry(tuple(Runs(*numbers) for numbers in fields))
        layout = Layout(found, raw_bytes)
        apart_and_together(layout, bytes(index * 7 % 251 for index in range(raw_bytes)))
        return
    if form == _PACKED:
        _huge(rest)


def _huge(packed: bytes) -> None:
    """A component may be announced at any size; counting its blocks must not make them."""
    with suppress(InvalidPayload, ValueError):
        layout = Layout(Geometry.unpack(packed), 1 << 50)
        assert layout.block_count > 0
