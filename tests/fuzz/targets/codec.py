"""The stored format: any payload under a header that holds it, and any bytes there and back.

Forged values carry a right checksum, so that the decoders themselves are met, zstd among them, and not only
the check in front of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import zstandard
from blake3 import blake3
from xxhash import xxh3_64

from storage.blocks.codec import HEADER_BYTES, check, copy, decode, encode
from storage.errors import BlockDamaged
from tests.support import native

_FORGED, _THERE_AND_BACK, _AS_IT_IS = range(3)


def forged(codec: int, raw_bytes: int, payload: bytes, digest: bytes) -> bytes:
    """A value whose header fits its payload, whatever that is."""
    header = struct.pack("<4sBBHQQ32s", b"SHBK", 1, codec, 0, raw_bytes, 0, digest)
    return header + struct.pack("<Q", xxh3_64(header + payload).intdigest()) + payload


def seeds() -> Iterator[bytes]:
    numbers = struct.pack("<200e", *(value / 64 for value in range(200)))
    for codec in range(6):
        for raw in (b"", bytes(100), numbers):
            payload = raw
            if codec == 1:
                payload = zstandard.ZstdCompressor().compress(raw)
            elif codec in (2, 3):
                width = 2 * codec - 2
                payload = native.planes(raw, width, packed=range(width))
            yield bytes([_FORGED, codec]) + struct.pack("<H", len(raw)) + payload
    yield bytes([_THERE_AND_BACK]) + numbers * 20
    yield bytes([_THERE_AND_BACK]) + bytes(range(256)) * 3
    yield bytes([_AS_IT_IS]) + native.value(numbers)


def target(data: bytes) -> None:
    if len(data) < 4:
        return
    form = data[0] % 3
    if form == _FORGED:
        (raw_bytes,) = struct.unpack_from("<H", data, 2)
        _decoded(forged(data[1], raw_bytes, data[4:], blake3(data).digest()), raw_bytes)
    elif form == _THERE_AND_BACK:
        # Repeated, so that short inputs too are long enough to be worth packing.
        raw = data[2:] * (1 + data[1] % 64)
        block = encode(raw, generation=data[1])
        value = bytes(block.value)
        check(value, block.digest, len(raw))
        assert bytes(decode(value, block.digest, len(raw))) == raw
        assert native.decode(value) == raw
        assert len(value) <= HEADER_BYTES + len(raw)
    else:
        value = data[1:]
        raw_bytes = struct.unpack_from("<Q", value, 8)[0] if len(value) >= 16 else 0
        if raw_bytes <= 1 << 20:
            _decoded(value, raw_bytes)


def _decoded(value: bytes, raw_bytes: int) -> None:
    digest = value[24:56]
    try:
        raw = copy(value, digest, raw_bytes)
    except BlockDamaged:
        return
    assert len(raw) == raw_bytes
    try:
        proven = decode(value, digest, raw_bytes)
    except BlockDamaged:
        return
    assert blake3(proven).digest() == digest
