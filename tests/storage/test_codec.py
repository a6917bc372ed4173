"""The stored format: every block comes back exactly, and nothing damaged ever comes back at all."""

from __future__ import annotations

import os
import random
import struct
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64

from storage.blocks.codec import (
    HEADER_BYTES,
    EncodedBlock,
    check,
    decode,
    encode,
    encode_in_place,
    footprint_bytes,
    unencoded,
)
from storage.cut import FIXED_CUT_BYTES, FixedCut
from storage.errors import BlockDamaged

_STATES = Path(__file__).parents[1] / "data" / "states"


def _f16(size: int) -> bytes:
    return np.random.default_rng(1).normal(size=size // 2).astype(np.float16).tobytes()


def _f32(size: int) -> bytes:
    return np.random.default_rng(1).normal(size=size // 4).astype(np.float32).tobytes()


def _bf16(size: int) -> bytes:
    upper = np.frombuffer(_f32(2 * size), dtype=np.uint16)[1::2]
    return bytes(upper.tobytes())


def _f16_of_four_octaves(size: int) -> bytes:
    chance = np.random.default_rng(1)
    numbers = chance.uniform(1, 2, size // 2) * 2.0 ** chance.integers(-1, 3, size // 2)
    signed = (numbers * chance.choice([-1, 1], size // 2)).astype(np.float16)
    return bytes(signed.tobytes())


SAMPLES = {
    "noise": (os.urandom(300_000), 0),
    "zeros": (bytes(300_000), 1),
    "text": (b"the quick brown fox " * 9_000, 1),
    "bf16": (_bf16(300_000), 2),
    "bf16 and an odd tail": (_bf16(300_000) + b"x", 2),
    "f16": (_f16(300_000), 4),
    "f16 and seven more": (_f16(300_000) + b"xyzabcd", 4),
    "f32": (_f32(300_000), 3),
    "f32 and three more": (_f32(300_000) + b"xyz", 3),
    "one byte": (b"x", 0),
}


def _sealed(value: bytes) -> bytes:
    """The value with a checksum that fits, as a damaged writer (not a damaged disk) would leave it."""
    sum_ = xxh3_64(value[:56] + value[HEADER_BYTES:]).intdigest()
    return value[:56] + struct.pack("<Q", sum_) + value[HEADER_BYTES:]


def _refused(value: bytes, block: EncodedBlock) -> None:
    """Neither reader may give anything but the recorded bytes."""
    with pytest.raises(BlockDamaged):
        decode(value, block.digest, block.raw_bytes)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_block_comes_back_under_its_codec(name: str) -> None:
    raw, codec = SAMPLES[name]
    block = encode(raw, generation=7)
    assert block.digest == blake3(raw).digest()
    assert block.value[5] == codec
    check(block.value, block.digest, len(raw))
    assert bytes(decode(block.value, block.digest, len(raw))) == raw


@pytest.mark.parametrize("path", sorted(_STATES.glob("*.bin")), ids=lambda path: path.name)
def test_real_states_come_back_and_shrink(path: Path) -> None:
    raw = path.read_bytes()
    stored = back = 0
    position = 0
    for length in FixedCut().plan(len(raw)).lengths:
        part = raw[position : position + length]
        block = encode(part, generation=0)
        assert bytes(decode(block.value, block.digest, length)) == part
        stored += len(block.value)
        back += length
        position += length
    assert back == len(raw)
    if path.name.startswith("smollm2"):
        assert len(raw) / stored >= 1.14


@given(st.binary(min_size=1, max_size=5000))
def test_any_bytes_come_back(raw: bytes) -> None:
    block = encode(raw, generation=0)
    assert bytes(decode(block.value, block.digest, len(raw))) == raw


@given(st.integers(1, 70_000), st.sampled_from([_f16, _bf16, _f32]), st.integers(0, 3))
def test_elements_of_any_count_and_alignment_come_back(
    size: int, numbers: Callable[[int], bytes], shift: int
) -> None:
    raw = numbers(80_000)[shift : shift + size]
    block = encode(raw, generation=0)
    assert bytes(decode(block.value, block.digest, len(raw))) == raw


def test_a_block_that_does_not_shrink_is_stored_from_where_it_lies() -> None:
    buffer = memoryview(bytearray(HEADER_BYTES) + bytearray(os.urandom(100_000)))
    digest = blake3(buffer[HEADER_BYTES:]).digest()
    block = encode_in_place(buffer, digest, generation=0)
    assert block.value is buffer


@pytest.mark.parametrize("name", ["noise", "bf16", "f16", "f32", "text"])
def test_a_flipped_bit_anywhere_is_found_without_decoding(name: str) -> None:
    raw, _ = SAMPLES[name]
    block = encode(raw, generation=7)
    good = bytes(block.value)
    chance = random.Random(name)
    places = [*range(HEADER_BYTES), *(chance.randrange(len(good)) for _ in range(300))]
    for place in places:
        for bit in (1, 0x80):
            bad = bytearray(good)
            bad[place] ^= bit
            with pytest.raises(BlockDamaged):
                check(bad, block.digest, len(raw))


@pytest.mark.parametrize("name", ["noise", "bf16", "f16", "f32", "text"])
def test_a_flipped_bit_is_never_decoded_to_other_bytes(name: str) -> None:
    raw, _ = SAMPLES[name]
    block = encode(raw, generation=7)
    good = bytes(block.value)
    chance = random.Random(name)
    for place in [*range(HEADER_BYTES), *(chance.randrange(len(good)) for _ in range(200))]:
        bad = bytearray(good)
        bad[place] ^= 1 << chance.randrange(8)
        try:
            assert bytes(decode(bytes(bad), block.digest, len(raw))) == raw
        except BlockDamaged:
            continue


@pytest.mark.parametrize("name", ["noise", "bf16", "f16", "text"])
def test_a_value_cut_short_or_with_more_behind_is_refused(name: str) -> None:
    raw, _ = SAMPLES[name]
    block = encode(raw, generation=0)
    good = bytes(block.value)
    for length in [*range(HEADER_BYTES + 20), len(good) - 1, len(good) // 2]:
        _refused(good[:length], block)
    _refused(good + b"x", block)
    _refused(_sealed(good + b"x"), block)


def test_another_block_under_the_key_is_named() -> None:
    one, other = encode(b"one", generation=0), encode(b"two", generation=0)
    with pytest.raises(BlockDamaged) as caught:
        decode(other.value, one.digest, 3)
    assert caught.value.actual == other.digest


def test_a_lying_length_is_refused() -> None:
    block = encode(SAMPLES["text"][0], generation=0)
    for length in (0, 1, block.raw_bytes - 1, block.raw_bytes + 1, 2**63):
        with pytest.raises(BlockDamaged):
            decode(block.value, block.digest, length)


@pytest.mark.parametrize("declared", [True, False])
def test_a_decompression_bomb_stops_at_the_declared_size(declared: bool) -> None:
    claim = 1000
    bomb = zstandard.ZstdCompressor(write_content_size=declared).compress(bytes(512 << 20))
    digest = blake3(b"x").digest()
    head = struct.pack("<4sBBHQQ32s", b"SHBK", 1, 1, 0, claim, 0, digest)
    value = _sealed(head + bytes(8) + bomb)
    with pytest.raises(BlockDamaged):
        decode(value, digest, claim)


@pytest.mark.parametrize("lengths", [(0, 0), (2**32 - 1, 1), (5, 2**31), (400, 400), (500, 0)])
def test_planes_that_lie_about_their_length_are_refused(lengths: tuple[int, int]) -> None:
    raw = _f16(1000)
    digest = blake3(raw).digest()
    head = struct.pack("<4sBBHQQ32s", b"SHBK", 1, 2, 0, 1000, 0, digest)
    value = _sealed(head + bytes(8) + struct.pack("<2I", *lengths) + bytes(1000))
    with pytest.raises(BlockDamaged):
        decode(value, digest, 1000)


@pytest.mark.parametrize(("at", "byte"), [(4, 2), (4, 0), (5, 5), (5, 255), (6, 1)])
def test_an_unknown_version_or_codec_is_refused_even_with_a_fitting_checksum(
    at: int, byte: int
) -> None:
    block = encode(b"some bytes", generation=0)
    value = bytearray(block.value)
    value[at] = byte
    _refused(_sealed(bytes(value)), block)
    with pytest.raises(BlockDamaged):
        check(_sealed(bytes(value)), block.digest, block.raw_bytes)


@pytest.mark.parametrize(("at", "byte", "word"), [(4, 2, "version"), (5, 5, "codec")])
def test_what_a_newer_writer_left_is_named_as_unsupported(at: int, byte: int, word: str) -> None:
    block = encode(b"some bytes", generation=0)
    value = bytearray(block.value)
    value[at] = byte
    with pytest.raises(BlockDamaged, match=f"unsupported.*{word}"):
        decode(_sealed(bytes(value)), block.digest, block.raw_bytes)


def test_a_full_raw_block_fills_whole_pages() -> None:
    assert footprint_bytes(FIXED_CUT_BYTES + HEADER_BYTES) == (1 << 20) + 64
    assert footprint_bytes(FIXED_CUT_BYTES + HEADER_BYTES + 1) == (1 << 20) + 4096 + 64


# ---- exhaustive and forged values ------------------------------------------------------------

SMALL = {
    0: os.urandom(120),
    1: b"the quick brown fox " * 20,
    2: _bf16(600) + b"x",
    3: _f32(1200) + b"xyz",
    4: _f16_of_four_octaves(800) + b"xyzab",
}


def _forged(codec: int, raw_bytes: int, digest: bytes, payload: bytes) -> bytes:
    """A value as a hostile or broken writer would leave it: everything fits but what is inside."""
    head = struct.pack("<4sBBHQQ32s", b"SHBK", 1, codec, 0, raw_bytes, 0, digest)
    return _sealed(head + bytes(8) + payload)


def _frame(content_bytes: int, window: int, block: bytes) -> bytes:
    """A zstd frame (RFC 8878) of one raw block: its window descriptor byte is ours to choose."""
    descriptor = 2 << 6  # content size of 4 bytes, a window, no dictionary, no checksum
    last_raw_block = (len(block) << 3 | 1).to_bytes(3, "little")
    head = struct.pack("<IBBI", 0xFD2FB528, descriptor, window, content_bytes)
    return head + last_raw_block + block


@pytest.mark.parametrize("codec", SMALL)
def test_every_single_bit_of_a_value_is_guarded(codec: int) -> None:
    raw = SMALL[codec]
    block = encode(raw, generation=7)
    good = bytes(block.value)
    assert good[5] == codec
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BlockDamaged):
            check(bad, block.digest, len(raw))
        try:
            assert bytes(decode(bad, block.digest, len(raw))) == raw
        except BlockDamaged:
            continue


@pytest.mark.parametrize("codec", SMALL)
def test_a_value_cut_anywhere_is_refused_by_both_readers(codec: int) -> None:
    block = encode(SMALL[codec], generation=7)
    good = bytes(block.value)
    for length in range(len(good)):
        _refused(good[:length], block)
        with pytest.raises(BlockDamaged):
            check(good[:length], block.digest, block.raw_bytes)


@pytest.mark.parametrize("codec", SMALL)
def test_a_payload_cut_anywhere_is_refused_even_with_a_fitting_checksum(codec: int) -> None:
    block = encode(SMALL[codec], generation=7)
    good = bytes(block.value)
    for length in range(HEADER_BYTES, len(good)):
        _refused(_sealed(good[:length]), block)


@pytest.mark.parametrize("codec", SMALL)
def test_a_changed_payload_is_refused_even_with_a_fitting_checksum(codec: int) -> None:
    raw = SMALL[codec]
    block = encode(raw, generation=7)
    good = bytes(block.value)
    for place in range(HEADER_BYTES, len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        # A zstd frame has bits that mean nothing: the right bytes are allowed, other bytes never.
        try:
            assert bytes(decode(_sealed(bytes(bad)), block.digest, len(raw))) == raw
        except BlockDamaged:
            continue


@settings(max_examples=400)
@given(st.integers(0, 6), st.integers(0, 40), st.binary(max_size=120))
def test_any_payload_under_a_fitting_header_is_damage_and_no_other_error(
    codec: int, raw_bytes: int, payload: bytes
) -> None:
    digest = blake3(b"something else").digest()
    with pytest.raises(BlockDamaged):
        decode(_forged(codec, raw_bytes, digest, payload), digest, raw_bytes)


@settings(max_examples=400)
@given(
    st.sampled_from([2, 3]),
    st.integers(0, 40),
    st.lists(st.sampled_from([0, 1, 5, 9, 10, 13, 2**31, 2**32 - 1]), min_size=4, max_size=4),
    st.binary(max_size=80),
)
def test_any_plane_lengths_are_damage_and_no_other_error(
    codec: int, raw_bytes: int, lengths: list[int], planes: bytes
) -> None:
    digest = blake3(b"something else").digest()
    width = 2 * (codec - 1)
    payload = struct.pack(f"<{width}I", *lengths[:width]) + planes
    with pytest.raises(BlockDamaged):
        decode(_forged(codec, raw_bytes, digest, payload), digest, raw_bytes)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_value_are_damage_and_no_other_error(value: bytes) -> None:
    digest = blake3(b"").digest()
    for read in (check, decode):
        with pytest.raises(BlockDamaged):
            read(value, digest, 0)


@pytest.mark.parametrize("codec", SMALL)
@pytest.mark.parametrize("lie", [0, 1, 7, 2**32, 2**64 - 1])
def test_a_header_that_lies_about_the_length_is_refused(codec: int, lie: int) -> None:
    block = encode(SMALL[codec], generation=0)
    value = bytearray(block.value)
    struct.pack_into("<Q", value, 8, lie)
    bad = _sealed(bytes(value))
    _refused(bad, block)
    with pytest.raises(BlockDamaged):
        check(bad, block.digest, block.raw_bytes)


@pytest.mark.parametrize("codec", [codec for codec in SMALL if codec])
@pytest.mark.parametrize("lie", [0, 1, 7, 2**20])
def test_a_length_that_lies_in_header_and_manifest_alike_gives_no_bytes(
    codec: int, lie: int
) -> None:
    block = encode(SMALL[codec], generation=0)
    value = bytearray(block.value)
    struct.pack_into("<Q", value, 8, lie)
    with pytest.raises(BlockDamaged):
        decode(_sealed(bytes(value)), block.digest, lie)


# ---- written by hand from the format's description ------------------------------------------


def _planes(raw: bytes, width: int) -> bytes:
    """The payload of codec 2 or 3, every second plane as a frame."""
    whole = len(raw) // width * width
    planes = [raw[:whole][index::width] for index in range(width)]
    stored = [
        zstandard.ZstdCompressor(level=3).compress(plane) if index % 2 else plane
        for index, plane in enumerate(planes)
    ]
    return struct.pack(f"<{width}I", *map(len, stored)) + b"".join(stored) + raw[whole:]


def _words(raw: bytes, framed: bool) -> bytes:
    """The payload of codec 4, word by word."""
    quarter = len(raw) // 8
    words = struct.unpack_from(f"<{4 * quarter}H", raw)
    last = words[3 * quarter :]
    kept = []
    for index, word in enumerate(words[: 3 * quarter]):
        other = last[index % quarter]
        piece = (other >> 7, other >> 3, (other & 7) << 1 | other >> 15)[index // quarter] & 15
        kept.append(word & 0x87FF | piece << 11)
    nibbles = [word >> 11 & 15 for word in words]
    half = 2 * quarter
    plane = bytes(nibbles[k] | nibbles[k + half] << 4 for k in range(half))
    if framed:
        plane = zstandard.ZstdCompressor(level=3).compress(plane)
    return struct.pack(f"<{3 * quarter}H", *kept) + raw[8 * quarter :] + plane


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 4001, 40_007])
def test_values_made_from_the_description_alone_are_read(size: int) -> None:
    raw = (_f16(40_000) + b"leftovr")[-size:] if size else b""
    digest = blake3(raw).digest()
    payloads = [
        (0, raw),
        (1, zstandard.ZstdCompressor(level=19).compress(raw)),
        (2, _planes(raw, 2)),
        (3, _planes(raw, 4)),
        (4, _words(raw, framed=False)),
        (4, _words(raw, framed=True)),
    ]
    for codec, payload in payloads:
        value = _forged(codec, size, digest, payload)
        check(value, digest, size)
        assert bytes(decode(value, digest, size)) == raw, codec


def test_counting_numbers_shrink_in_every_plane() -> None:
    """No histogram shows it: every value of the lowest byte is as frequent as the others."""
    raw = np.arange(50_000, dtype=np.int32).tobytes()
    assert encode(raw, generation=0).value_bytes < len(raw) // 100


def test_words_are_written_as_described() -> None:
    raw = _f16(30_000) + b"xyz"
    block = encode(raw, generation=0)
    assert block.value[5] == 4
    kept = 30_000 // 8 * 6 + 3
    value = bytes(block.value)
    expected = _words(raw, framed=False)
    assert value[HEADER_BYTES : HEADER_BYTES + kept] == expected[:kept]
    assert zstandard.decompress(value[HEADER_BYTES + kept :]) == expected[kept:]


@pytest.mark.parametrize("bits", [0x0000, 0xFFFF, 0x7800, 0x8000, 0x0400, 0x7C00, 0x7E01])
def test_every_bit_of_a_word_keeps_its_place(bits: int) -> None:
    words = np.arange(1 << 16, dtype=np.uint16) ^ np.uint16(bits)
    raw = words.tobytes()
    digest = blake3(raw).digest()
    for framed in (False, True):
        value = _forged(4, len(raw), digest, _words(raw, framed))
        assert bytes(decode(value, digest, len(raw))) == raw


@pytest.mark.parametrize("damage", ["cut", "longer", "shorter", "another", "bomb", "nothing"])
def test_a_damaged_plane_of_exponents_is_refused_and_the_next_block_is_read(damage: str) -> None:
    raw = _f16(80_000)
    block = encode(raw, generation=0)
    kept = bytes(block.value[HEADER_BYTES : HEADER_BYTES + 60_000])
    frame = bytes(block.value[HEADER_BYTES + 60_000 :])
    pack = zstandard.ZstdCompressor().compress
    bad = {
        "cut": frame[: len(frame) // 2],
        "longer": frame + b"x",
        "shorter": pack(bytes(19_999)),
        "another": pack(bytes(20_000)),
        "bomb": pack(bytes(64 << 20)),
        "nothing": b"",
    }[damage]
    digest = block.digest
    assert _peak_bytes(_forged(4, 80_000, digest, kept + bad), digest, 80_000) < 4 << 20
    assert bytes(decode(block.value, digest, 80_000)) == raw


@pytest.mark.parametrize("codec", [2, 3])
@pytest.mark.parametrize("damage", ["cut", "longer", "shorter", "another", "bomb", "nothing"])
def test_a_damaged_byte_plane_is_refused_and_the_next_block_is_read(
    codec: int, damage: str
) -> None:
    width = 2 * (codec - 1)
    raw = {2: _bf16, 3: _f32}[codec](20_000 * width) + b"x"
    block = encode(raw, generation=0)
    assert block.value[5] == codec
    payload = bytes(block.value[HEADER_BYTES:])
    *lengths, last = struct.unpack_from(f"<{width}I", payload)
    frame = payload[-last - 1 : -1]
    pack = zstandard.ZstdCompressor().compress
    bad = {
        "cut": frame[: len(frame) // 2],
        "longer": frame + b"x",
        "shorter": pack(bytes(19_999)),
        "another": pack(bytes(20_000)),
        "bomb": pack(bytes(64 << 20)),
        "nothing": b"",
    }[damage]
    head = struct.pack(f"<{width}I", *lengths, len(bad))
    forged = head + payload[4 * width : -last - 1] + bad + payload[-1:]
    digest = block.digest
    assert _peak_bytes(_forged(codec, len(raw), digest, forged), digest, len(raw)) < 4 << 20
    assert bytes(decode(block.value, digest, len(raw))) == raw


@pytest.mark.parametrize("make", [_f16, _bf16, _f32])
def test_what_was_encoded_or_decoded_before_stays_as_it_is(make: Callable[[int], bytes]) -> None:
    """Scratch is used again by the next block of a thread: nothing given out may lie in it."""
    raws = [make(200_000), make(400_000)[200_000:] + b"xyz"]
    blocks = [encode(raw, generation=0) for raw in raws]
    decoded = [
        decode(block.value, block.digest, len(raw)) for block, raw in zip(blocks, raws, strict=True)
    ]
    assert [bytes(raw) for raw in decoded] == raws
    for block, raw in zip(blocks, raws, strict=True):
        assert bytes(decode(block.value, block.digest, len(raw))) == raw


@pytest.mark.parametrize(("make", "codec"), [(_f16, 4), (_bf16, 2), (_f32, 3)])
def test_blocks_beyond_a_threads_scratch_come_back_in_bounded_memory(
    make: Callable[[int], bytes], codec: int
) -> None:
    raw = make(6 << 20) + b"x"
    tracemalloc.start()
    try:
        block = encode(raw, generation=0)
        encoding = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        decoded = decode(block.value, block.digest, len(raw))
        decoding = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert block.value[5] == codec
    assert bytes(decoded) == raw
    assert encoding < 5 * len(raw)
    assert decoding < 3.6 * len(raw)


def test_threads_encode_and_decode_at_once_and_damage_of_one_is_not_of_another() -> None:
    raws = [make(120_000 + 7 * n) for make in (_f16, _bf16, _f32) for n in range(4)]
    expected = [bytes(encode(raw, generation=3).value) for raw in raws]
    together = threading.Barrier(8)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        together.wait(30)
        for _ in range(40):
            index = chance.randrange(len(raws))
            raw, value = raws[index], expected[index]
            block = encode(raw, generation=3)
            assert bytes(block.value) == value
            assert bytes(decode(value, block.digest, len(raw))) == raw
            at = chance.randrange(HEADER_BYTES, len(value))
            bad = _sealed(value[:at] + bytes([value[at] ^ 0x55]) + value[at + 1 :])
            with pytest.raises(BlockDamaged):
                decode(bad, block.digest, len(raw))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def _peak_bytes(value: bytes, digest: bytes, raw_bytes: int) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(BlockDamaged):
            decode(value, digest, raw_bytes)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_bomb_that_declares_a_small_size_takes_no_more_memory_than_that() -> None:
    claim = 100_000
    bomb = bytearray(zstandard.ZstdCompressor().compress(bytes(256 << 20)))
    size = zstandard.get_frame_parameters(bytes(bomb)).content_size
    assert size == 256 << 20
    at = bytes(bomb).index(struct.pack("<I", size), 4, 16)
    struct.pack_into("<I", bomb, at, claim)
    assert zstandard.get_frame_parameters(bytes(bomb)).content_size == claim
    digest = blake3(bytes(claim)).digest()
    assert _peak_bytes(_forged(1, claim, digest, bytes(bomb)), digest, claim) < 4 << 20
    planes = struct.pack("<2I", len(bomb), claim) + bytes(bomb) + bytes(claim)
    digest = blake3(bytes(2 * claim)).digest()
    assert _peak_bytes(_forged(2, 2 * claim, digest, planes), digest, 2 * claim) < 4 << 20


def test_a_frame_may_need_the_window_of_rfc_9659_and_none_larger() -> None:
    raw = os.urandom(500)
    digest = blake3(raw).digest()
    eight_mib, sixteen_mib = 13 << 3, 14 << 3
    allowed = _frame(len(raw), eight_mib, raw)
    assert bytes(decode(_forged(1, len(raw), digest, allowed), digest, len(raw))) == raw
    for window in (eight_mib + 1, sixteen_mib, 31 << 3):
        with pytest.raises(BlockDamaged):
            decode(_forged(1, len(raw), digest, _frame(len(raw), window, raw)), digest, len(raw))


def test_a_frame_that_holds_less_or_more_than_it_declares_is_refused() -> None:
    raw = os.urandom(500)
    digest = blake3(raw).digest()
    for content in (raw[:-1], raw + b"x", b""):
        value = _forged(1, len(raw), digest, _frame(len(raw), 10 << 3, content))
        with pytest.raises(BlockDamaged):
            decode(value, digest, len(raw))


def test_a_frame_that_asks_for_a_dictionary_is_refused() -> None:
    raw = b"the quick brown fox " * 20
    digest = blake3(raw).digest()
    words = zstandard.ZstdCompressionDict(raw * 4, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    trained = zstandard.train_dictionary(1024, [raw[i:] * 3 for i in range(200)])
    assert trained.dict_id() != 0
    for dictionary in (words, trained):
        frame = zstandard.ZstdCompressor(dict_data=dictionary).compress(raw)
        value = _forged(1, len(raw), digest, frame)
        with pytest.raises(BlockDamaged):
            decode(value, digest, len(raw))


def test_frames_behind_or_before_the_frame_are_refused() -> None:
    raw = b"the quick brown fox " * 20
    digest = blake3(raw).digest()
    frame = zstandard.ZstdCompressor().compress(raw)
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    for payload in (frame + frame, skippable + frame, frame + skippable, frame + b"\0", b""):
        with pytest.raises(BlockDamaged):
            decode(_forged(1, len(raw), digest, payload), digest, len(raw))


def test_planes_of_another_element_width_are_refused() -> None:
    raw = _f32(1200)
    block = encode(raw, generation=0)
    assert block.value[5] == 3
    value = bytearray(block.value)
    for codec in (0, 1, 2, 4):
        value[5] = codec
        _refused(_sealed(bytes(value)), block)


def test_a_value_under_the_key_of_another_block_is_refused_by_both_readers() -> None:
    for codec, raw in SMALL.items():
        block = encode(raw, generation=0)
        assert block.value[5] == codec
        other = blake3(b"another").digest()
        for read in (check, decode):
            with pytest.raises(BlockDamaged) as caught:
                read(block.value, other, len(raw))
            assert (caught.value.digest, caught.value.actual) == (other, block.digest)


def test_a_key_changed_together_with_header_and_checksum_still_gives_no_wrong_bytes() -> None:
    for codec, raw in SMALL.items():
        block = encode(raw, generation=0)
        key = blake3(b"another").digest()
        value = bytearray(block.value)
        assert value[5] == codec
        value[24:56] = key
        with pytest.raises(BlockDamaged) as caught:
            decode(_sealed(bytes(value)), key, len(raw))
        assert caught.value.actual == block.digest


def test_the_header_is_the_documented_one() -> None:
    block = encode(b"some bytes", generation=0x1122334455667788)
    value = bytes(block.value)
    fields = struct.unpack_from("<4sBBHQQ32s", value)
    assert fields == (b"SHBK", 1, 0, 0, 10, 0x1122334455667788, blake3(b"some bytes").digest())
    assert value == _sealed(value)
    assert value[HEADER_BYTES:] == b"some bytes"


def test_the_generation_changes_neither_key_nor_bytes() -> None:
    raw = SAMPLES["text"][0]
    one, other = encode(raw, generation=1), encode(raw, generation=2**64 - 1)
    assert one.digest == other.digest
    assert bytes(decode(other.value, one.digest, len(raw))) == raw


def test_a_copy_is_memory_of_its_own() -> None:
    for raw in SMALL.values():
        block = encode(raw, generation=0)
        value = bytearray(block.value)
        copied = decode(value, block.digest, len(raw))
        value[HEADER_BYTES:] = bytes(len(value) - HEADER_BYTES)
        assert bytes(copied) == raw


def test_a_block_put_off_is_encoded_when_its_value_is_wanted() -> None:
    raw = SAMPLES["f16"][0]
    done = encode(raw, generation=5)
    buffer = memoryview(bytearray(HEADER_BYTES) + bytearray(raw))
    later = unencoded(buffer, done.digest, 123, generation=5)
    assert (later.digest, later.raw_bytes, later.value_bytes) == (done.digest, len(raw), 123)
    assert bytes(later.value) == bytes(done.value)
    assert later.value_bytes == len(done.value)


@given(st.integers(0, 4 << 20))
def test_a_footprint_is_whole_pages_and_never_less_than_the_value(value_bytes: int) -> None:
    pages, tree = divmod(footprint_bytes(value_bytes), 4096)
    assert tree == 64
    assert 4096 * (pages - 1) < value_bytes + 16 <= 4096 * pages
