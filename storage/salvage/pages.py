"""Stored values found in an LMDB file by its pages alone, without LMDB and whatever became of its trees.

LMDB would follow a broken page to a wrong place, or end the process. But a leaf page says by itself which keys
it holds and where their values lie, and a value says whose it is and proves it. So every page of the file that
looks like a leaf is read, in use or not, and what it names is a candidate: nothing is believed before
`storage/blocks/codec.py` has proven it. A raw value whose leaf is gone is found by its own header.

Format: mdb.c of LMDB 0.9, `MDB_page` and `MDB_node`, of little-endian machines with 64 bits. A page is 8 bytes
of number, 2 unused, 2 of flags, then 2 + 2 bytes of bounds (leaf) or 4 of page count (overflow); a leaf goes on
with 2-byte offsets of nodes. A node is 2 + 2 bytes of size, 2 of flags, 2 of key length, the key, then the
value or the number of the page where it begins.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.blocks.codec import EncodedBlock, check, decode, prove
from storage.blocks.store import BlockRef
from storage.errors import BlockDamaged

_CHUNK_BYTES: Final = 4 << 20
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 16))
_USUAL_PAGE: Final = 4096
_PAGE_SIZE_AT: Final = 40
_HEADER: Final = struct.Struct("<QHHHH")
_NODE: Final = struct.Struct("<HHHH")
_VALUE: Final = struct.Struct("<4sBBHQQ32s")
_LEAF: Final = 0x02
_OVERFLOW: Final = 0x04
_ELSEWHERE: Final = 0x01
_KEY_BYTES: Final = 32
_VALUE_HEADER_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class _Place:
    file: int
    at: int
    size: int


class FoundValues:
    """Candidates of both environments by key. Memory: an entry for each value."""

    def __init__(self, blocks: Path) -> None:
        self._files = [
            path for name in ("large", "small") if (path := blocks / name / "data.mdb").is_file()
        ]
        self._places: defaultdict[bytes, set[_Place]] = defaultdict(set)
        for number, path in enumerate(self._files):
            for key, at, size in _candidates(path):
                self._places[key].add(_Place(number, at, size))

    def __len__(self) -> int:
        return len(self._places)

    def block(self, ref: BlockRef) -> EncodedBlock | None:
        """The block as it is stored, proven to its last byte; None if no candidate is that."""
        for place in self._places.get(ref.digest, ()):
            value = read_at(self._files[place.file], place.at, place.size)
            try:
                check(value, ref.digest, ref.raw_bytes)
                prove(decode(value, ref.digest, ref.raw_bytes), ref.digest)
            except BlockDamaged:
                continue
            return EncodedBlock(ref.digest, ref.raw_bytes, len(value), value)
        return None


def read_at(path: Path, at: int, size: int) -> bytes:
    """Bytes of a file, fewer at its end; none where the device cannot read them."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(at)
            return file.read(size)
    except OSError:
        return b""


def _candidates(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """(key, offset, size) of what pages name."""
    size = path.stat().st_size
    page = int.from_bytes(read_at(path, _PAGE_SIZE_AT, 4), "little")
    if page not in _PAGE_SIZES:
        page = _USUAL_PAGE
    for start in range(0, size, _CHUNK_BYTES):
        chunk = read_at(path, start, _CHUNK_BYTES)
        for at in range(0, len(chunk) - page + 1, page):
            flags = chunk[at + 10]
            if flags & _LEAF:
                yield from _named(chunk[at : at + page], start + at, page, size)
            if flags & _OVERFLOW:
                yield from _by_itself(chunk[at : at + page], start + at)


def _named(data: bytes, start: int, page: int, file_bytes: int) -> Iterator[tuple[bytes, int, int]]:
    lower = _HEADER.unpack_from(data)[3]
    for offset in range(_HEADER.size, min(lower, page), 2):
        node = int.from_bytes(data[offset : offset + 2], "little")
        if not _HEADER.size <= node <= page - _NODE.size - _KEY_BYTES:
            continue
        low, high, flags, key_bytes = _NODE.unpack_from(data, node)
        if key_bytes != _KEY_BYTES:
            continue
        at = node + _NODE.size
        key, size = data[at : at + _KEY_BYTES], low | high << 16
        at += _KEY_BYTES
        if flags & _ELSEWHERE:
            value_at = int.from_bytes(data[at : at + 8], "little") * page + _HEADER.size
        else:
            value_at = start + at
        if size > _VALUE_HEADER_BYTES and value_at + size <= file_bytes:
            yield key, value_at, size


def _by_itself(data: bytes, start: int) -> Iterator[tuple[bytes, int, int]]:
    magic, _, codec, _, raw_bytes, _, key = _VALUE.unpack_from(data, _HEADER.size)
    if magic == b"SHBK" and codec == 0:
        yield key, start + _HEADER.size, _VALUE_HEADER_BYTES + raw_bytes
