"""Bringing a backup back: proven in full beside what is there, then put in its place, or nothing at all.

1. The manifest is read and proven; a backup of a schema that this code does not know is refused.
2. Into `restoring` in the folder (`restore.before_copy`) every file is copied and compared with its length
   and digest on the way (`restore.after_copy`). The copy is brought to this schema.
3. The caller's proof is asked for: the integrity check, and every block read (`restore.after_proof`).
4. The copy is made durable and `restoring` is renamed `placing`: that is the decision
   (`restore.after_decision`).
5. The old database goes, the new blocks come, the new database comes (`restore.after_removal`, `.after_blocks`,
   `.after_database`; `DataFolder.finish_restore`).

Crash before the decision: what was there is there as it was, and `restoring` is removed by the next restore or
start. After it: whoever uses the folder next (a start, a restore, `statehold migrate`) finishes step 5 first.
So there is no moment at which a database could meet blocks of another.

It works inside the folder, and so also where the folder is a mount point or holds the backups themselves. Only
the database and the blocks are replaced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from storage.backups import manifest as manifests
from storage.backups.manifest import DATABASE, FILES, BackupManifest, FileEntry
from storage.errors import BackupDamaged, StoreUnusable
from storage.failpoints import failpoint
from storage.layout import DataFolder, in_use, sync

_PIECE_BYTES: Final = 4 << 20
_MARGIN_BYTES: Final = 64 << 20
# What may lie in a folder that counts as empty.
_OURS: Final = frozenset(
    {"backups", "serve.lock", "start.lock", "instances", "restoring", "placing"}
)


def restore(
    source: Path,
    folder: DataFolder,
    *,
    replace: bool,
    known: Collection[str],
    upgrade: Callable[[Path], None],
    prove: Callable[[Path], list[str]],
    progress: Callable[[int, int], None],
) -> BackupManifest:
    """Put a backup into a data folder.

    Args:
        replace: also where the folder holds something.
        known: revisions of the schema that `upgrade` can bring to the newest.
        prove: gets a folder with the copied files; returns findings.
        progress: called with (done, total) bytes of the copying.

    Raises:
        BackupDamaged: what is damaged; the folder is as it was.
        StoreUnusable: the backup is of a newer version, the folder is in use or not empty, or there is
            too little room; the folder is as it was.
    """
    manifest = manifests.read(source)
    if manifest.schema not in known:
        raise StoreUnusable(
            f"{source} was made by a newer version ({manifest.version}, schema {manifest.schema}): "
            "restore it with that version"
        )
    with _made(folder.path), folder.alone("a server is using it: stop it first"):
        if in_use(folder):
            raise StoreUnusable(
                f"the data folder {folder.path} is in use: stop its processes first"
            )
        if folder.placing.is_dir():
            folder.finish_restore()
        if not replace and (held := _held(folder)):
            raise StoreUnusable(
                f"{folder.path} is not empty (it holds {held}): give --replace to replace its data"
            )
        shutil.rmtree(folder.restoring, ignore_errors=True)
        if shutil.disk_usage(folder.path).free < manifest.size_bytes + _MARGIN_BYTES:
            raise StoreUnusable(
                f"restoring needs {manifest.size_bytes + _MARGIN_BYTES:,} bytes of free disk in "
                f"{folder.path}"
            )
        failpoint("restore.before_copy")
        try:
            _copy(source, folder.restoring, manifest, progress)
            failpoint("restore.after_copy")
            upgrade(folder.restoring / DATABASE)
            findings = prove(folder.restoring)
            if findings:
                raise BackupDamaged(
                    f"{source} does not hold what it should ({len(findings)} findings): "
                    + "; ".join(findings[:5])
                )
            failpoint("restore.after_proof")
            _make_durable(folder.restoring)
            folder.restoring.rename(folder.placing)
        except BaseException as error:
            shutil.rmtree(folder.restoring, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreUnusable(
                    f"{source} could not be copied into {folder.path}: {error.strerror}"
                ) from error
            raise
        sync(folder.path)
        failpoint("restore.after_decision")
        folder.finish_restore()
    return manifest


@contextmanager
def _made(path: Path) -> Iterator[None]:
    """The folder is there; what had to be made for it goes again if nothing comes of it."""
    missing = []
    at = path
    while not at.exists():
        missing.append(at)
        at = at.parent
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnusable(f"the folder {path} cannot be made: {error.strerror}") from error
    before = {entry.name for entry in path.iterdir()}
    try:
        yield
    except BaseException:
        for name in ("serve.lock", "start.lock"):
            if name not in before:
                (path / name).unlink(missing_ok=True)
        with suppress(OSError):
            for made in missing:
                made.rmdir()
        raise


def _held(folder: DataFolder) -> str:
    names = sorted(entry.name for entry in folder.path.iterdir() if entry.name not in _OURS)
    return ", ".join(names[:3])


def _copy(
    source: Path, into: Path, manifest: BackupManifest, progress: Callable[[int, int], None]
) -> None:
    """Step 2; names every damaged file, not only the first."""
    done = 0
    damaged = []
    for entry in manifest.files:
        (into / entry.name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        started = done
        if not (source / entry.name).is_file():
            there = os.path.lexists(source / entry.name)
            damaged.append(f"{entry.name} is {'no file' if there else 'missing'}")
            continue
        found = _copy_file(
            source / entry.name,
            into / entry.name,
            lambda size, at=started: progress(at + size, manifest.size_bytes),  # type: ignore[misc]
        )
        if found.bytes != entry.bytes:
            damaged.append(f"{entry.name} has {found.bytes:,} bytes instead of {entry.bytes:,}")
        elif found.blake3 != entry.blake3:
            damaged.append(f"the bytes of {entry.name} are not those that were written")
        done += entry.bytes
    if damaged:
        raise BackupDamaged(f"{source} is damaged: " + "; ".join(damaged))


def _copy_file(source: Path, target: Path, progress: Callable[[int], None]) -> FileEntry:
    digest, size = blake3(), 0
    with source.open("rb") as reading, target.open("xb") as writing:
        target.chmod(0o600)
        while piece := reading.read(_PIECE_BYTES):
            digest.update(piece)
            writing.write(piece)
            size += len(piece)
            progress(size)
    return FileEntry(target.name, size, digest.hexdigest())


def _make_durable(folder: Path) -> None:
    for environment in ("large", "small"):
        (folder / "blocks" / environment / "lock.mdb").unlink(missing_ok=True)
    for name in FILES:
        sync(folder / name)
        sync((folder / name).parent)
    sync(folder / "blocks")
