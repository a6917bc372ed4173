"""The stored format of a block, alone: nothing else in the project knows these bytes.

A value is a header of 64 bytes and a payload, little-endian:

    offset  size  field
         0     4  magic "SHBK"
         4     1  version, 1
         5     1  codec: 0 raw, 1 zstd
         6     2  zero
         8     8  raw bytes
        16     8  generation: the last commit the writer had seen, for forensics
        24    32  BLAKE3-256 of the raw bytes: the block's key, so that a value under a wrong key shows
        56     8  XXH3-64 of the header's first 56 bytes and the payload
        64        payload

The checksum finds damage at memory speed without decoding; the digest proves the decoded bytes. A
reader refuses versions and codecs that it does not know. zstd frames follow RFC 8878 with a window of
at most 8 MiB (RFC 9659), one frame a block, its content size declared.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import zstandard
from blake3 import blake3
from xxhash import xxh3_64

from storage.errors import BlockDamaged

HEADER_BYTES: Final = 64
PAGE_BYTES: Final = 4096

_MAGIC: Final = b"SHBK"
_VERSION: Final = 1
_RAW: Final = 0
_ZSTD: Final = 1
_FIELDS: Final = struct.Struct("<4sBBHQQ32s")
_CHECKSUM: Final = struct.Struct("<Q")
_CHECKED_BYTES: Final = 56
_LEVEL: Final = 1
_MOST_WINDOW_BYTES: Final = 8 << 20
# Kept compressed only if it saves at least 1/64: less is not worth the decoding.
_LEAST_GAIN: Final = 64
# Key, node header and its share of branch pages and of the freelist, per value.
_TREE_BYTES: Final = 64
_LMDB_PAGE_HEADER_BYTES: Final = 16

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block ready to be stored. `value` may be memory of the caller's that must not change yet."""

    digest: bytes
    raw_bytes: int
    value: Buffer


def encode(raw: Buffer, *, generation: int) -> EncodedBlock:
    """Encode a block from anywhere; costs one copy more than `encode_in_place` where raw is kept."""
    buffer = bytearray(HEADER_BYTES + len(raw))
    buffer[HEADER_BYTES:] = raw
    return encode_in_place(memoryview(buffer), generation=generation)


def encode_in_place(buffer: memoryview, *, generation: int) -> EncodedBlock:
    """Encode the block that begins HEADER_BYTES into `buffer`.

    A block that does not shrink is stored from where it lies: the header is written in front of it
    and `buffer` itself is the value, so it must stay as it is until the value is stored.
    """
    raw = buffer[HEADER_BYTES:]
    digest = blake3(raw).digest()
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(raw)
    if len(packed) + max(1, len(raw) // _LEAST_GAIN) <= len(raw):
        value = memoryview(bytearray(HEADER_BYTES + len(packed)))
        value[HEADER_BYTES:] = packed
        codec = _ZSTD
    else:
        value, codec = buffer, _RAW
    _FIELDS.pack_into(value, 0, _MAGIC, _VERSION, codec, 0, len(raw), generation, digest)
    _CHECKSUM.pack_into(value, _CHECKED_BYTES, _checksum(value))
    return EncodedBlock(digest, len(raw), value)


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
    if version != _VERSION or codec not in (_RAW, _ZSTD) or zero:
        raise BlockDamaged("the stored value has an unsupported version or codec", digest)
    if key != digest:
        raise BlockDamaged("another block lies under the key", digest, key)
    if length != raw_bytes:
        raise BlockDamaged("the stored value declares another length", digest)


def decode(value: Buffer, digest: bytes, raw_bytes: int) -> bytes:
    """The raw bytes, as a copy of their own, proven by their digest.

    Decoding never allocates more than `raw_bytes`, which the caller knows from the manifest.

    Raises:
        BlockDamaged: the value does not decode to the bytes its key names.
    """
    return prove(copy(value, digest, raw_bytes), digest)


def copy(value: Buffer, digest: bytes, raw_bytes: int) -> bytes:
    """The raw bytes as a copy of their own, not proven yet: for short read transactions.

    Raises:
        BlockDamaged: the header does not fit, or the payload does not decode to that length.
    """
    view = memoryview(value)
    if len(view) < HEADER_BYTES:
        raise BlockDamaged("the stored value is shorter than its header", digest)
    magic, version, codec, zero, length, _, key = _FIELDS.unpack_from(view)
    if magic != _MAGIC or version != _VERSION or zero or length != raw_bytes:
        raise BlockDamaged("the stored value has another header than it was given", digest)
    if key != digest:
        raise BlockDamaged("another block lies under the key", digest, key)
    payload = view[HEADER_BYTES:]
    if codec == _RAW:
        if len(payload) != raw_bytes:
            raise BlockDamaged("the stored value has another length", digest)
        return bytes(payload)
    if codec == _ZSTD:
        # The checksum covers the frame: the decoder is never fed what was not written.
        check(view, digest, raw_bytes)
        return _decompress(payload, digest, raw_bytes)
    raise BlockDamaged("the stored value has an unsupported codec", digest)


def prove(raw: bytes, digest: bytes) -> bytes:
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
