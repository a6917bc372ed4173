"""The native block form on the wire, alone: docs/native.md specifies it byte by byte.

A stream is a head of 16 bytes and frames, all numbers little-endian:

    head    offset  size  field
                 0     4  magic "SHBF"
                 4     1  version, 1
                 5     3  zero
                 8     4  number of frames behind the head, the end frame among them
                12     4  zero

    frame        0     1  kind: 1 manifest, 2 block, 3 end
                 1     1  component: its place in the manifest's list; 0 in an upload
                 2     2  zero
                 4     4  seq: the block's place in its component; 0 in other frames
                 8     8  payload bytes
                16        payload

A manifest is JSON (UTF-8), a block a stored value (docs/format.md), an end frame empty. The manifest, if
there is one, comes first; blocks follow in ascending order of (component, seq); the end frame is last.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from app.engine.errors import InvalidInput
from storage.blocks.codec import Buffer

MEDIA_TYPE: Final = "application/vnd.statehold.blocks"
HEAD_BYTES: Final = 16
FRAME_BYTES: Final = 16

_MAGIC: Final = b"SHBF"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sB3sII")
_FRAME: Final = struct.Struct("<BBHIQ")


class FrameKind(enum.IntEnum):
    """What a frame carries."""

    MANIFEST = 1
    BLOCK = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's head."""

    kind: FrameKind
    component: int
    seq: int
    payload_bytes: int


def head(frames: int) -> bytes:
    """The head of a stream of so many frames."""
    return _HEAD.pack(_MAGIC, _VERSION, bytes(3), frames, 0)


def frame(kind: FrameKind, component: int, seq: int, payload_bytes: int) -> bytes:
    """The head of a frame."""
    return _FRAME.pack(kind, component, 0, seq, payload_bytes)


def read_head(raw: Buffer) -> int:
    """How many frames a stream has.

    Raises:
        InvalidInput: `invalid_framing`: it is not the head of a stream of this version.
    """
    magic, version, zero, frames, zero_too = _HEAD.unpack(raw)
    if magic != _MAGIC:
        raise invalid("the body does not begin with the magic of a block stream")
    if version != _VERSION:
        raise invalid("the block stream has another version than 1")
    if any(zero) or zero_too or not frames:
        raise invalid("the head of the block stream has a field out of range")
    return int(frames)


def read_frame(raw: Buffer) -> Frame:
    """The head of a frame.

    Raises:
        InvalidInput: `invalid_framing`: no such kind, or a field out of range.
    """
    kind, component, zero, seq, payload_bytes = _FRAME.unpack(raw)
    if kind not in list(FrameKind) or zero:
        raise invalid("a frame has an unknown kind")
    if kind != FrameKind.BLOCK and (component or seq):
        raise invalid("only a block has a place")
    if kind == FrameKind.END and payload_bytes:
        raise invalid("the end frame is empty")
    return Frame(FrameKind(kind), component, seq, payload_bytes)


def invalid(detail: str) -> InvalidInput:
    """A stream that is not framed as specified."""
    return InvalidInput("invalid_framing", detail, "body")
