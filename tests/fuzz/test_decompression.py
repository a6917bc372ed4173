"""Decompression: 200 frames that claim, hide or cut something, in a process whose memory is looked at.

A frame may take what its block was planned to have, and a little: not what it says of itself.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zstandard
from blake3 import blake3

from storage.blocks.codec import decode
from storage.errors import BlockDamaged
from tests.fuzz.targets.codec import forged

_ROOT: Final = Path(__file__).parents[2]
_CLAIMS: Final = (1, 1024, 65_536, 1_048_496)
_MOST_OVER_KIB: Final = 1024
_MAGIC: Final = 0xFD2FB528


def _bomb(content: int, window_log: int, chunk: int = 1 << 17) -> bytes:
    """A frame of run-length blocks: `content` bytes out of four bytes for every 128 KiB of them."""
    blocks = []
    for at in range(0, content, chunk):
        size = min(chunk, content - at)
        head = size << 3 | 1 << 1 | (at + size == content)
        blocks.append(head.to_bytes(3, "little") + b"\0")
    head_of_frame = struct.pack("<IBBQ", _MAGIC, 3 << 6, (window_log - 10) << 3, content)
    return head_of_frame + b"".join(blocks)


def _frames(claim: int) -> Iterator[tuple[str, bytes]]:
    """Frames for a block of `claim` bytes, none of which decodes to it."""
    whole = zstandard.ZstdCompressor().compress(bytes(claim))
    for times in (2, 1 << 10, 1 << 14):
        yield f"{times} times the claim", _bomb(claim * times, 17)
    yield "10 GiB", _bomb(10 << 30, 17)
    for window_log in (24, 27, 31):
        yield f"a window of 2^{window_log}", _bomb(claim, window_log)
    for declared in (0, claim - 1, claim + 1, 1 << 40, (1 << 64) - 1):
        lying = bytearray(_bomb(claim, 17))
        struct.pack_into("<Q", lying, 6, declared)
        yield f"declares {declared}", bytes(lying)
    for content in (claim + 1, 64 * claim, 1 << 28):
        hiding = bytearray(_bomb(content, 17))
        struct.pack_into("<Q", hiding, 6, claim)
        yield f"declares the claim and has {content}", bytes(hiding)
    undeclared = zstandard.ZstdCompressor(write_content_size=False)
    yield "declares nothing", undeclared.compress(bytes(claim))
    yield "declares nothing and is large", undeclared.compress(bytes(64 << 20))
    yield "two frames", whole + whole
    yield "an empty frame behind", whole + zstandard.ZstdCompressor().compress(b"")
    yield "a skippable frame before", struct.pack("<II", 0x184D2A50, 4) + b"xxxx" + whole
    yield "a skippable frame alone", struct.pack("<II", 0x184D2A50, 0xFFFFFFF0)
    for rest in (b"\0", b"x" * 100, whole[:4]):
        yield f"{len(rest)} bytes behind", whole + rest
    for cut in (0, 1, 4, 5, len(whole) // 2, len(whole) - 1):
        yield f"cut at {cut}", whole[:cut]
    for dictionary in (1, 255):
        named = struct.pack("<IBBB", _MAGIC, 1, 0x38, dictionary) + whole[6:]
        yield f"dictionary {dictionary}", named
    for at in range(min(len(whole), 16)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x80
        yield f"flipped at {at}", bytes(flipped)


def _cases() -> Iterator[tuple[str, int, int, bytes]]:
    for claim in _CLAIMS:
        for name, frame in _frames(claim):
            yield name, 1, claim, frame
        if claim > 1000:
            for name, frame in _frames(claim // 2):
                planes = struct.pack("<2I", len(frame), claim // 2) + frame + bytes(claim // 2)
                yield name, 2, claim, planes


def _kib(field: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0])


def inside() -> None:
    """Decode them all and say what came of it; of one claim before, so that its own memory is there."""
    raw = bytes(max(_CLAIMS))
    for codec in (1, 2):
        packed = zstandard.ZstdCompressor().compress(raw[: len(raw) // codec])
        value = struct.pack("<2I", len(packed), len(packed)) + packed * 2 if codec == 2 else packed
        decode(forged(codec, len(raw), value, blake3(raw).digest()), blake3(raw).digest(), len(raw))
    refused = worst = 0
    for name, codec, claim, payload in _cases():
        digest = blake3(bytes(claim)).digest()
        value = forged(codec, claim, payload, blake3(b"another").digest())
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (proc(5))
        before = _kib("VmRSS")
        try:
            decode(value, value[24:56], claim)
        except BlockDamaged:
            refused += 1
        else:
            print("taken", name, claim, digest.hex())
        worst = max(worst, _kib("VmHWM") - before - (2 * claim >> 10))
    print(refused, worst)


def test_two_hundred_frames_are_refused_and_take_no_more_than_their_block() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tests.fuzz.test_decompression import inside; inside()"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    refused, worst_kib = map(int, done.stdout.split())
    assert refused >= 200
    assert worst_kib < _MOST_OVER_KIB
