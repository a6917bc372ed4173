"""Blind mutation of known inputs: seeded, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

_MOST_BYTES: Final = 1 << 16
# Counts, lengths and offsets that code trips over.
_ABSURD: Final = tuple(
    (value % (1 << 8 * size)).to_bytes(size, "little")
    for size in (1, 2, 4, 8)
    for value in (0, 1, -1, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1, 255, 4096, 65_535)
)
_TEXTS: Final = (
    *(
        b"\r\n",
        b"\n",
        b"\0",
        b'"',
        b"{",
        b"]",
        b",",
        b":",
        b"=",
        b"-",
        b"--",
        b";",
        b"%00",
        b"\xb2",
    ),
    *(b"null", b"true", b"NaN", b"1e999", b"-0", b"9" * 30, b"\\ud800", b"\xc3\xa9", b"\xff\xfe"),
)


def mutants(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """So many inputs, each one to eight changes away from one of the seeds."""
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(chance.choice(seeds)[:_MOST_BYTES])
        for _ in range(1 << chance.randrange(4)):
            _change(data, seeds, chance)
        yield bytes(data)


def _change(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    way = chance.randrange(8)
    if way == 0 and data:
        data[at % len(data)] ^= 1 << chance.randrange(8)
    elif way == 1 and data:
        data[at % len(data)] = chance.randrange(256)
    elif way == 2:
        value = chance.choice(_ABSURD)
        data[at : at + len(value)] = value
    elif way == 3:
        data[at:at] = chance.choice(_TEXTS)
    elif way == 4:
        del data[at : at + 1 + chance.randrange(16)]
    elif way == 5:
        del data[at:]
    elif way == 6:
        piece = bytes(data[at : at + 1 + chance.randrange(64)])
        data[at:at] = piece * (1 + chance.randrange(4))
    else:
        other = chance.choice(seeds)
        start = chance.randrange(len(other) + 1)
        data[at : at + chance.randrange(64)] = other[start : start + chance.randrange(256)]
