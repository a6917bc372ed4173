"""Giving space back: each file of a stopped data folder written anew without its free pages.

LMDB and SQLite use freed pages again but never shorten their files. Compaction copies what lives into a
file beside, and puts that in the place of the old one:

1. `recover`, `sweep` if the last stop was not clean, and `reclaim`, as a start would: what nobody owns
   is not worth copying.
2. For each of the two LMDB files and the database (`compact.before_copy`): copy it compacted
   (`compact.after_copy`), sync the copy (`compact.before_rename`), rename it over the old file
   (`compact.after_rename`), sync the folder.

Crash at any point: the old file or the new one has the name, and both hold the same; rename is atomic
and the copy is durable before it. What else is left is a copy without a name that anybody reads, and
the next compaction or start removes it. Before its copy is made the database leaves WAL mode, so that
no log can be found later that belongs to another file; whoever opens it next enters WAL mode again.

A server compacts between two of its apps (`app/server.py`): the folder stays its own, and whoever
connects meanwhile waits.

Nobody else may have the folder open meanwhile: a process that has one of the files would go on with
the old one, and LMDB's lock file speaks of the old file's transactions. So the lock of a server is held
(`serve.lock`), no instance may be alive, the start lock keeps away whoever comes, and LMDB's own lock
shows whether anybody who came before is still reading.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lmdb
from pysqlite3 import dbapi2

from storage.errors import Busy, DiskFull, InUse, NoRoom, StorageError, StoreUnusable, WriterFailed
from storage.failpoints import failpoint
from storage.layout import DataFolder
from storage.recovery import Recovery, copy_place, mark_clean, recover, remove_copies
from storage.store import Store

_ENVIRONMENTS: Final = ("large", "small")
_MAP_BYTES: Final = 1 << 40
# Room beside the largest copy: tree pages that the estimate does not know, and the logs of step 1.
_MARGIN_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class FileSize:
    """One file, relative to the data folder, before and after."""

    name: str
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done. `recovered` says what the folder's last stop had left to do."""

    files: tuple[FileSize, ...]
    reclaimed_blocks: int
    recovered: Recovery
    seconds: float

    @property
    def before_bytes(self) -> int:
        """All files together, before."""
        return sum(file.before_bytes for file in self.files)

    @property
    def after_bytes(self) -> int:
        """All files together, after."""
        return sum(file.after_bytes for file in self.files)


def compact(folder: DataFolder) -> Compaction:
    """Compact the files of a stopped data folder; its schema must be up to date.

    Cost: reads and writes every live byte once, one file after another.

    Raises:
        StoreUnusable: a server or another process is using the folder, there is not enough room for
            the largest copy, or a file cannot be read; every file is as it was or compacted.
    """
    if not folder.database.exists():
        raise StoreUnusable(f"there is no data in {folder.path}")
    with folder.alone("a server is using it: stop it, or use `statehold compact --online`"):
        return compact_held(folder)


def lacking_bytes(folder: DataFolder, largest_bytes: int) -> int:
    """How much free disk a compaction lacks whose largest copy has that size, 0 for none."""
    room = folder.free_bytes() + folder.ballast_bytes()
    return max(0, largest_bytes + _MARGIN_BYTES - room)


def compact_held(folder: DataFolder, goes_on: Callable[[], bool] = lambda: True) -> Compaction:
    """As `compact`, for who holds the folder already and has closed its stores.

    Args:
        goes_on: asked before each file and each step of reclaiming; False ends it there.

    Raises:
        StoreUnusable: as `compact`.
        CompactionStopped: `goes_on` said so; every file is as it was or compacted.
    """
    try:
        return _compact(folder, goes_on)
    except (lmdb.Error, dbapi2.Error, OSError, StorageError) as error:
        if isinstance(error, StoreUnusable):
            raise
        raise StoreUnusable(f"{folder.path} could not be compacted: {error}") from error


class CompactionStopped(Exception):
    """Somebody wanted the end before all files were compacted."""


def _compact(folder: DataFolder, goes_on: Callable[[], bool]) -> Compaction:
    started = time.monotonic()
    with folder.starting():
        remove_copies(folder)
        paths = [
            *(folder.blocks / name / "data.mdb" for name in _ENVIRONMENTS),
            folder.database,
        ]
        before = [_bytes_of(path) for path in paths]
        recovered, reclaimed = _drop_garbage(folder, goes_on)
        _refuse_readers(folder)
        _check_room(folder)
        copies = (_copy_environment, _copy_environment, _copy_database)
        for path, copy in zip(paths, copies, strict=True):
            _stop_unless(goes_on)
            _replace(path, copy)
        sizes = tuple(
            FileSize(str(path.relative_to(folder.path)), size, _bytes_of(path))
            for path, size in zip(paths, before, strict=True)
        )
    return Compaction(sizes, reclaimed, recovered, time.monotonic() - started)


def _stop_unless(goes_on: Callable[[], bool]) -> None:
    if not goes_on():
        raise CompactionStopped


def _drop_garbage(folder: DataFolder, goes_on: Callable[[], bool]) -> tuple[Recovery, int]:
    """Step 1; leaves the folder as a clean stop would."""
    if folder.free_bytes() < _MARGIN_BYTES:
        folder.give_up_ballast()  # deleting needs room too
    store = Store(folder)
    try:
        if others := store.instance.others_alive():
            raise StoreUnusable(
                f"{len(others)} processes are using the data folder {folder.path}: stop them first"
            )
        recovered = recover(store)
        while store.expire_recordings():
            pass
        reclaimed = 0
        while step := store.reclaim(4096):
            reclaimed += step
            _stop_unless(goes_on)
        after: bytes | None = None
        while recovered.needs_sweep and (after := store.sweep(after, 4096)) is not None:
            _stop_unless(goes_on)
        mark_clean(store)
    except (Busy, DiskFull, WriterFailed) as error:
        raise StoreUnusable(
            f"what nobody owns could not be removed from {folder.path}, nothing was compacted: {error}"
        ) from error
    finally:
        store.close()
    return recovered, reclaimed


def _refuse_readers(folder: DataFolder) -> None:
    """LMDB holds byte 0 of its lock file for as long as an environment is open (mdb.c, 0.9.36).

    Asked only while this process has no environment open: closing the file would let go of its locks.
    """
    for name in _ENVIRONMENTS:
        descriptor = os.open(folder.blocks / name / "lock.mdb", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError) as error:
            raise InUse(
                f"another process is reading the data folder {folder.path} (a check?): "
                "wait until it has ended"
            ) from error
        finally:
            os.close(descriptor)


def _check_room(folder: DataFolder) -> None:
    """One copy at a time lies beside its original, so the largest one decides.

    Raises:
        NoRoom: there is less room, even with the ballast given up.
    """
    largest = max(
        *(_live_bytes(folder.blocks / name) for name in _ENVIRONMENTS),
        _bytes_of(folder.database),
    )
    if lacking := lacking_bytes(folder, largest):
        raise NoRoom(
            f"compacting needs {largest + _MARGIN_BYTES:,} bytes of free disk for the largest copy, "
            f"{lacking:,} more than there are: make room, or evict states first"
        )
    if folder.free_bytes() < largest + _MARGIN_BYTES:
        folder.give_up_ballast()


def _live_bytes(environment: Path) -> int:
    with _environment(environment) as env:
        stat = env.stat()
    pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return int(pages * stat["psize"])


def _replace(path: Path, copy: Callable[[Path, Path], None]) -> None:
    """Step 2 for one file."""
    place = copy_place(path)
    failpoint("compact.before_copy")
    try:
        place.mkdir(mode=0o700)
        copied = place / path.name
        copy(path, copied)
        failpoint("compact.after_copy")
        copied.chmod(0o600)
        _sync(copied)
        failpoint("compact.before_rename")
        copied.rename(path)
    except BaseException as error:
        with suppress(OSError):
            shutil.rmtree(place)
        if not isinstance(error, lmdb.Error | dbapi2.Error | OSError):
            raise  # Ctrl-C of the command
        raise StoreUnusable(f"{path} could not be compacted and is as it was: {error}") from error
    failpoint("compact.after_rename")
    _sync(path.parent)
    shutil.rmtree(place)


def _copy_environment(path: Path, copied: Path) -> None:
    with _environment(path.parent) as env:
        env.copy(str(copied.parent), compact=True)
        entries = env.stat()["entries"]
    with _environment(copied.parent, lock=False) as env:
        found = env.stat()["entries"]
    if found != entries:
        raise lmdb.CorruptedError(f"the copy holds {found} values of {entries}")


def _copy_database(path: Path, copied: Path) -> None:
    connection = dbapi2.connect(str(path), timeout=1, isolation_level=None)
    try:
        # Held from here on. A database that leaves WAL mode has no log beside it any more, and it
        # cannot leave it while anybody else has it open.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        if connection.execute("PRAGMA journal_mode=DELETE").fetchone() != ("delete",):
            raise dbapi2.OperationalError("another process has the database open")
        connection.execute("VACUUM INTO ?", (str(copied),))
    finally:
        connection.close()


@contextmanager
def _environment(folder: Path, *, lock: bool = True) -> Iterator[lmdb.Environment]:
    env = lmdb.open(
        str(folder),
        map_size=_MAP_BYTES,
        readonly=True,
        create=False,
        lock=lock,
        max_dbs=1,
    )
    try:
        yield env
    finally:
        env.close()


def _bytes_of(path: Path) -> int:
    """The file and, for a database, its log."""
    total = 0
    for part in (path, path.with_name(path.name + "-wal")):
        with suppress(FileNotFoundError):
            total += part.stat().st_size
    return total


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
