"""Block streams: heads and frames alone, and a whole upload as the exchange reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from app.engine.cutting import Plan, in_order
from app.engine.errors import InvalidInput
from app.engine.exchange import Exchange, _Stream, _verified
from app.engine.framing import FRAME_BYTES, HEAD_BYTES, Frame, frame, head, read_frame, read_head
from app.engine.memory import MemoryBudget
from storage.rows import ComponentRow, Limits, OwnedBlock, StateRow
from tests.support import native

_NATIVE: Final = Path(__file__).parents[2] / "data" / "native"
_LENGTHS: Final = (5, 300, 64, 1)
T = TypeVar("T")
_loop: Final = asyncio.new_event_loop()


class _Reading(Exchange):
    """An exchange that keeps what it has proven instead of storing it."""

    def __init__(self) -> None:
        self.memory = MemoryBudget(1 << 20)
        self.stored: dict[int, bytes] = {}
        self._memory = self.memory
        self._notes: Any = self

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """Of notes: figures are not looked at."""

    async def _owned(self, state: StateRow, component: ComponentRow) -> list[OwnedBlock]:
        return []

    async def _store_batch(
        self,
        state: StateRow,
        component: ComponentRow,
        plan: Plan,
        limits: Limits,
        batch: Sequence[tuple[int, bytearray]],
    ) -> None:
        for (seq, _), block in zip(batch, _verified(batch, plan), strict=True):
            self.stored[seq] = native.decode(bytes(block.value))


def seeds() -> Iterator[bytes]:
    blocks = {seq: native.value(bytes(length)) for seq, length in enumerate(_LENGTHS)}
    yield b"\x00" + native.stream(blocks)
    yield b"\x07" + native.stream({1: native.value(b"\x01\x00" * 150)})
    planes = native.value(bytes(300), 2, native.planes(bytes(300), 2, packed=(0, 1)))
    yield b"\x40" + native.stream({1: planes})
    yield b"\x01" + (_NATIVE / "upload.bin").read_bytes()[:300]
    yield b"\xff" + (_NATIVE / "answer.bin").read_bytes()[:300]


def target(data: bytes) -> None:
    if not data:
        return
    _alone(data[1:])
    reading = _Reading()
    pieces = 1 + data[0]
    try:
        _loop.run_until_complete(_closing(_read(reading, data[1:], pieces)))
    except InvalidInput as error:
        assert error.code in ("invalid_framing", "invalid_blocks")
    assert reading.memory.used_bytes == 0
    for seq, raw in reading.stored.items():
        assert len(raw) == _LENGTHS[seq]


def _alone(data: bytes) -> None:
    try:
        count = read_head(data[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0"))
        assert head(count) == data[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0")
    except InvalidInput as error:
        assert error.code == "invalid_framing"
    raw = data[:FRAME_BYTES].ljust(FRAME_BYTES, b"\0")
    try:
        found = read_frame(raw)
        assert found == Frame(found.kind, found.component, found.seq, found.payload_bytes)
        assert frame(found.kind, found.component, found.seq, found.payload_bytes) == raw
    except InvalidInput as error:
        assert error.code == "invalid_framing"


async def _read(reading: _Reading, data: bytes, pieces: int) -> None:
    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(data), pieces):
            yield data[start : start + pieces]

    nothing: Any = None
    plan = in_order(_LENGTHS)
    await reading._take(nothing, nothing, plan, nothing, _Stream(body()))


async def _closing(read: Coroutine[Any, Any, T]) -> T:
    """With the generators that it leaves behind, as a server's loop closes them."""
    try:
        return await read
    finally:
        await asyncio.sleep(0)
