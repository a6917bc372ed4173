"""The data folder: where each file lies, who may read it, and which processes are using it.

    metadata.db (+ -wal, -shm)   SQLite
    blocks/large, blocks/small   LMDB environments
    instances/<id>.lock          one per running process, locked while it lives; holds its notice
    serve.lock                   held by the one server, or a compaction
    start.lock                   held while a process migrates or recovers
    restoring, placing           what a restore has copied, and what it has decided to put in place
    backups                      made by us, unless the settings name another folder
    faults.log (faults.old.log)  what ended processes that used the files (`storage/faults.py`)
    probe                        written and removed to see whether a failed disk works again
    ballast                      room that can be given up when the disk is full

Folders are 0700 and files 0600. No text from a request ever becomes a path here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from blake3 import blake3

from storage.errors import DiskFull, StoreUnusable
from storage.failpoints import failpoint

# Length and CRC-32 in front of what an instance publishes; together they fit into a page.
_NOTICE: Final = Struct("<II")
_MOST_NOTICE_BYTES: Final = 4000
_NOTICE_ATTEMPTS: Final = 5
_PROBE_BYTES: Final = 64 << 10


class DataFolder:
    """Paths of one data folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "metadata.db"
        self.blocks = path / "blocks"
        self.instances = path / "instances"
        self.start_lock = path / "start.lock"
        self.serve_lock = path / "serve.lock"
        self.faults = path / "faults.log"
        self.ballast = path / "ballast"
        self.restoring = path / "restoring"
        self.placing = path / "placing"

    def prepare(self) -> None:
        """Make the folders, readable by the owner only.

        Raises:
            StoreUnusable: the folder cannot be made or written.
        """
        if self.placing.is_dir():
            with self.alone("a restore into it is under way"):
                self.finish_restore()
        try:
            for folder in (self.path, self.blocks, self.instances):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
        except OSError as error:
            raise StoreUnusable(
                f"the data folder {self.path} cannot be used: {error.strerror}"
            ) from error

    def finish_restore(self) -> None:
        """Put what a restore has decided on in the place of what was there. Call under `alone`.

        The old database goes first and the new one comes last, so that at no moment a database stands
        beside blocks of another. Each step is done once, however often this is cut off and begun again.
        """
        database = self.placing / self.database.name
        if database.exists():
            for end in ("-wal", "-shm", ""):
                self.database.with_name(self.database.name + end).unlink(missing_ok=True)
            sync(self.path)
            failpoint("restore.after_removal")
        blocks = self.placing / self.blocks.name
        if blocks.exists():
            if self.blocks.exists():
                shutil.rmtree(self.blocks)
            blocks.rename(self.blocks)
            sync(self.path)
            failpoint("restore.after_blocks")
        if database.exists():
            # What is put in place was proven; what was noted is about what it replaces.
            self.faults.unlink(missing_ok=True)
            database.rename(self.database)
            sync(self.path)
            failpoint("restore.after_database")
        shutil.rmtree(self.placing)

    def free_bytes(self) -> int:
        """Bytes an ordinary user may still write on the device."""
        return shutil.disk_usage(self.path).free

    def takes_writes(self) -> bool:
        """Whether the device takes a write and a sync at this moment."""
        probe = self.path / "probe"
        try:
            descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, bytes(_PROBE_BYTES))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            probe.unlink()
        except OSError:
            return False
        return True

    @contextmanager
    def alone(self, otherwise: str) -> Iterator[None]:
        """Whoever serves or rewrites the folder is the only one; a server's workers are its own.

        Raises:
            StoreUnusable: somebody is; `otherwise` says what to tell.
        """
        descriptor = os.open(self.serve_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreUnusable(f"the data folder {self.path}: {otherwise}") from error
            yield
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Whether somebody serves or rewrites the folder. Writes nothing."""
        return _is_locked(self.serve_lock)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Only one process at a time migrates or recovers."""
        descriptor = os.open(self.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def keep_ballast(self, size_bytes: int, reserve_bytes: int) -> None:
        """Set room aside if the device has it to spare beyond the reserve."""
        if size_bytes <= 0 or self.ballast_bytes() >= size_bytes:
            return
        if self.free_bytes() < size_bytes + reserve_bytes:
            return
        descriptor = os.open(self.ballast, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except OSError:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def give_up_ballast(self) -> bool:
        """Free the room set aside; True if there was any."""
        had = self.ballast_bytes() > 0
        self.ballast.unlink(missing_ok=True)
        return had

    def ballast_bytes(self) -> int:
        """Room set aside."""
        try:
            return self.ballast.stat().st_blocks * 512
        except FileNotFoundError:
            return 0


class Instance:
    """This process's place among those that use the folder.

    The lock file is locked (flock) for as long as the process lives, so whether an instance is alive
    can be asked of the kernel and neither a reused pid nor a clock can fool it.
    """

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self.name = f"{os.getpid()}-{time.time_ns():x}"
        # A folder that a backup was restored into has none before it is served.
        folder.instances.mkdir(mode=0o700, exist_ok=True)
        self._path = folder.instances / f"{self.name}.lock"
        # Locked before it has its name: nobody may meet the file unlocked and take us for dead.
        unnamed = self._path.with_suffix(".new")
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(self._path)

    def others_alive(self) -> set[str]:
        """Names of the other running instances; lock files of dead ones are removed."""
        alive = set()
        for path in self._folder.instances.glob("*.lock"):
            if path == self._path:
                continue
            if _is_locked(path):
                alive.add(path.stem)
            else:
                path.unlink(missing_ok=True)
        return alive

    def publish(self, notice: bytes) -> None:
        """Let the other instances read this, in place of what was published before.

        It is kept in the lock file, so that it goes with the process however that ends. It is not made
        durable, and it says nothing after the process.

        Args:
            notice: at most 4,000 bytes.

        Raises:
            DiskFull: the file could not be written; what stood there before may be unreadable.
        """
        if len(notice) > _MOST_NOTICE_BYTES:
            raise ValueError(f"a notice has at most {_MOST_NOTICE_BYTES} bytes")
        try:
            os.pwrite(self._descriptor, _NOTICE.pack(len(notice), crc32(notice)) + notice, 0)
        except OSError as error:
            raise DiskFull("the instance's file could not be written") from error

    def notices(self) -> dict[str, bytes]:
        """What the other running instances have published, by name; of one that has nothing, none."""
        found = {}
        for name in self.others_alive():
            notice = _read_notice(self._folder.instances / f"{name}.lock")
            if notice is not None:
                found[name] = notice
        return found

    def leave(self) -> None:
        """The process stops using the folder."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def in_use(folder: DataFolder) -> bool:
    """Whether any process has the folder's store open as an instance."""
    return any(_is_locked(path) for path in folder.instances.glob("*.lock"))


def instances(folder: DataFolder) -> set[str]:
    """Names of those that have the folder's store open as an instance."""
    return {path.stem for path in folder.instances.glob("*.lock") if _is_locked(path)}


def instance_digest(name: str) -> str:
    """An instance's name as others may know it: it tells two apart, and no process id."""
    return blake3(f"statehold instance {name}".encode()).hexdigest(length=16)


def running_processes(folder: DataFolder) -> list[int]:
    """Ids of the processes that have the folder's store open, as far as this one may look at them.

    The name of an instance tells an id, but of its own machine or container, where it may be
    another's here: so it counts only if that process has this very database open.
    """
    found = []
    for path in folder.instances.glob("*.lock"):
        number = path.stem.partition("-")[0]
        if number.isdigit() and _is_locked(path) and _has_open(int(number), folder.database):
            found.append(int(number))
    return sorted(found)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_notice(path: Path) -> bytes | None:
    # No lock: a notice that is being written just then has a wrong checksum, and is read again.
    for _ in range(_NOTICE_ATTEMPTS):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) < _NOTICE.size:
            return None
        size, checksum = _NOTICE.unpack_from(content)
        notice = content[_NOTICE.size : _NOTICE.size + size]
        if crc32(notice) == checksum:
            return notice
    return None


def _has_open(pid: int, path: Path) -> bool:
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
        wanted = path.stat()
    except OSError:
        return False
    for file in files:
        with suppress(OSError):
            if os.path.samestat(file.stat(), wanted):
                return True
    return False


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def nearest(path: Path) -> Path:
    """The path, or the nearest one above it that is there, be it a folder or not."""
    return next(
        (at for at in (path.absolute(), *path.absolute().parents) if os.path.lexists(at)), Path("/")
    )
