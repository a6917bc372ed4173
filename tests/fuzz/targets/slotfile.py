"""llama.cpp slot files: of any bytes at most a geometry, by which they come apart and together again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.engine.geometry import Layout
from app.engine.slotfile import SlotStatus, is_slot_file, of_slot_file
from tests.fuzz.roundtrip import apart_and_together

_SLOTS: Final = Path(__file__).parents[2] / "data" / "slots"


def seeds() -> Iterator[bytes]:
    image = (_SLOTS / "kinds.bin").read_bytes()
    for start, end, _ in json.loads((_SLOTS / "kinds.json").read_text()).values():
        yield image[start:end]


def target(data: bytes) -> None:
    parsed = of_slot_file(data)
    assert (parsed.geometry is not None) == (parsed.status is SlotStatus.PARSED)
    assert is_slot_file(data[:8]) == (parsed.status is not SlotStatus.NOT_A_SLOT_FILE)
    if parsed.geometry is not None:
        apart_and_together(Layout(parsed.geometry, len(data)), data)
