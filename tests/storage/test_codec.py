"""The stored format: every block comes back exactly, and nothing damaged ever comes back at all."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import zstandard
from blake3 import blake3
from hypothesis import given
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
)
from storage.cut import FIXED_CUT_BYTES, FixedCut
from storage.errors import BlockDamaged

_STATES = Path(__file__).parents[1] / "data" / "states"


def _f16(size: int) -> bytes:
    return np.random.default_rng(1).normal(size=size // 2).astype(np.float16).tobytes()


def _f32(size: int) -> bytes:
    return np.random.default_rng(1).normal(size=size // 4).astype(np.float32).tobytes()


SAMPLES = {
    "noise": (os.urandom(300_000), 0),
    "zeros": (bytes(300_000), 1),
    "text": (b"the quick brown fox " * 9_000, 1),
    "f16": (_f16(300_000), 2),
    "f16 and an odd tail": (_f16(300_000) + b"x", 2),
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


@given(st.integers(1, 70_000), st.sampled_from([2, 4]), st.integers(0, 3))
def test_elements_of_any_count_and_alignment_come_back(size: int, width: int, shift: int) -> None:
    raw = (_f16 if width == 2 else _f32)(80_000)[shift : shift + size]
    block = encode(raw, generation=0)
    assert bytes(decode(block.value, block.digest, len(raw))) == raw


def test_a_block_that_does_not_shrink_is_stored_from_where_it_lies() -> None:
    buffer = memoryview(bytearray(HEADER_BYTES) + bytearray(os.urandom(100_000)))
    digest = blake3(buffer[HEADER_BYTES:]).digest()
    block = encode_in_place(buffer, digest, generation=0)
    assert block.value is buffer


@pytest.mark.parametrize("name", ["noise", "f16", "f32", "text"])
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


@pytest.mark.parametrize("name", ["noise", "f16", "f32", "text"])
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


@pytest.mark.parametrize("name", ["noise", "f16", "text"])
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


@pytest.mark.parametrize(("at", "byte"), [(4, 2), (4, 0), (5, 4), (5, 255), (6, 1)])
def test_an_unknown_version_or_codec_is_refused_even_with_a_fitting_checksum(
    at: int, byte: int
) -> None:
    block = encode(b"some bytes", generation=0)
    value = bytearray(block.value)
    value[at] = byte
    _refused(_sealed(bytes(value)), block)
    with pytest.raises(BlockDamaged):
        check(_sealed(bytes(value)), block.digest, block.raw_bytes)


def test_a_full_raw_block_fills_whole_pages() -> None:
    assert footprint_bytes(FIXED_CUT_BYTES + HEADER_BYTES) == (1 << 20) + 64
    assert footprint_bytes(FIXED_CUT_BYTES + HEADER_BYTES + 1) == (1 << 20) + 4096 + 64


@given(st.integers(0, 40 << 20))
def test_cuts_add_up_and_do_not_depend_on_what_follows(size: int) -> None:
    lengths = FixedCut().plan(size).lengths
    assert sum(lengths) == size
    assert all(0 < length <= FIXED_CUT_BYTES for length in lengths)
    assert all(length == FIXED_CUT_BYTES for length in lengths[:-1])
