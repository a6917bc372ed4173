"""A damaged database as a copy that can be read, and its rows in a new one without any rule.

The reading is done by a child (`storage/salvage/reading.py`): a table that it dies of, or that never ends,
is lost alone. What a row says is proven by whoever uses it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from pysqlite3 import dbapi2

from storage.children import child_environment
from storage.metadata.schema import metadata
from storage.salvage import reading
from storage.salvage.pages import read_at

# In the order in which they are read: the rows of the last are asked for by those of the first.
TABLES: Final = ("namespace", "state", "component", "block", "radix_node", "state_block")
_PIECE_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 100
_PATIENCE_SECONDS: Final = 3600.0


def copy_database(database: Path, into: Path) -> Path:
    """A copy with its log, unreadable pieces as zeros; the folder that it comes from is only read."""
    into.mkdir(mode=0o700)
    for end in ("", "-wal"):
        source = database.with_name(database.name + end)
        if not source.is_file():
            continue
        size = source.stat().st_size
        with (into / source.name).open("xb") as file:
            for at in range(0, size, _PIECE_BYTES):
                wanted = min(_PIECE_BYTES, size - at)
                file.write(read_at(source, at, wanted).ljust(wanted, b"\0"))
    return into / database.name


def mend_first_page(copy: Path, sound: Path) -> None:
    """Give a copy whose tables SQLite does not find what a sound database of this version begins with.

    First the header alone, then the whole page, which says where the tables begin: so it is in a database
    that was made by this version. Wrong places do no harm, since what is read there proves nothing.
    """
    page = int.from_bytes(read_at(sound, 16, 2), "big")
    for size in (_HEADER_BYTES, page):
        if _finds_tables(copy):
            return
        head = bytearray(read_at(sound, 0, size))
        head[28:32] = (copy.stat().st_size // page).to_bytes(4, "big")
        head[32:40] = bytes(8)  # no list of free pages: nothing will be written
        head[92:96] = head[24:28]  # the length counts as valid
        with copy.open("r+b") as file:
            file.write(head)


def _finds_tables(copy: Path) -> bool:
    with closing(dbapi2.connect(str(copy))) as connection:
        try:
            for name in TABLES:
                connection.execute(f'SELECT * FROM "{name}" LIMIT 0')
        except (dbapi2.DatabaseError, UnicodeDecodeError):
            return False
    return True


def rescue(copy: Path, rescued: Path) -> list[str]:
    """Copy what can be read of every table; returns a sentence for each that was not read to its end."""
    with closing(dbapi2.connect(str(rescued), isolation_level=None)) as connection:
        for name in TABLES:
            columns = ", ".join(f'"{column.name}"' for column in metadata.tables[name].columns)
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
    said, waiting = [], list(TABLES)
    while waiting:
        ended, waiting = _read(copy, rescued, waiting)
        said += ended
    return said


def _read(copy: Path, rescued: Path, names: list[str]) -> tuple[list[str], list[str]]:
    """One child's life: what it could not read, and the tables that are left for the next."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", reading.__name__, str(copy), str(rescued), *names],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        told, why = done.stdout, f"reading it ends the process ({done.returncode})"
    except subprocess.TimeoutExpired as late:
        told, why = bytes(late.stdout or b"").decode(), "reading it does not end"
    finished = [line.split("\t", 1) for line in told.splitlines() if "\t" in line]
    said = [f"{name}: {stopped}" for name, stopped in finished if stopped]
    left = names[len(finished) :]
    if left:
        said.append(f"{left[0]}: {why}")
    return said, left[1:]


def remove(folder: Path) -> None:
    """The copies are not needed any more."""
    shutil.rmtree(folder, ignore_errors=True)
