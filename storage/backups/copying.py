"""Making a backup: every state of one moment, with every block it owns, while the store goes on.

Both stores keep versions, so a moment is two open read transactions, and they must be of the same one:

1. `.NAME.partial` is made in the backup folder, whose lock is held from here on.
2. Under the SQL write lock a read transaction is begun in SQLite and one in each LMDB environment, then
   the lock is let go (`backup.after_moment`). Blocks are committed before the rows that own them become
   visible, so every block of a state that this SQLite snapshot shows is in the LMDB snapshots; and a block
   is deleted in LMDB only under the SQL write lock, after its rows lost their owners, so none was on its
   way out. What is evicted and reclaimed from then on stays in the snapshots: nothing has to be held off,
   and there is nothing that a crash could leave held off. The lock is held for the time of three `begin`s.
3. The database is copied by SQLite's backup of that snapshot (`backup.after_database`), and the copy is put in
   order: recordings under way, leases and unowned rows go, jobs that ran have ended. Its own
   figures must agree then, or there is no backup. The snapshot of the database is let go: only the log
   had to wait for it.
4. Every block that the copy owns is read from the LMDB snapshots, its checksum compared, and written into new
   environments (`backup.after_blocks`). A live state whose block is damaged or missing is quarantined in
   the copy and named in the result: a backup gives back exactly what it says, or says that it cannot.
   Pages that are freed meanwhile cannot be used again until the end: the files of a store that is
   written to grow by what is evicted while this goes on.
5. The files are made durable and digested, the manifest is written and made durable
   (`backup.before_manifest`, `backup.after_manifest`), and the folder gets its name by rename
   (`backup.after_rename`).

Crash before the rename: a folder whose name begins with a dot and that nobody takes for a backup; the next
backup or start of a server removes it. After: a whole backup. Whatever fails, a full disk included, removes it.

The service does this in a child process (`storage/backups/__main__.py`): a copy can then be stopped at any
moment by a signal, and a page broken so that reading it ends the process ends the child alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lmdb
from pysqlite3 import dbapi2
from sqlalchemy import func, select

from storage.backups import manifest as manifests
from storage.backups.manifest import DATABASE, FILES, BackupManifest
from storage.backups.tidying import quarantine_owners, tidy
from storage.backups.values import BlockWriter, check_room
from storage.blocks.lmdb import LmdbBlocks
from storage.clock import wall_ms
from storage.errors import (
    BackupDirUnusable,
    BackupExists,
    BackupRunning,
    DiskFull,
    StorageError,
    StoreUnusable,
    WriterFailed,
)
from storage.failpoints import failpoint
from storage.layout import DataFolder, sync
from storage.metadata import schema as t
from storage.metadata.database import Database

NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
NAME_RULE: Final = "it has 1 to 64 letters, digits, '.', '_' and '-', and does not begin with '.'"
_DATABASE_PAGES: Final = 256
_ALMOST_FULL_BYTES: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

# Called with (done, total) bytes, several times a second; may raise to stop.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Backup:
    """What was copied. `bad_digests` are the blocks for which `quarantined_here` states are out of service."""

    path: Path
    manifest: BackupManifest
    quarantined_here: int
    bad_digests: tuple[tuple[bytes, int], ...]


def back_up(
    folder: DataFolder,
    backup_dir: Path,
    name: str,
    *,
    version: str,
    reserve_bytes: int,
    progress: Progress,
) -> Backup:
    """Make the backup `name`; its schema must be the one of this code.

    Args:
        reserve_bytes: what must stay free on the device of the backups.

    Raises:
        BackupExists: there is one of that name.
        DiskFull: the device of the backups has no room.
        BackupRunning: another one is being made.
        BackupDirUnusable: nothing can be made in the folder of backups.
        Busy: the write lock was not free.
        StoreUnusable: there are no blocks yet, or the store's files are damaged in a way that leaves nothing
            to copy.
        ValueError: no name for a backup.
    """
    if NAME.fullmatch(name) is None:
        raise ValueError(NAME_RULE)
    if not all((folder.path / file).exists() for file in FILES):
        raise StoreUnusable(
            f"the data folder {folder.path} was never served: there is nothing to back up"
        )
    with alone(backup_dir):
        remove_partial(backup_dir)
        target = backup_dir / name
        if target.exists() or target.is_symlink():
            raise BackupExists(f"there is a backup {name}")
        partial = backup_dir / f".{name}.partial"
        try:
            partial.mkdir(mode=0o700)
        except OSError as error:
            raise _refused(backup_dir, error) from error
        try:
            made = _fill(folder, partial, version, reserve_bytes, progress)
            partial.rename(target)
        except BaseException as error:
            full = _is_full(error, partial)
            with suppress(OSError):
                shutil.rmtree(partial)
            if full:
                raise DiskFull("the device of the backups is full") from error
            if isinstance(error, lmdb.Error | dbapi2.DatabaseError):
                raise StoreUnusable(f"the store cannot be copied: {error}") from error
            raise
        failpoint("backup.after_rename")
        sync(backup_dir)
    return Backup(target, made.manifest, made.quarantined_here, made.bad_digests)


@contextmanager
def alone(backup_dir: Path) -> Iterator[None]:
    """The one who makes a backup here.

    Raises:
        BackupRunning: somebody is.
        BackupDirUnusable: the folder cannot be made or written.
        DiskFull: its device has no room for that.
    """
    try:
        backup_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(
            backup_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
    except OSError as error:
        raise _refused(backup_dir, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupRunning("another backup is being made") from error
        yield
    finally:
        os.close(descriptor)


def remove_partial(backup_dir: Path) -> None:
    """Remove what backups that were cut off have left, or whatever has such a name. Call under `alone`.

    A link goes, and what it leads to stays. What cannot be removed is met by the backup of its name.
    """
    for path in backup_dir.glob(".*.partial"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def _refused(backup_dir: Path, error: OSError) -> StorageError:
    """What nothing can be made in a folder of backups means."""
    if error.errno in _FULL:
        return DiskFull("the device of the backups is full")
    return BackupDirUnusable(
        f"the folder of backups {backup_dir} cannot be used: {error.filename}: {error.strerror}"
    )


def _fill(
    folder: DataFolder, partial: Path, version: str, reserve_bytes: int, progress: Progress
) -> Backup:
    failpoint("backup.before_moment")
    copied = partial / DATABASE
    with ExitStack() as stack:
        with ExitStack() as of_database:
            # Opened under the start lock: a compaction, which holds it, renames other files over these.
            with folder.starting():
                database = Database(folder.database)
                of_database.callback(database.close)
                blocks = LmdbBlocks(folder.blocks, readonly=True)
                stack.callback(blocks.close)
                source = dbapi2.connect(str(folder.database), isolation_level=None, timeout=5)
                of_database.callback(source.close)
            with database.write(durable=False):
                source.execute("BEGIN")
                source.execute("SELECT id FROM store").fetchone()  # begun by the first reading
                value_of = stack.enter_context(blocks.moment())
            failpoint("backup.after_moment")
            (data_bytes,) = source.execute(
                "SELECT coalesce(sum(stored_bytes), 0) FROM block WHERE refs > 0"
            ).fetchone()
            total = data_bytes + folder.database.stat().st_size
            check_room(partial, total, reserve_bytes)
            _copy_database(source, copied, lambda done: progress(done, total))
        failpoint("backup.after_database")
        copy = Database(copied)
        try:
            tidy(copy)
            done = copied.stat().st_size
            writer = BlockWriter(copy, LmdbBlocks(partial / "blocks"), partial, reserve_bytes)
            stack.callback(writer.blocks.close)
            count, bad = writer.copy_all(
                value_of, lambda size: progress(done + size, max(total, done + size))
            )
            quarantined = quarantine_owners(copy, [digest for digest, _ in bad])
            with copy.read() as connection:
                schema = str(
                    connection.exec_driver_sql(
                        "SELECT version_num FROM alembic_version"
                    ).scalar_one()
                )
                statuses: dict[str, int] = {
                    str(status): int(number)
                    for status, number in connection.execute(
                        select(t.state.c.status, func.count()).group_by(t.state.c.status)
                    )
                }
                commit = int(connection.execute(select(t.store.c.commit_counter)).scalar_one())
        finally:
            copy.close()  # the last to close: no log is left beside the copy
    failpoint("backup.after_blocks")
    for environment in ("large", "small"):
        (partial / "blocks" / environment / "lock.mdb").unlink()
    for name in FILES:
        (partial / name).chmod(0o600)
        sync(partial / name)
        sync((partial / name).parent)
    sync(partial / "blocks")
    found = BackupManifest(
        version,
        schema,
        wall_ms(),
        statuses.get("live", 0),
        statuses.get("quarantined", 0),
        count,
        commit,
        tuple(manifests.entry(partial, name) for name in FILES),
    )
    failpoint("backup.before_manifest")
    manifests.write(partial, found)
    failpoint("backup.after_manifest")
    return Backup(partial, found, quarantined, tuple(bad))


def _copy_database(
    source: dbapi2.Connection, copied: Path, progress: Callable[[int], None]
) -> None:
    descriptor = os.open(copied, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.close(descriptor)
    (page_bytes,) = source.execute("PRAGMA page_size").fetchone()
    target = dbapi2.connect(str(copied), isolation_level=None)
    try:
        # The copy is made durable at the end; until then nobody needs what a crash leaves.
        target.execute("PRAGMA synchronous=OFF")
        source.backup(
            target,
            pages=_DATABASE_PAGES,
            sleep=0,
            progress=lambda _, left, pages: progress((pages - left) * page_bytes),
        )
    finally:
        target.close()


def _is_full(error: BaseException, partial: Path) -> bool:
    """Whether an error is that of a full device. Asked before anything is given back."""
    if isinstance(error, lmdb.DiskError):
        return True
    if getattr(error, "errno", None) in _FULL:
        return True
    if not isinstance(error, WriterFailed | lmdb.Error | dbapi2.Error | OSError):
        return False
    # SQLite and LMDB report a short write, or no room for a log's index, as an I/O error.
    return "disk is full" in str(error) or shutil.disk_usage(partial).free < _ALMOST_FULL_BYTES
