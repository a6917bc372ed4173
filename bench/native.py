"""A client of the native block form, for the benches: cuts, asks what is needed, and sends only that.

Cutting and encoding are the service's own functions, as a client library would have them; what they cost
is the client's time and is counted as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from blake3 import blake3

from app.engine.derived import of_descriptor
from app.engine.framing import (
    FRAME_BYTES,
    HEAD_BYTES,
    FrameKind,
    frame,
    head,
    read_frame,
    read_head,
)
from app.engine.geometry import Geometry, Layout, Runs
from bench.payloads import Payload
from storage.blocks.codec import HEADER_BYTES, decode, encode_in_place

_SENT_AT_ONCE_BYTES = 4 << 20


@dataclass(frozen=True)
class Cut:
    """A payload's blocks: their digests, and how to make their stored values."""

    payload: Payload
    layout: Layout
    digests: tuple[bytes, ...]

    def stream(self, seqs: Sequence[int]) -> tuple[int, Iterator[bytes]]:
        """Length and pieces of the upload of these blocks; values are made as they are sent."""
        values = [self._value(seq) for seq in seqs]
        length = len(head(1)) + sum(16 + len(value) for value in values) + 16
        return length, self._pieces(seqs, values)

    def _pieces(self, seqs: Sequence[int], values: Sequence[memoryview]) -> Iterator[bytes]:
        pieces: list[bytes | memoryview] = [head(len(values) + 1)]
        size = 0
        for seq, value in zip(seqs, values, strict=True):
            pieces += [frame(FrameKind.BLOCK, 0, seq, len(value)), value]
            size += len(value)
            if size >= _SENT_AT_ONCE_BYTES:
                yield b"".join(pieces)
                pieces, size = [], 0
        pieces.append(frame(FrameKind.END, 0, 0, 0))
        yield b"".join(pieces)

    def _value(self, seq: int) -> memoryview:
        buffer = memoryview(bytearray(HEADER_BYTES + self.layout.lengths[seq]))
        self.layout.gather(seq, self.payload.data, buffer[HEADER_BYTES:])
        return memoryview(encode_in_place(buffer, self.digests[seq], generation=0).value)


def cut(payload: Payload) -> Cut:
    """Cut a payload as the service does, and digest its blocks."""
    geometry = of_descriptor(payload.descriptor, len(payload.data))
    assert geometry is not None
    layout = Layout(geometry, len(payload.data))
    digests = []
    for seq, length in enumerate(layout.lengths):
        block = bytearray(length)
        layout.gather(seq, payload.data, block)
        digests.append(blake3(block).digest())
    return Cut(payload, layout, tuple(digests))


def decoded(stream: memoryview | bytes) -> bytes:
    """The bytes of the one component of an answer, decoded, proven and put in their places."""
    view = memoryview(stream)
    frames = read_head(view[:HEAD_BYTES])
    manifest: dict[str, Any] = {}
    values: dict[int, memoryview] = {}
    at = HEAD_BYTES
    for _ in range(frames):
        found = read_frame(view[at : at + FRAME_BYTES])
        payload = view[at + FRAME_BYTES : at + FRAME_BYTES + found.payload_bytes]
        at += FRAME_BYTES + found.payload_bytes
        if found.kind is FrameKind.MANIFEST:
            manifest = json.loads(bytes(payload))
        elif found.kind is FrameKind.BLOCK:
            values[found.seq] = payload
    (component,) = manifest["components"]
    layout = Layout(Geometry(tuple(Runs(**run) for run in component["runs"])), component["bytes"])
    target = np.empty(component["bytes"], dtype=np.uint8)
    for seq, (digest, raw_bytes) in enumerate(component["blocks"]):
        layout.scatter(seq, decode(values[seq], bytes.fromhex(digest), raw_bytes), target)
    return target.tobytes()
