"""The data folder: who may read it, what it lies on, how much room there is, what state it is in."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app import sizes
from app.commands.checks.finding import Finding, fail, ok, warn
from app.settings import Settings
from storage.layout import nearest

_MOUNTS: Final = Path("/proc/self/mountinfo")
# Locks, shared memory and the order of writes are not to be had on these (DESIGN 3).
_NETWORK: Final = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "afs",
            "ceph",
            "9p",
            "virtiofs",
            "vboxsf",
            "drvfs",
        ),
        *("lustre", "gpfs", "glusterfs", "beegfs", "orangefs", "ocfs2", "gfs2"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.cephfs", "fuse.juicefs", "fuse.davfs"),
        *("fuse.s3fs", "fuse.mount-s3", "fuse.goofys", "fuse.gcsfuse", "fuse.rclone"),
        *("fuse.smbnetfs", "fuse.grpcfuse", "fuse.osxfs"),
    }
)
_FORGETFUL: Final = frozenset({"tmpfs", "ramfs"})
_WITHOUT_RIGHTS: Final = frozenset({"vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk"})
_MOST_FILES: Final = 10_000
_SHOWN: Final = 3


def permissions(folder: Path) -> Iterator[Finding]:
    """Only its owner may enter it, and that is whoever runs this."""
    if not folder.exists():
        yield _to_be_made(folder)
        return
    if not folder.is_dir():
        yield fail("data folder", f"{folder} is no folder: set STATEHOLD_DATA_DIR to one")
        return
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield fail(
            "data folder",
            f"{folder} cannot be read and written by user {os.geteuid()}: it belongs to user "
            f"{status.st_uid} and has mode {mode:04o}, or is mounted read-only",
        )
        return
    if mode & 0o077:
        yield fail(
            "data folder",
            f"{folder} has mode {mode:04o}, and others can reach prompts and states: "
            f"chmod 700 {folder}",
        )
    elif status.st_uid != os.geteuid():
        yield warn(
            "data folder",
            f"{folder} belongs to user {status.st_uid} and this runs as user {os.geteuid()}: run the "
            "service and its commands as the owner, or files of another appear in it",
        )
    else:
        yield ok("data folder", f"{folder}, mode {mode:04o}")
    yield from _files(folder, status.st_uid)


def backups(settings: Settings) -> Finding:
    """Whether a backup can be written where the settings want it."""
    from app.engine.backup import backup_dir, why_not_there

    if (why := why_not_there(settings)) is not None:
        return fail("backups", f"{why}: the service does not start")
    path = backup_dir(settings)
    at = nearest(path)
    if not os.access(at, os.W_OK | os.X_OK):
        return warn(
            "backups", f"{at} cannot be written by user {os.geteuid()}: no backup can be made"
        )
    return ok("backups", f"they go into {path}")


def file_system(folder: Path, mounts: str | None = None) -> Finding:
    """What the folder lies on.

    Args:
        mounts: as in /proc/self/mountinfo, which is read if it is not given.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return warn("file system", f"{_MOUNTS} cannot be read: keep the data on a local disk")
    kind, at = mounted(folder, mounts)
    said = f"{kind} at {at}"
    if kind in _NETWORK:
        return fail(
            "file system",
            f"{said} is a network file system, on which SQLite and LMDB lose data: move the data "
            "folder to a local disk",
        )
    if kind == "fuse" or kind.startswith("fuse."):
        return warn(
            "file system",
            f"{said} is served by a program: use a local disk unless its locks and shared memory are "
            "known to be right",
        )
    if kind in _FORGETFUL:
        return warn("file system", f"{said} lies in memory: nothing is left after a restart")
    if kind in _WITHOUT_RIGHTS:
        return warn("file system", f"{said} keeps no modes of files: others may read the data")
    if kind == "overlay":
        return warn(
            "file system", f"{said} goes with its container: put the data folder on a volume"
        )
    return ok("file system", said)


def mounted(path: Path, mounts: str) -> tuple[str, str]:
    """(kind, place) of the file system that a path lies on, by a text like /proc/self/mountinfo."""
    target = os.path.realpath(path)
    best = ("unknown", "?")
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        inside = target == place or target.startswith(place.rstrip("/") + "/")
        # Of two on one place the later hides the earlier.
        if inside and (best[1] == "?" or len(place) >= len(best[1])):
            best = (right.split(" ")[0], place)
    return best


def room(folder: Path, limits: Settings) -> Iterator[Finding]:
    """Free disk against the reserve, and against what the budget still allows.

    Args:
        limits: the settings with what was changed at run time.
    """
    budget_bytes, reserve_bytes = int(limits.budget_bytes), int(limits.free_disk_reserve_bytes)
    free = shutil.disk_usage(nearest(folder)).free
    said = f"{sizes.about(free)} are free"
    if free < reserve_bytes:
        yield fail(
            "free disk",
            f"{said}, less than free_disk_reserve_bytes ({sizes.about(reserve_bytes)}), so nothing "
            "is recorded: make room",
        )
        return
    to_come = max(0, budget_bytes - _held_bytes(folder))
    if to_come + reserve_bytes > free:
        fits = max(0, budget_bytes - (to_come + reserve_bytes - free))
        yield warn(
            "free disk",
            f"{said}, and budget_bytes ({sizes.about(budget_bytes)}) with the reserve would need "
            f"{sizes.about(to_come + reserve_bytes)}: recording stops before eviction begins; set it "
            f"to {sizes.about(fits)} or less",
        )
        return
    yield ok("free disk", f"{said}; the budget and the reserve fit")


def leftovers(folder: Path, backups: Path) -> Finding:
    """What was cut off and nobody has put away. Ask only while nobody uses the folder."""
    if (folder / "placing").is_dir():
        return warn(
            "leftovers",
            f"a restore into {folder} was cut off while it put the data in place: the next start "
            "finishes it",
        )
    names = [
        *folder.glob("spool-*"),
        *folder.glob("blocks/spool-*"),
        *folder.glob("restoring"),
        *folder.glob("instances/*.new"),
        *folder.glob("*.compact"),
        *folder.glob("blocks/*/*.compact"),
        *backups.glob(".*.partial"),
    ]
    if not names:
        return ok("leftovers", "nothing that was cut off")
    size = sum(_size(path) for path in names)
    return warn(
        "leftovers",
        f"{len(names)} files or folders of work that was cut off ({sizes.about(size)}), the first "
        f"{names[0]}: the next start or backup removes what it knows; remove the rest",
    )


def schema(database: Path) -> Finding:
    """The revision of the database against the one of this code."""
    from migrations import UNREADABLE, current, head, revisions

    if not database.exists():
        return ok("schema", "no data yet: the first start makes it")
    try:
        at = current(database)
    except UNREADABLE as error:
        return fail(
            "schema",
            f"{database} cannot be read as a database ({getattr(error, 'orig', error)}): "
            "`statehold restore` a backup, or `statehold salvage` what still verifies",
        )
    if at == head():
        return ok("schema", f"revision {at}, the one of this version")
    if at is None:
        return fail("schema", f"{database} is no database of Statehold: move it away")
    if at not in revisions():
        return fail(
            "schema",
            f"revision {at} is of a newer version: run that one, or restore a backup made before",
        )
    return warn(
        "schema",
        f"revision {at} is older than this version's {head()}: make a backup with the old version; "
        "the next start, or `statehold migrate`, brings it up to date",
    )


def _to_be_made(folder: Path) -> Finding:
    parent = nearest(folder)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        return fail("data folder", f"{folder} is not there and cannot be made in {parent}")
    return ok("data folder", f"{folder} is not there yet: the first start makes it")


def _files(folder: Path, owner: int) -> Iterator[Finding]:
    open_to_others, of_others = [], []
    for path in _walked(folder):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            continue
        if status.st_mode & 0o077:
            open_to_others.append(path)
        if status.st_uid != owner:
            of_others.append(path)
    if of_others:
        yield fail(
            "files",
            f"{_some(of_others)} belong to another user than the folder, whose server cannot write "
            f"them: chown -R {owner} {folder}",
        )
    elif open_to_others:
        yield warn(
            "files",
            f"{_some(open_to_others)} are open to others, whom only the folder keeps away: "
            f"chmod -R go= {folder}",
        )
    else:
        yield ok("files", "all belong to the folder's owner and are closed to others")


def _walked(folder: Path) -> Iterator[Path]:
    seen = 0
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            seen += 1
            if seen > _MOST_FILES:
                return
            path = Path(at) / name
            if path.is_symlink() or path.exists():  # what is gone since is no finding
                yield path


def _some(paths: list[Path]) -> str:
    names = ", ".join(str(path) for path in paths[:_SHOWN])
    return f"{names} and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else names


def _held_bytes(folder: Path) -> int:
    """Room that the block files take already."""
    return sum(_size(folder / "blocks" / name / "data.mdb") for name in ("large", "small"))


def _size(path: Path) -> int:
    """Bytes on the device of a file, or of all files in a folder."""
    try:
        if path.is_dir():
            return sum(_size(inside) for inside in path.iterdir())
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
