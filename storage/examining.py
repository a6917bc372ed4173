"""Is a data folder fit to be opened? Asked in a child, so that no page, however broken, ends who asks.

Always: both stores are opened as a server opens them, with their first pages, and LMDB's list of free pages is
met by a write that is taken back. That is a few milliseconds whatever is held.

After a fault (`storage/faults.py`): every page of structure is proven too. LMDB's files are walked without LMDB
(`lmdb.verify`), which sees what a write would trip over, and SQLite compares its indexes with their tables. It
takes about as long as reading the structure pages, and the values' first pages, once.

Neither proves content: that is done when a row or a block is used.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Final

import lmdb
from lmdb import verify

from storage.blocks.lmdb import LmdbBlocks
from storage.errors import StorageError, StoreDamaged
from storage.faults import MOST_FAULTS, faults
from storage.layout import DataFolder
from storage.metadata.database import Database

_BRIEFLY_S: Final = 60.0
_THOROUGHLY_S: Final = 6 * 3600.0
_TOLD_BYTES: Final = 2000


def examine(folder: DataFolder) -> None:
    """Let nobody open a folder that would end him. Call before any thread is started, under `alone`.

    Raises:
        StoreDamaged: what was found.
    """
    noted = faults(folder)
    found = _in_child(folder, thorough=noted > 0)
    if not found and noted >= MOST_FAULTS:
        found = (
            f"nothing was found wrong, but {noted} processes were ended by a fault since the last clean "
            f"stop (remove {folder.faults} to try once more, and have the memory tested)"
        )
    if found:
        raise StoreDamaged(f"the files of {folder.path} are damaged: {found}")


def _in_child(folder: DataFolder, *, thorough: bool) -> str:
    """What is wrong, "" for nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(folder, writing, thorough=thorough)
    os.close(writing)
    told = b""
    deadline = time.monotonic() + (_THOROUGHLY_S if thorough else _BRIEFLY_S)
    try:
        while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = os.read(reading, _TOLD_BYTES)
            if not part:
                break
            told += part
        else:
            os.kill(child, signal.SIGKILL)
            told = b"reading them takes for ever"
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    if told:
        return told.decode(errors="replace")
    if os.WIFSIGNALED(status):
        return f"reading them ends the process (signal {os.WTERMSIG(status)})"
    return "" if status == 0 else "they cannot be read"


def _answer(folder: DataFolder, pipe: int, *, thorough: bool) -> None:
    """The child: says what is wrong and ends, without anything that its parent would have done."""
    code = 1
    with suppress(BaseException):
        # How it ended is told by the parent, once.
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)
        found = _opened(folder) or (_proven(folder) if thorough else "")
        os.write(pipe, found.encode()[:_TOLD_BYTES])
        code = 0
    os._exit(code)


def _opened(folder: DataFolder) -> str:
    try:
        database = Database(folder.database)
        with database.read() as connection:
            connection.exec_driver_sql("SELECT * FROM store").one()
        database.close()
        blocks = LmdbBlocks(folder.blocks)
        blocks.acked_commit()
        blocks.stats()
        blocks.try_writing()
        blocks.close()
    except (StorageError, lmdb.Error) as error:
        return getattr(error, "what", None) or str(error)
    return ""


def _proven(folder: DataFolder) -> str:
    for name in ("large", "small"):
        path = folder.blocks / name
        try:
            problems = verify.verify(str(path))  # type: ignore[no-untyped-call]
        except verify.VerifyError as error:
            problems = [str(error)]
        if problems:
            return f"{path.relative_to(folder.path)}: {problems[0]} ({len(problems)} findings)"
    database = Database(folder.database)
    try:
        with database.read() as connection:
            rows = connection.exec_driver_sql("PRAGMA integrity_check(5)").scalars().all()
    except StoreDamaged as error:
        return error.what
    finally:
        database.close()
    return "" if rows == ["ok"] else f"{folder.database.name}: {rows[0]} ({len(rows)} findings)"
