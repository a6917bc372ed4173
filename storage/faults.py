"""The note that a process leaves when its files end it, so that the next start does not run into the same.

LMDB maps its file and trusts its pages: one that is broken, cut off or unreadable can end whoever reads it
with a signal (SIGBUS, SIGSEGV, SIGABRT; FACTS E16), and no exception says so. The interpreter's fault handler
writes a few lines into `faults.log` in the data folder then: the names of functions, never what they worked
on. SIGKILL, a power failure or running out of memory leave no note: they say nothing about the files.

A clean stop puts the notes aside as `faults.old.log`. Until then every start examines the files first
(`storage/examining.py`), and after `MOST_FAULTS` it refuses even if nothing was found.
"""

from __future__ import annotations

import faulthandler
import os
from contextlib import suppress
from typing import IO, Final

from storage.errors import StoreDamaged
from storage.layout import DataFolder

MOST_FAULTS: Final = 3
_MARK: Final = b"Fatal Python error"
_MOST_READ_BYTES: Final = 1 << 20
_kept: list[IO[bytes]] = []  # the handler writes to a descriptor that must stay open


def note_faults(folder: DataFolder) -> None:
    """From now on a fault of this process is noted in the folder."""
    descriptor = os.open(
        folder.faults, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    file = os.fdopen(descriptor, "ab", buffering=0)
    faulthandler.enable(file, all_threads=False)
    for earlier in _kept:
        earlier.close()
    _kept[:] = [file]


def faults(folder: DataFolder) -> int:
    """How many processes were ended by a fault since the last clean stop."""
    try:
        with folder.faults.open("rb") as file:
            return file.read(_MOST_READ_BYTES).count(_MARK)
    except FileNotFoundError:
        return 0


def put_aside(folder: DataFolder) -> None:
    """The files were examined, used and left in order: what was noted before is only for people now.

    What was noted while they were used stays: the other workers of a server end in order too.
    """
    if faults(folder) and not _since_began(folder):
        with suppress(FileNotFoundError):
            folder.faults.rename(folder.faults.with_suffix(".old.log"))


def begin(folder: DataFolder) -> None:
    """A server begins: its workers can tell a fault of one of them from an older one. Under `alone`."""
    folder.serve_lock.write_text(str(faults(folder)))


def refuse_after_fault(folder: DataFolder) -> None:
    """What a worker asks that may have come in the place of one that was ended by a fault.

    Raises:
        StoreDamaged: there was one since the server began; the next start examines the files.
    """
    if _since_began(folder):
        raise StoreDamaged(
            f"a worker was ended by a fault while it used the files of {folder.path} (see "
            f"{folder.faults.name} there); the next start examines them"
        )


def _since_began(folder: DataFolder) -> bool:
    try:
        return faults(folder) > int(folder.serve_lock.read_text())
    except (FileNotFoundError, ValueError):
        return False
