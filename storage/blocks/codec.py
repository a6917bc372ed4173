"""The stored format of a block, alone: nothing else in the project knows these bytes.

A value is a header of 64 bytes and a payload, little-endian:

    offset  size  field
         0     4  magic "SHBK"
         4     1  version, 1
         5     1  codec: 0 raw, 1 zstd, 2 two byte planes, 3 four byte planes, 4 exponents of f16
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
mantissas do not and are left alone.

Codec 4 takes words of 2 bytes apart at bits 14 to 11 (mask 0x7800), the upper exponent bits of f16. Of
4r words, q is the last quarter; the few bytes behind them, raw bytes modulo 8, are left over. Payload:

    6r       word k < 3r without those bits; in their place bits 10 to 7 of q[k] where k < r, bits 6 to 3
             of q[k - r] where k < 2r, else bits 2 to 0 of q[k - 2r] and, as bit 11, its bit 15
    0 to 7   the bytes left over
    to the   the plane of exponents, 2r bytes: byte k is the bits of word k (low half) and of word
    end      k + 2r (high half); raw if it has 2r bytes, else a zstd frame

Half as many bytes go through zstd as in codec 2, and those are further from random, which its Huffman
decoder rewards: f16 decodes half again as fast and takes about a hundredth more.

Which codec a block gets, and which of its planes are compressed, is decided on a small sample, so nobody
has to say what the bytes are.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import zstandard
from blake3 import blake3
from xxhash import xxh3_64

from storage.errors import BlockDamaged

HEADER_BYTES: Final = 64
PAGE_BYTES: Final = 4096

_MAGIC: Final = b"SHBK"
_VERSION: Final = 1
RAW: Final = 0
ZSTD: Final = 1
# Codec number -> element bytes of its planes; 1 is plain zstd.
_PLANES: Final = {ZSTD: 1, 2: 2, 3: 4}
_EXPONENTS: Final = 4
_CODECS: Final = frozenset({RAW, *_PLANES, _EXPONENTS})
_FIELDS: Final = struct.Struct("<4sBBHQQ32s")
_CODEC_AT: Final = 5
_CHECKSUM: Final = struct.Struct("<Q")
_CHECKED_BYTES: Final = 56
_LEVEL: Final = 1
_MOST_WINDOW_BYTES: Final = 8 << 20
# Compressed only if that saves at least this part, where the writer does not say otherwise.
LEAST_GAIN: Final = 1 / 64
# A sample of a block: this many bytes at each of this many places.
_SAMPLE_BYTES: Final = 1024
_SAMPLES: Final = 4
# A block of no more than this is looked at as a whole.
_MOST_SAMPLE_BYTES: Final = 2 * _SAMPLES * _SAMPLE_BYTES
# Key, node header and its share of branch pages and of the freelist, per value.
_TREE_BYTES: Final = 64
_LMDB_PAGE_HEADER_BYTES: Final = 16
# Scratch that a thread keeps: new memory costs a page fault for every 4 KiB of it.
_MOST_SCRATCH_BYTES: Final = 2 << 20

# numpy (2.4) takes 0.6 us a call if constants are arrays and `out` is given by its place; with numpy
# scalars and `out` by its name 1.9 us, times fifteen calls a block.
_EXPONENT: Final = np.array(0x7800, dtype=np.uint16)
_OTHERS: Final = np.array(0x87FF, dtype=np.uint16)
_BY: Final = {shift: np.array(shift, dtype=np.uint16) for shift in (4, 7, 8, 12)}
# The same shifts to the left: numpy multiplies nearly two times as fast as it shifts.
_TIMES: Final = {shift: np.array(1 << shift, dtype=np.uint16) for shift in (4, 7, 8, 12)}
# The same for planes, which are taken apart and put together in elements of 2 and 4 bytes.
_BYTE_BY: Final = {
    width: [np.array(8 * index, dtype=f"<u{width}") for index in range(width)] for width in (2, 4)
}
_HALF_TIMES: Final = {width: np.array(1 << (4 * width), dtype=f"<u{width}") for width in (2, 4)}
# Tells the four positions of a byte apart in one histogram.
_PHASES: Final = np.tile(np.arange(0, 1024, 256, dtype=np.uint16), _MOST_SAMPLE_BYTES // 4)
_LOG_2: Final = math.log(2)
# n ln n for every count in the histogram of a sample, n.
_N_LOG_N: Final = np.array([0.0, *(n * math.log(n) for n in range(1, _MOST_SAMPLE_BYTES + 1))])
# The same, less what each value that occurs adds, in nats. A sample looks more regular than its source by
# half a nat a value (Miller, 1955); with a whole block, the code's table counts, half a byte a value.
_LESS_IN_SAMPLE: Final = _N_LOG_N - 0.5 * (np.arange(len(_N_LOG_N)) > 0)
_LESS_IN_WHOLE: Final = _N_LOG_N - 4 * _LOG_2 * (np.arange(len(_N_LOG_N)) > 0)

Words = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]
Elements = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Halves = Bytes | Words
Buffer = bytes | bytearray | memoryview
Packer = Callable[[Buffer], bytes]


class _Tools(threading.local):
    """What each thread keeps for itself; zstd contexts are not for two threads at once."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
        # Hardly looks for matches, which exponents do not have: half the time of level 1. A
        # window of 16 KiB bounds zstd's blocks too: 0.4 % smaller, but 3 to 6 % slower to decode.
        self.huffman = zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(
                strategy=zstandard.STRATEGY_FAST,
                window_log=17,
                hash_log=6,
                min_match=7,
                target_length=0,
                write_content_size=True,
            )
        )
        self.decompressor = zstandard.ZstdDecompressor()
        self._scratch = np.empty(0, dtype=np.uint16)

    def scratch(self, count: int) -> Words:
        """Words of whatever content, good until this thread asks for the next."""
        if 2 * count > _MOST_SCRATCH_BYTES:
            return np.empty(count, dtype=np.uint16)
        if len(self._scratch) < count:
            self._scratch = np.empty(count, dtype=np.uint16)
        return self._scratch[:count]


_tools = _Tools()


class EncodedBlock:
    """A block ready to be stored. `value` may be memory of the caller's that must not change yet.

    Attributes:
        digest: BLAKE3-256 of the raw bytes.
        raw_bytes: their number.
        value_bytes: length of the stored value, header included.
        anew: write it also where it is held, so that its sender cannot tell.
    """

    __slots__ = ("_make", "_value", "anew", "digest", "raw_bytes", "value_bytes")

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
        self.anew = False
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
    codec, packers = _choose(raw, least_gain)
    packed = None
    if codec == _EXPONENTS:
        packed = _pack_exponents(raw, least_gain)
    elif codec != RAW:
        packed = _pack(raw, _PLANES[codec], packers, least_gain)
    value = buffer if packed is None else packed
    if packed is None:
        codec = RAW
    _FIELDS.pack_into(value, 0, _MAGIC, _VERSION, codec, 0, len(raw), generation, digest)
    _CHECKSUM.pack_into(value, _CHECKED_BYTES, _checksum(value))
    return EncodedBlock(digest, len(raw), len(value), value)


def codec_of(value: Buffer) -> int:
    """The codec that a value's header names; `check` says whether the header can be trusted."""
    return memoryview(value)[_CODEC_AT]


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
    if version != _VERSION or codec not in _CODECS or zero:
        raise BlockDamaged("the stored value has an unsupported version or codec", digest)
    if key != digest:
        raise BlockDamaged("another block lies under the key", digest, key)
    if length != raw_bytes:
        raise BlockDamaged("the stored value declares another length", digest)


def decode(value: Buffer, digest: bytes, raw_bytes: int) -> Buffer:
    """The raw bytes, as a copy of their own, proven by their digest.

    Decoding allocates at most `raw_bytes`, which the caller knows from the manifest, and as many for the
    planes; beyond the scratch that every thread keeps, as many and a half while a large block is decoded.

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
    if codec == RAW:
        if len(payload) != raw_bytes:
            raise BlockDamaged("the stored value has another length", digest)
        return bytes(payload)
    if codec not in _CODECS:
        raise BlockDamaged("the stored value has an unsupported codec", digest)
    # The checksum covers the frame: the decoder is never fed what was not written.
    check(view, digest, raw_bytes)
    if codec == _EXPONENTS:
        return _unpack_exponents(payload, digest, raw_bytes)
    return _unpack(payload, _PLANES[codec], digest, raw_bytes)


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


def _choose(raw: memoryview, least_gain: float) -> tuple[int, tuple[Packer | None, ...]]:
    """The codec a block gets and what its planes are compressed by: the fastest of the near smallest.

    Matches show only in a trial; what a plane gains is in its histogram, for a fifth of the time.
    """
    sample: Buffer = raw
    if len(raw) > _MOST_SAMPLE_BYTES:
        step = len(raw) // (_SAMPLES + 1) // 16 * 16
        sample = b"".join(
            raw[at : at + _SAMPLE_BYTES] for at in range(step, (_SAMPLES + 1) * step, step)
        )
    sizes = _plane_bytes(sample, _LESS_IN_WHOLE if sample is raw else _LESS_IN_SAMPLE)
    planes = {ZSTD: [len(_zstd(sample))], 2: sizes[4:6], 3: sizes[:4]}
    size_of = {_EXPONENTS: len(sample) * 3 // 4 + sizes[6]}
    for codec, packed in planes.items():
        raw_bytes = len(sample) // len(packed)
        size_of[codec] = sum(min(size, raw_bytes) for size in packed)
    enough = min(size_of.values()) + len(sample) * LEAST_GAIN
    # From the fastest to decode to the slowest.
    for codec in (_EXPONENTS, ZSTD, 2, 3):
        if size_of[codec] <= enough and _worth_it(size_of[codec], len(sample), least_gain):
            return codec, _packers(sample, planes.get(codec, [0]))
    return RAW, (None,)


def _packers(sample: Buffer, estimated: list[int]) -> tuple[Packer | None, ...]:
    """What compresses each plane, if anything: matches are looked for where a trial gains by them."""
    if len(estimated) == 1:
        return (_zstd,)
    packers: list[Packer | None] = []
    for size, plane in zip(estimated, _split(sample, len(estimated))[0], strict=True):
        tried = len(_zstd(plane))
        if not _worth_it(min(size, tried), len(plane), LEAST_GAIN):
            packers.append(None)
        else:
            packers.append(_zstd if _worth_it(tried, size, LEAST_GAIN) else _huffman)
    return tuple(packers)


def _plane_bytes(sample: Buffer, less: npt.NDArray[np.float64]) -> list[int]:
    """What an order-0 code makes of the four planes, the two planes, and the exponents of a sample."""
    count = len(sample) // 4 * 4
    whole = np.frombuffer(sample, dtype=np.uint8, count=count)
    rows = np.zeros((7, 256), dtype=np.intp)
    rows[:4] = np.bincount(whole + _PHASES[:count], minlength=1024).reshape(4, 256)
    np.add(rows[:2], rows[2:4], out=rows[4:6])
    rows[6, :16] = rows[5].reshape(2, 16, 8).sum(axis=(0, 2))
    quarter, half = float(_N_LOG_N[count // 4]), float(_N_LOG_N[count // 2])
    sums: list[float] = np.add.reduce(less[rows], 1).tolist()
    totals = (quarter, quarter, quarter, quarter, half, half, half)
    return [
        math.ceil((total - nats) / (8 * _LOG_2)) for total, nats in zip(totals, sums, strict=True)
    ]


def _worth_it(packed_bytes: int, raw_bytes: int, least_gain: float) -> bool:
    return packed_bytes + max(1, int(raw_bytes * least_gain)) <= raw_bytes


def _zstd(raw: Buffer) -> bytes:
    return _tools.compressor.compress(raw)


def _huffman(raw: Buffer) -> bytes:
    return _tools.huffman.compress(raw)


def _pack(
    raw: memoryview, width: int, packers: tuple[Packer | None, ...], least_gain: float
) -> memoryview | None:
    """A value but for its header, in memory of its own; None if it gains too little."""
    planes, rest = _split(raw, width)
    packed: list[Buffer] = [
        plane if packer is None else packer(plane)
        for plane, packer in zip(planes, packers, strict=True)
    ]
    # A frame of exactly the raw length would be taken for a raw plane.
    packed = [
        plane if len(part) >= len(plane) else part
        for part, plane in zip(packed, planes, strict=True)
    ]
    if width > 1:
        packed = [struct.pack(f"<{width}I", *map(len, packed)), *packed, rest]
    size = sum(map(len, packed))
    if not _worth_it(size, len(raw), least_gain):
        return None
    value = np.empty(HEADER_BYTES + size, dtype=np.uint8).data
    at = HEADER_BYTES
    for part in packed:
        value[at : at + len(part)] = part
        at += len(part)
    return value


def _unpack(payload: memoryview, width: int, digest: bytes, raw_bytes: int) -> Buffer:
    """What `_pack` made, in memory of its own; allocates `raw_bytes`, the planes and scratch."""
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
    _join([np.frombuffer(plane, np.uint8) for plane in planes], raw[: width * count])
    unpacked = raw.data
    unpacked[width * count :] = payload[start:]
    return unpacked


def _join(planes: list[Bytes], out: Bytes) -> None:
    """Put two or four byte planes together, four as two pairs of two."""
    count = len(planes[0])
    if len(planes) == 2:
        _join_halves(planes[0], planes[1], out.view("<u2"), _tools.scratch(count))
        return
    scratch = _tools.scratch(3 * count)
    high, spare, low = scratch[:count], scratch[count : 2 * count], scratch[2 * count :]
    _join_halves(planes[0], planes[1], low, spare)
    _join_halves(planes[2], planes[3], high, spare)
    # The upper halves are read before what is spare, which covers them, is written.
    _join_halves(low, high, out.view("<u4"), scratch[: 2 * count].view("<u4"))


def _join_halves(low: Halves, high: Halves, out: Elements, spare: Elements) -> None:
    """Widening by assignment is vectorised; an operation on unlike widths goes through a buffer."""
    out[:] = high
    np.multiply(out, _HALF_TIMES[out.itemsize], out)
    spare[:] = low
    np.bitwise_or(out, spare, out)


def _exponents(words: Words) -> Bytes:
    """The plane of codec 4, in memory of its own."""
    half = len(words) // 2
    pairs = _tools.scratch(2 * half)
    low, high = pairs[:half], pairs[half:]
    np.bitwise_and(words, _EXPONENT, pairs)
    np.right_shift(low, _BY[4], low)
    np.bitwise_or(low, high, low)
    np.right_shift(low, _BY[7], low)
    return low.astype(np.uint8)


def _pack_exponents(raw: memoryview, least_gain: float) -> memoryview | None:
    """A value of codec 4 but for its header, in memory of its own; None if it gains too little."""
    quarter = len(raw) // 8
    words = np.frombuffer(raw, "<u2", 4 * quarter)
    plane = _exponents(words)
    packed: Buffer = _huffman(plane.data)
    if len(packed) >= len(plane):
        packed = plane.data
    size = len(raw) - len(plane) + len(packed)
    if not _worth_it(size, len(raw), least_gain):
        return None
    value = np.empty(HEADER_BYTES + size, dtype=np.uint8)
    kept = value[HEADER_BYTES : HEADER_BYTES + 6 * quarter].view(np.uint16)
    _pack_last(words, kept)
    left_over = HEADER_BYTES + 6 * quarter
    start = len(value) - len(packed)
    written = value.data
    written[left_over:start] = raw[8 * quarter :]
    written[start:] = packed
    return written


def _pack_last(words: Words, kept: Words) -> None:
    """Three quarters of the words, with the last quarter's bits in place of their exponents."""
    quarter = len(words) // 4
    last = words[3 * quarter :]
    bits = _tools.scratch(3 * quarter)
    third, spare = bits[2 * quarter :], kept[2 * quarter :]
    np.multiply(last, _TIMES[4], bits[:quarter])
    np.multiply(last, _TIMES[8], bits[quarter : 2 * quarter])
    np.multiply(last, _TIMES[12], third)
    # Bit 15 goes to bit 11; the mask below takes the bits that come along.
    np.right_shift(last, _BY[4], spare)
    np.bitwise_or(third, spare, third)
    np.bitwise_and(bits, _EXPONENT, bits)
    np.bitwise_and(words[: 3 * quarter], _OTHERS, kept)
    np.bitwise_or(kept, bits, kept)


def _unpack_exponents(payload: memoryview, digest: bytes, raw_bytes: int) -> Buffer:
    """What `_pack_exponents` made, in memory of its own."""
    quarter, left_over = divmod(raw_bytes, 8)
    start = 6 * quarter + left_over
    if len(payload) < start:
        raise BlockDamaged("the words are cut short", digest)
    part = payload[start:]
    plane = part if len(part) == 2 * quarter else _decompress(part, digest, 2 * quarter)
    kept = np.frombuffer(payload, "<u2", 3 * quarter)
    raw = np.empty(raw_bytes, dtype=np.uint8)
    words = raw[: 8 * quarter].view(np.uint16)
    scratch = _tools.scratch(4 * quarter)
    _unpack_last(kept, words[3 * quarter :], scratch[: 3 * quarter])
    np.bitwise_and(kept, _OTHERS, words[: 3 * quarter])
    low, high = scratch[: 2 * quarter], scratch[2 * quarter :]
    high[:] = np.frombuffer(plane, np.uint8)
    np.multiply(high, _TIMES[7], high)
    np.multiply(high, _TIMES[4], low)
    np.bitwise_and(scratch, _EXPONENT, scratch)
    np.bitwise_or(words, scratch, words)
    unpacked = raw.data
    unpacked[8 * quarter :] = payload[6 * quarter : start]
    return unpacked


def _unpack_last(kept: Words, last: Words, bits: Words) -> None:
    """The last quarter's words without their exponents, from the others' free bits."""
    quarter = len(last)
    first, second, third = bits[:quarter], bits[quarter : 2 * quarter], bits[2 * quarter :]
    np.bitwise_and(kept, _EXPONENT, bits)
    # Bit 11 goes to bit 15, and the bits above it out of the word.
    np.multiply(third, _TIMES[4], last)
    for part, shift in ((first, 4), (second, 8), (third, 12)):
        np.right_shift(part, _BY[shift], part)
        np.bitwise_or(last, part, last)


def _split(raw: Buffer, width: int) -> tuple[list[Buffer], Buffer]:
    """Byte planes of the whole elements of `width` bytes, and the bytes left over."""
    if width == 1:
        return [raw], b""
    count = len(raw) // width
    elements = np.frombuffer(raw, dtype=f"<u{width}", count=count)
    # Shifting and narrowing is vectorised; gathering every n-th byte is not.
    shifted = _tools.scratch(width // 2 * count).view(f"<u{width}")
    planes: list[Buffer] = [elements.astype(np.uint8).data]
    for shift in _BYTE_BY[width][1:]:
        np.right_shift(elements, shift, shifted)
        planes.append(shifted.astype(np.uint8).data)
    return planes, memoryview(raw)[width * count :]


def _decompress(frame: memoryview, digest: bytes, raw_bytes: int) -> bytes:
    try:
        declared = zstandard.get_frame_parameters(frame)
        if declared.content_size != raw_bytes or declared.dict_id:
            raise BlockDamaged("the zstd frame declares another length", digest)
        if declared.window_size > max(_MOST_WINDOW_BYTES, raw_bytes):
            raise BlockDamaged("the zstd frame needs too large a window", digest)
        raw = _tools.decompressor.decompress(
            frame, max_output_size=raw_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        # A frame that broke off may have left a window's memory behind.
        _tools.decompressor = zstandard.ZstdDecompressor()
        raise BlockDamaged("the zstd frame does not decode", digest) from error
    if len(raw) != raw_bytes:
        raise BlockDamaged("the zstd frame decodes to another length", digest)
    return raw
