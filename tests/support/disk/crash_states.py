"""What a disk may hold after a power cut, rebuilt from the log of every change and sync.

The method is that of ALICE (Pillai et al., OSDI 2014): at any point of the log, a file holds what was
synced, and any part of what was written since, whole, not at all, or torn at a sector. Names are taken to
be durable at once.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WRITE: Final = 1
SYNC: Final = 2
TRUNCATE: Final = 3
UNLINK: Final = 4
RENAME: Final = 5  # of a file; the data is its new path
MODES: Final = ("all", "none", "random")

_HEAD: Final = struct.Struct("<4q")
# Shared memory and locks mean nothing to the processes after a power cut.
_VOLATILE: Final = ("-shm", "lock.mdb", ".lock", "(deleted)")


@dataclass(frozen=True, slots=True)
class Change:
    """One record of the log; `end` is where it ends there."""

    kind: int
    path: str
    offset: int
    data: memoryview
    end: int


def read(log: Path) -> list[Change]:
    """Every change that can outlive a power cut, in the order in which they were made."""
    image = memoryview(log.read_bytes())
    changes, at = [], 0
    while at + _HEAD.size <= len(image):
        kind, path_length, offset, length = _HEAD.unpack_from(image, at)
        at += _HEAD.size
        path = bytes(image[at : at + path_length]).decode()
        data = image[at + path_length : at + path_length + length]
        at += path_length + length
        if at > len(image):
            break  # the process was killed while it wrote the record
        if not path.endswith(_VOLATILE):
            changes.append(Change(kind, path, offset, data, at))
    return changes


class Disk:
    """Follows the log; at any point it can say what may be on the disk."""

    def __init__(self) -> None:
        self._durable: dict[str, bytearray] = {}
        self._pending: dict[str, list[Change]] = {}

    def apply(self, change: Change) -> None:
        """The next change of the log."""
        path = change.path
        if change.kind == UNLINK:
            self._durable.pop(path, None)
            self._pending.pop(path, None)
        elif change.kind == RENAME and path in self._durable:
            name = bytes(change.data).decode()
            self._durable[name] = self._durable.pop(path)
            self._pending[name] = self._pending.pop(path, [])
        elif change.kind == SYNC and path in self._durable:  # else it is of a folder
            for earlier in self._pending.pop(path, ()):
                _into(self._durable[path], earlier)
        elif change.kind in (WRITE, TRUNCATE):
            self._durable.setdefault(path, bytearray())
            self._pending.setdefault(path, []).append(change)

    def unsynced(self) -> int:
        """Changes that a power cut may undo."""
        return sum(map(len, self._pending.values()))

    def write(self, folder: Path, mode: str, chance: random.Random) -> None:
        """Make a folder that a power cut now may leave.

        Args:
            mode: "all" changes survived (as after kill -9), "none" but the synced, or a "random"
                part of them, some torn at 512 bytes or 4 KiB.
        """
        for path, durable in self._durable.items():
            file = durable
            kept = list(_kept(self._pending.get(path, ()), mode, chance))
            if kept:
                file = bytearray(durable)
                for change in kept:
                    _into(file, change)
            target = folder / path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_bytes(file)


def _kept(changes: list[Change] | tuple[()], mode: str, chance: random.Random) -> Iterator[Change]:
    if mode == "none":
        return
    for change in changes:
        if mode == "all":
            yield change
            continue
        lot = chance.random()
        if lot < 0.4:
            continue
        if lot < 0.6 and change.kind == WRITE:
            yield from _torn(change, chance)
        else:
            yield change


def _torn(change: Change, chance: random.Random) -> Iterator[Change]:
    size = chance.choice((512, 4096))
    start = 0
    while start < len(change.data):
        # Sectors lie at multiples of their size in the file, not in the write.
        end = start + size - (change.offset + start) % size
        if chance.random() < 0.5:
            yield Change(
                WRITE, change.path, change.offset + start, change.data[start:end], change.end
            )
        start = end


def _into(file: bytearray, change: Change) -> None:
    if change.kind == TRUNCATE:
        if change.offset < len(file):
            del file[change.offset :]
        else:
            file.extend(bytes(change.offset - len(file)))
        return
    end = change.offset + len(change.data)
    if end > len(file):
        file.extend(bytes(end - len(file)))
    file[change.offset : end] = change.data
