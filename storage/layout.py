"""The data folder: where each file lies, who may read it, and which processes are using it.

    metadata.db (+ -wal, -shm)   SQLite
    blocks/large, blocks/small   LMDB environments
    instances/<id>.lock          one per running process, locked while it lives
    start.lock                   held while a process migrates or recovers
    ballast                      room that can be given up when the disk is full

Folders are 0700 and files 0600. No text from a request ever becomes a path here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import StoreUnusable


class DataFolder:
    """Paths of one data folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "metadata.db"
        self.blocks = path / "blocks"
        self.instances = path / "instances"
        self.start_lock = path / "start.lock"
        self.ballast = path / "ballast"

    def prepare(self) -> None:
        """Make the folders, readable by the owner only.

        Raises:
            StoreUnusable: the folder cannot be made or written.
        """
        try:
            for folder in (self.path, self.blocks, self.instances):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
        except OSError as error:
            raise StoreUnusable(
                f"the data folder {self.path} cannot be used: {error.strerror}"
            ) from error

    def free_bytes(self) -> int:
        """Bytes an ordinary user may still write on the device."""
        return shutil.disk_usage(self.path).free

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
        if size_bytes <= 0 or self._ballast_bytes() >= size_bytes:
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
        had = self._ballast_bytes() > 0
        self.ballast.unlink(missing_ok=True)
        return had

    def _ballast_bytes(self) -> int:
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

    def leave(self) -> None:
        """The process stops using the folder."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


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
