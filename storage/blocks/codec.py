"""The stored format of a block, alone: nothing else in the project knows these bytes.

A value is a header of 64 bytes and a payload, little-endian:

    offset  size  field
         0     4  magic "SHBK"
         4     1  version, 1
         5     1  codec: 0 raw, 1 zstd, 2 two byte planes, 3 four byte planes
         6     2  zero
         8     8  raw bytes
        16     8  generation: the last commit the writer had seen, for forensics
        24    32  BLAKE3-256 of the raw bytes: the block's key, so that a value under a wrong key shows
        56     8  XXH3-64 of the header's first 56 bytes and the payload
        64        payload

The checksum finds damage at memory speed without decoding; the digest proves the decoded bytes. A
reader refuses versions and codecs that it does not know. zstd frames follow RFC 8878 with a window of
at most 8 MiB (RFC 9659), one frame a plane, its content size declared.

Codec 1 is one plane. Codecs 2 and 3 take elements of 2 or 4 bytes apart: plane i holds byte i of every
element; bytes left over at the end belong to no plane. Their payload is the stored length of each plane
(u32 each), the planes, and the bytes left over. A plane whose stored length is its raw length is
stored raw, any other is a zstd frame. Floating point exponents lie together that way and compress;
mantissas do not and are left alone. Which codec a block gets, and which of its planes are compressed,
is decided by trying all of them on a small sample, so nobody has to say what the bytes are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import numpy as np
import zstandard
from blake3 import blake3
from xxhash import xxh3_64

from storage.errors import BlockDamaged

HEADER_BYTES: Final = 64
PAGE_BYTES: Final = 4096

_MAGIC: Final = b"SHBK"
_VERSION: Final = 1
_RAW: Final = 0
# Codec number -> element bytes of its planes; 1 is plain zstd.
_PLANES: Final = {1: 1, 2: 2, 3: 4}
_FIELDS: Final = struct.Struct("<4sBBHQQ32s")
_CHECKSUM: Final = struct.Struct("<Q")
_CHECKED_BYTES: Final = 56
_LEVEL: Final = 1
_MOST_WINDOW_BYTES: Final = 8 << 20
# Compressed only if that saves at least this part, where the writer does not say otherwise.
LEAST_GAIN: Final = 1 / 64
# A sample of a block: this many bytes at each of this many places.
_SAMPLE_BYTES: Final = 8192
_SAMPLES: Final = 3
# Key, node header and its share of branch pages and of the freelist, per value.
_TREE_BYTES: Final = 64
_LMDB_PAGE_HEADER_BYTES: Final = 16

Buffer = bytes | bytearray | memoryview


class EncodedBlock:
    """A block ready to be stored. `value` may be memory of the caller's that must not change yet.

    Attributes:
        digest: BLAKE3-256 of the raw bytes.
        raw_bytes: their number.
        value_bytes: length of the stored value, header included.
    """

    __slots__ = ("_make", "_value", "digest", "raw_bytes", "value_bytes")

    def __init__(
        self,
        digest: bytes,
        raw_bytes: int,
        value_bytes: int,
        value: Buffer | None,
        make: Callable[[], Buffer] | None = None,
    ) -> None:
        self.digest = digest
        self.raw_bytes = raw_bytes
        self.value_bytes = value_bytes
        self._value = value
        self._make = make

    @property
    def value(self) -> Buffer:
        """The stored value; made now if it was put off because the store held it."""
        if self._value is None:
            assert self._make is not None
            self._value = self._make()
            self.value_bytes = len(self._value)
        return self._value


def encode(raw: Buffer, *, generation: int, least_gain: float = LEAST_GAIN) -> EncodedBlock:
    """Encode a block from anywhere; costs one copy more than `encode_in_place` where raw is kept."""
    buffer = bytearray(HEADER_BYTES + len(raw))
    buffer[HEADER_BYTES:] = raw
    return encode_in_place(
        memoryview(buffer), blake3(raw).digest(), generation=generation, least_gain=least_gain
    )


def unencoded(
    buffer: memoryview,
    digest: bytes,
    value_bytes: int,
    *,
    generation: int,
    least_gain: float = LEAST_GAIN,
) -> EncodedBlock:
    """A block that the store holds as `value_bytes`: encoded only if it is gone when it is written."""
    return EncodedBlock(
        digest,
        len(buffer) - HEADER_BYTES,
        value_bytes,
        None,
        lambda: encode_in_place(buffer, digest, generation=generation, least_gain=least_gain).value,
    )


def encode_in_place(
    buffer: memoryview, digest: bytes, *, generation: int, least_gain: float = LEAST_GAIN
) -> EncodedBlock:
    """Encode the block that begins HEADER_BYTES into `buffer`.

    A block that does not shrink is stored from where it lies: the header is written in front of it
    and `buffer` itself is the value, so it must stay as it is until the value is stored.
    """
    raw = buffer[HEADER_BYTES:]
    codec, gains = _choose(raw, least_gain)
    value = buffer
    if codec != _RAW:
        parts = _pack(raw, _PLANES[codec], gains)
        size = sum(len(part) for part in parts)
        if _worth_it(size, len(raw), least_gain):
            value = memoryview(bytearray(HEADER_BYTES + size))
            at = HEADER_BYTES
            for part in parts:
                value[at : at + len(part)] = part
                at += len(part)
        else:
            codec = _RAW
    _FIELDS.pack_into(value, 0, _MAGIC, _VERSION, codec, 0, len(raw), generation, digest)
    _CHECKSUM.pack_into(value, _CHECKED_BYTES, _checksum(value))
    return EncodedBlock(digest, len(raw), len(value), value)


def check(value: Buffer, digest: bytes, raw_bytes: int) -> None:
    """Prove at memory speed that a stored value is the one that was written under its key.

    Raises:
        BlockDamaged: it is not.
    """
    view = memoryview(value)
    if len(view) < HEADER_BYTES:
        raise BlockDamaged("the stored value is shorter than its header", digest)
    magic, version, codec, zero, length, _, key = _FIELDS.unpack_from(view)
    if magic != _MAGIC:
        raise BlockDamaged("the stored value has no header", digest)
    if _CHECKSUM.unpack_from(view, _CHECKED_BYTES)[0] != _checksum(view):
        raise BlockDamaged("the stored value does not have its checksum", digest)
    if version != _VERSION or (codec != _RAW and codec not in _PLANES) or zero:
        raise BlockDamaged("the stored value has an unsupported version or codec", digest)
    if key != digest:
        raise BlockDamaged("another block lies under the key", digest, key)
    if length != raw_bytes:
        raise BlockDamaged("the stored value declares another length", digest)


def decode(value: Buffer, digest: bytes, raw_bytes: int) -> Buffer:
    """The raw bytes, as a copy of their own, proven by their digest.

    Decoding never allocates more than `raw_bytes`, which the caller knows from the manifest.

    Raises:
        BlockDamaged: the value does not decode to the bytes its key names.
    """
    return prove(copy(value, digest, raw_bytes), digest)


def copy(value: Buffer, digest: bytes, raw_bytes: int) -> Buffer:
    """The raw bytes as a copy of their own, not proven yet: for short read transactions.

    Raises:
        BlockDamaged: the header does not fit, or the payload does not decode to that length.
    """
    view = memoryview(value)
    if len(view) < HEADER_BYTES:
        raise BlockDamaged("the stored value is shorter than its header", digest)
    magic, version, codec, zero, length, _, key = _FIELDS.unpack_from(view)
    if version != _VERSION:
        raise BlockDamaged("the stored value has an unsupported version", digest)
    if magic != _MAGIC or zero or length != raw_bytes:
        raise BlockDamaged("the stored value has another header than it was given", digest)
    if key != digest:
        raise BlockDamaged("another block lies under the key", digest, key)
    payload = view[HEADER_BYTES:]
    if codec == _RAW:
        if len(payload) != raw_bytes:
            raise BlockDamaged("the stored value has another length", digest)
        return bytes(payload)
    if codec in _PLANES:
        # The checksum covers the frame: the decoder is never fed what was not written.
        check(view, digest, raw_bytes)
        return _unpack(payload, _PLANES[codec], digest, raw_bytes)
    raise BlockDamaged("the stored value has an unsupported codec", digest)


def prove(raw: Buffer, digest: bytes) -> Buffer:
    """`raw` itself, if its digest is the key.

    Raises:
        BlockDamaged: with the digest that was found.
    """
    actual = blake3(raw).digest()
    if actual != digest:
        raise BlockDamaged("the bytes do not have their digest", digest, actual)
    return raw


def footprint_bytes(value_bytes: int) -> int:
    """What a value takes in LMDB: whole pages with their header, and its share of the tree."""
    pages = -(-(value_bytes + _LMDB_PAGE_HEADER_BYTES) // PAGE_BYTES)
    return pages * PAGE_BYTES + _TREE_BYTES


def _checksum(value: Buffer) -> int:
    view = memoryview(value)
    hasher = xxh3_64(view[:_CHECKED_BYTES])
    hasher.update(view[HEADER_BYTES:])
    return hasher.intdigest()


def _choose(raw: memoryview, least_gain: float) -> tuple[int, tuple[bool, ...]]:
    """The codec that makes a sample of the block smallest, and which of its planes gain by zstd."""
    sample: Buffer = raw
    if len(raw) > 2 * _SAMPLES * _SAMPLE_BYTES:
        step = len(raw) // (_SAMPLES + 1) // 16 * 16
        sample = b"".join(
            raw[at : at + _SAMPLE_BYTES] for at in range(step, (_SAMPLES + 1) * step, step)
        )
    best: tuple[int, int, tuple[bool, ...]] = len(sample), _RAW, (False,)
    for codec, width in _PLANES.items():
        planes, rest = _split(sample, width)
        packed = [_zstd(plane) for plane in planes]
        gains = tuple(
            _worth_it(len(p), len(raw_), LEAST_GAIN) for p, raw_ in zip(packed, planes, strict=True)
        )
        size = len(rest) + sum(
            len(p) if gain else len(raw_)
            for p, raw_, gain in zip(packed, planes, gains, strict=True)
        )
        if _worth_it(size, len(sample), least_gain) and size < best[0]:
            best = size, codec, gains
    return best[1], best[2]


def _worth_it(packed_bytes: int, raw_bytes: int, least_gain: float) -> bool:
    return packed_bytes + max(1, int(raw_bytes * least_gain)) <= raw_bytes


def _zstd(raw: Buffer) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(raw)


def _pack(raw: memoryview, width: int, gains: tuple[bool, ...]) -> list[Buffer]:
    """The parts of a payload."""
    planes, rest = _split(raw, width)
    packed: list[Buffer] = [
        _zstd(plane) if gain else plane for plane, gain in zip(planes, gains, strict=True)
    ]
    # A frame of exactly the raw length would be taken for a raw plane.
    packed = [
        plane if len(part) >= len(plane) else part
        for part, plane in zip(packed, planes, strict=True)
    ]
    if width == 1:
        return packed
    return [struct.pack(f"<{width}I", *map(len, packed)), *packed, rest]


def _unpack(payload: memoryview, width: int, digest: bytes, raw_bytes: int) -> Buffer:
    """What `_pack` made, in memory of its own; never allocates more than `raw_bytes` and its planes."""
    if width == 1:
        return _decompress(payload, digest, raw_bytes)
    count = raw_bytes // width
    left_over = raw_bytes - width * count
    start = 4 * width
    if len(payload) < start + left_over:
        raise BlockDamaged("the planes are cut short", digest)
    lengths = struct.unpack_from(f"<{width}I", payload)
    if start + sum(lengths) + left_over != len(payload):
        raise BlockDamaged("the planes do not add up", digest)
    planes: list[Buffer] = []
    for length in lengths:
        part = payload[start : start + length]
        planes.append(part if length == count else _decompress(part, digest, count))
        start += length
    raw = np.empty(raw_bytes, dtype=np.uint8)
    elements = raw[: width * count].view(f"<u{width}")
    elements[:] = np.frombuffer(planes[-1], dtype=np.uint8)
    for plane in reversed(planes[:-1]):
        elements <<= 8
        elements |= np.frombuffer(plane, dtype=np.uint8)
    raw[width * count :] = np.frombuffer(payload[start:], dtype=np.uint8)
    return raw.data


def _split(raw: Buffer, width: int) -> tuple[list[Buffer], Buffer]:
    """Byte planes of the whole elements of `width` bytes, and the bytes left over."""
    if width == 1:
        return [raw], b""
    count = len(raw) // width
    elements = np.frombuffer(raw, dtype=f"<u{width}", count=count)
    # Shifting and narrowing is vectorised; gathering every n-th byte is not.
    planes = [(elements >> (8 * index)).astype(np.uint8).data for index in range(width)]
    return list(planes), memoryview(raw)[width * count :]


def _decompress(frame: memoryview, digest: bytes, raw_bytes: int) -> bytes:
    try:
        declared = zstandard.get_frame_parameters(frame)
        if declared.content_size != raw_bytes or declared.dict_id:
            raise BlockDamaged("the zstd frame declares another length", digest)
        if declared.window_size > max(_MOST_WINDOW_BYTES, raw_bytes):
            raise BlockDamaged("the zstd frame needs too large a window", digest)
        raw = zstandard.ZstdDecompressor().decompress(
            frame, max_output_size=raw_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise BlockDamaged("the zstd frame does not decode", digest) from error
    if len(raw) != raw_bytes:
        raise BlockDamaged("the zstd frame decodes to another length", digest)
    return raw
