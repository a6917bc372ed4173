"""A component on its way whose blocks cannot be cut before all of it is there.

A token window takes rows from every run, and the last run comes last. So the bytes go into a file
without a name in the data folder, and the windows are gathered from a mapping of it. Written and read
back within moments it hardly reaches the device (256 MiB in 0.06 to 0.07 s, as long as into fresh
memory, Linux 6, ext4), and however large the component, the process holds no more than the windows
it is working on.

The file is not trusted: what was gathered from it counts only if, read once more from the beginning,
it still has the digest that the bytes had when they arrived (`digest`).
"""

from __future__ import annotations

import errno
import mmap
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from storage.errors import DiskFull

_STEP_BYTES: Final = 4 << 20


class Spool:
    """Written in order, then read anywhere. Its methods are for threads, one at a time until mapped.

    Closing gives the room on the device back at once, whoever still refers to the object: an error on
    its way up refers to every frame it passed. A thread that is at work at that moment comes first.
    """

    def __init__(self, folder: Path) -> None:
        # Without a name from the beginning where the file system can do that: nothing of it is left
        # after a crash.
        self._file = tempfile.TemporaryFile(dir=folder, prefix="spool-", buffering=0)  # noqa: SIM115
        self._map: mmap.mmap | None = None
        self._users_lock = threading.Lock()
        self._users = 0
        self._over = False

    def write(self, piece: memoryview) -> None:
        """Append.

        Raises:
            DiskFull: the device has no room for it.
        """
        with self._in_use():
            try:
                while piece:
                    piece = piece[self._file.write(piece) :]
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise DiskFull("no room to gather the component") from error
                raise

    @contextmanager
    def mapped(self) -> Iterator[memoryview]:
        """All of it; pages come and go with the page cache. Not to be looked at afterwards."""
        with self._in_use():
            with self._users_lock:
                if self._map is None:
                    self._map = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
            yield memoryview(self._map)

    def let_go(self) -> None:
        """Take the pages read so far off the process's account; they come back when read."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def digest(self) -> bytes:
        """BLAKE3-256 of what a reader finds in it."""
        hasher = blake3()
        with self.mapped() as view:
            for start in range(0, len(view), _STEP_BYTES):
                hasher.update(view[start : start + _STEP_BYTES])
                self.let_go()
        return hasher.digest()

    def close(self) -> None:
        """Nothing of it is needed any more."""
        with self._users_lock:
            self._over = True
            if not self._users:
                self._end()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._users_lock:
            if self._over:
                raise ValueError("the spool is closed")
            self._users += 1
        try:
            yield
        finally:
            with self._users_lock:
                self._users -= 1
                if self._over and not self._users:
                    self._end()

    def _end(self) -> None:
        # A mapping that an error still refers to would keep the file's room.
        with suppress(OSError):
            self._file.truncate(0)
        self._file.close()
