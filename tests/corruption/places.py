"""Damage to files as a device does it, at places of a kind; what was done is said in words."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

LMDB_PAGE = 4096
SQLITE_PAGE = 16384
DATABASE = "metadata.db"
WAL = "metadata.db-wal"
BLOCKS = ("blocks/large/data.mdb", "blocks/small/data.mdb")
_LMDB_FLAGS = {1: "branch", 2: "leaf", 4: "values", 8: "meta"}
_SQLITE_KINDS = {2: "inner index", 5: "inner table", 10: "index", 13: "table"}


@dataclass(frozen=True)
class Damage:
    """What is done: `how` to `kind` of page at [at, at + size) of `file`."""

    file: str
    kind: str
    how: str
    at: int
    bit: int = 0
    size: int = 0
    other: int = 0

    @property
    def store(self) -> str:
        """ "sqlite", or "lmdb" for structure of the block store, or "values" for its content."""
        if self.file.startswith(DATABASE):
            return "sqlite"
        return "values" if self.kind == "values" else "lmdb"


def page_kinds(folder: Path) -> dict[tuple[str, str], list[int]]:
    """Offsets of the pages of each kind, by (file, kind)."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for file in BLOCKS:
        data = (folder / file).read_bytes()
        at = 0
        while at < len(data):
            flags = int.from_bytes(data[at + 10 : at + 12], "little")
            own = int.from_bytes(data[at : at + 8], "little") * LMDB_PAGE == at
            kind = _LMDB_FLAGS.get(flags & 15, "free") if own else "free"
            pages = 1
            if kind == "values":
                pages = max(1, int.from_bytes(data[at + 12 : at + 16], "little"))
            found[file, kind] += range(at, min(at + pages * LMDB_PAGE, len(data)), LMDB_PAGE)
            at += pages * LMDB_PAGE
    data = (folder / DATABASE).read_bytes()
    for at in range(0, len(data), SQLITE_PAGE):
        kind = _SQLITE_KINDS.get(data[at + (100 if at == 0 else 0)], "overflow or free")
        found[DATABASE, kind].append(at)
    found[DATABASE, "header"].append(0)
    if (folder / WAL).exists():
        size = (folder / WAL).stat().st_size
        found[WAL, "log"] += range(0, size, SQLITE_PAGE + 24)
    return {key: offsets for key, offsets in found.items() if offsets}


class Chooser:
    """Random damages of one folder."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._kinds = page_kinds(folder)
        self._chance = chance

    def flip(self, store: str) -> Damage:
        file, kind, at = self._page(store)
        if kind == "header":
            within = self._chance.randrange(100)
        elif store == "values":
            within = self._chance.randrange(LMDB_PAGE)
        else:
            within = self._used(file, at)
        return Damage(file, kind, "flip", at + within, bit=self._chance.randrange(8))

    def zero(self, store: str) -> Damage:
        file, kind, at = self._page(store)
        if file == DATABASE:
            at += LMDB_PAGE * self._chance.randrange(SQLITE_PAGE // LMDB_PAGE)
        return Damage(file, kind, "zero", at, size=LMDB_PAGE)

    def truncate(self) -> Damage:
        files = [f for f in (*BLOCKS, DATABASE, WAL) if (self._folder / f).exists()]
        file = self._chance.choice(files)
        size = (self._folder / file).stat().st_size
        at = self._chance.randrange(size) if size else 0
        if self._chance.random() < 0.5:
            at -= at % LMDB_PAGE
        return Damage(file, "file", "truncate", at)

    def swap(self) -> Damage:
        file, page, count = self._file_of_pages()
        first, second = self._chance.sample(range(count), 2)
        return Damage(file, "page", "swap", first * page, size=page, other=second * page)

    def stale(self, older: Path) -> Damage:
        """A page as an older folder had it."""
        file, page, count = self._file_of_pages()
        count = min(count, (older / file).stat().st_size // page)
        before, now = (older / file).read_bytes(), (self._folder / file).read_bytes()
        changed = [
            at
            for at in range(0, count * page, page)
            if before[at : at + page] != now[at : at + page]
        ]
        return Damage(file, "page", "stale", self._chance.choice(changed), size=page)

    def _file_of_pages(self) -> tuple[str, int, int]:
        file = self._chance.choice((*BLOCKS, DATABASE, DATABASE))
        page = SQLITE_PAGE if file == DATABASE else LMDB_PAGE
        return file, page, (self._folder / file).stat().st_size // page

    def _page(self, store: str) -> tuple[str, str, int]:
        kinds = [
            (file, kind) for file, kind in self._kinds if Damage(file, kind, "", 0).store == store
        ]
        # Every kind as often as every other, however few pages it has; only what the whole file hangs
        # on is taken less often, since nothing else that is damaged shows beside it.
        weights = [1 if kind in ("header", "meta", "log") else 4 for _, kind in sorted(kinds)]
        [(file, kind)] = self._chance.choices(sorted(kinds), weights)
        return file, kind, self._chance.choice(self._kinds[file, kind])

    def _used(self, file: str, at: int) -> int:
        """A byte of the page that is not part of its longest run of zeros."""
        page = SQLITE_PAGE if file.startswith(DATABASE) else LMDB_PAGE
        with (self._folder / file).open("rb") as handle:
            handle.seek(at)
            data = handle.read(page)
        used = [place for place, byte in enumerate(data) if byte]
        near = self._chance.choice(used) if used else 0
        return max(0, min(len(data) - 1, near + self._chance.randrange(-2, 3)))


def apply(damage: Damage, folder: Path, older: Path) -> None:
    """Do it."""
    path = folder / damage.file
    if damage.how == "truncate":
        with path.open("r+b") as handle:
            handle.truncate(damage.at)
        return
    with path.open("r+b") as handle:
        handle.seek(damage.at)
        before = handle.read(damage.size or 1)
        if damage.how == "flip":
            put = bytes([before[0] ^ (1 << damage.bit)])
        elif damage.how == "zero":
            put = bytes(len(before))
        elif damage.how == "swap":
            handle.seek(damage.other)
            put = handle.read(damage.size)
            handle.seek(damage.other)
            handle.write(before)
        else:
            with (older / damage.file).open("rb") as old:
                old.seek(damage.at)
                put = old.read(damage.size)
        handle.seek(damage.at)
        handle.write(put)
