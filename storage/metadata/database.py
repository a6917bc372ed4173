"""SQLite as this service uses it: one way to read, one way to write.

Invariants (FACTS 3.D): WAL, FULL at every commit that an answer or an LMDB delete relies on, a write
transaction begins IMMEDIATE and is the only kind that writes, a read never becomes a write, and no
transaction is open while anybody waits for the network. Must not know what is in the tables.

`write(durable=False)` commits with synchronous=NORMAL: kill -9 loses nothing, power loss may. It is
for rows whose loss leaves only work to redo (ownership ahead of blocks, leases, touches). A later FULL
commit syncs the whole WAL, and with it everything before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pysqlite3 import dbapi2
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, NoResultFound, OperationalError
from sqlalchemy.pool import QueuePool

from storage.errors import Busy, DiskFull, StoreDamaged, Unreadable, WriterFailed

# First version without the WAL-reset bug, and the branches it was ported back to (FACTS 3.D.1).
_FIXED: Final = (3, 51, 3)
_BACKPORTS: Final = ((3, 44, 6), (3, 50, 7))
_PAGE_BYTES: Final = 16384
_SQLITE_FULL: Final = 13
_SQLITE_BUSY: Final = 5
_SQLITE_IOERR: Final = 10
_SQLITE_IOERR_READ: Final = 10 | 1 << 8
# Out of memory, an error of the device, a file that cannot be opened (too many are).
_UNREADABLE: Final = (7, _SQLITE_IOERR, 14)
# Result codes that say something of this moment, or of who asks: permission 3, busy 5, locked 6, memory 7,
# read-only 8, interrupt 9, input and output 10, full 13, not opened 14, protocol 15, authority 23. All others
# are about what lies in the file: pages that are not what their parents take them for, a table that is not
# there, values of impossible length, a rule broken that every write of ours keeps.
_OF_THE_MOMENT: Final = (3, 5, 6, 7, 8, 9, 10, 13, 14, 15, 23)
_ERRORS: Final = (DatabaseError, dbapi2.DatabaseError)
# What rows come to that hold what never was put there: NULL for a number, text that is no UTF-8, no row.
# SQLite looks at types when it writes, and gives back whatever a damaged page says.
_MISFITS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NoResultFound,
    TypeError,
    ValueError,
)

_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA busy_timeout=5000",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cell_size_check=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA mmap_size=0",
    "PRAGMA cache_size=-32768",
    "PRAGMA journal_size_limit=67108864",
)


def sqlite_version() -> tuple[int, int, int]:
    """Version of the SQLite library that is really linked, not the one of the interpreter."""
    major, minor, patch = dbapi2.sqlite_version.split(".")
    return int(major), int(minor), int(patch)


def safe_for_many_writers(version: tuple[int, int, int]) -> bool:
    """Whether several connections may write: False on versions with the WAL-reset bug."""
    return version >= _FIXED or any(
        version[:2] == port[:2] and version >= port for port in _BACKPORTS
    )


class Database:
    """The metadata database. Thread-safe; not to be carried across a fork."""

    def __init__(self, path: Path, *, write_wait_ms: int = 5000) -> None:
        self.path = path
        self._write_wait_ms = write_wait_ms
        self._lock = threading.Lock()
        self.failed = False
        self._reads = _engine(path, readonly=True)
        # A connection for each reading thread: no transaction outlives a call, so it may be kept.
        self._mine = threading.local()
        self._kept: list[Connection] = []
        self._writes = {
            True: _engine(path, synchronous="FULL"),
            False: _engine(path, synchronous="NORMAL"),
        }

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for single-statement reads; each statement is its own snapshot.

        Raises:
            StoreDamaged: what should be read is not what was written, as far as SQLite sees that.
            Unreadable: it cannot be read at this moment.
        """
        with _readable():
            yield self._reading()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Several reads of one moment. Keep it short: it holds the WAL.

        Raises:
            StoreDamaged, Unreadable: as `read`.
        """
        with _readable():
            connection = self._reading()
            connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            finally:
                connection.exec_driver_sql("ROLLBACK")

    @contextmanager
    def write(self, *, durable: bool, wait_ms: int | None = None) -> Iterator[Connection]:
        """The write lock and a transaction under it; commits on leaving, rolls back on any exception.

        Args:
            durable: True returns only after an fsync of the WAL (synchronous=FULL).
            wait_ms: how long to wait for the lock.

        Raises:
            Busy: the lock was not free in time; the body did not run.
            DiskFull: no room; nothing was written.
            WriterFailed: an I/O error while writing, now or earlier.
            StoreDamaged, Unreadable: as `read`; nothing was written.
        """
        if self.failed:
            raise WriterFailed("an earlier write failed")
        deadline = time.monotonic() + (self._write_wait_ms if wait_ms is None else wait_ms) / 1000
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise Busy("the write lock of this process is held")
        try:
            with self._writes[durable].connect() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None
                _begin_immediate(driver, deadline)
                try:
                    yield connection
                except BaseException:
                    driver.execute("ROLLBACK")
                    raise
                driver.execute("COMMIT")
        except _ERRORS as error:
            translated = _translated(error)
            # What the kernel still holds after a failed write is unknown: no write may follow.
            self.failed = self.failed or isinstance(translated, WriterFailed)
            raise translated from error
        except _MISFITS as error:
            raise _misfit(error) from error
        finally:
            self._lock.release()

    def checkpoint(self) -> None:
        """Copy the WAL into the database and cut it to nothing, if no reader is in the way."""
        with self._lock, self._writes[True].connect() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout=0")
            try:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
            except OperationalError as error:
                if not _is_busy(error):
                    raise _translated(error) from error
            finally:
                connection.exec_driver_sql("PRAGMA busy_timeout=5000")

    def wal_bytes(self) -> int:
        """Size of the write-ahead log file."""
        try:
            return self.path.with_name(self.path.name + "-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def _reading(self) -> Connection:
        connection: Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._reads.connect()
            self._kept.append(connection)
        return connection

    def close(self) -> None:
        """Close every connection. The last process to close removes the WAL."""
        for connection in self._kept:
            connection.close()
        self._reads.dispose()
        for engine in self._writes.values():
            engine.dispose()


def _engine(path: Path, *, synchronous: str = "FULL", readonly: bool = False) -> Engine:
    # The driver never begins by itself (isolation_level=None): BEGIN is ours, so that a write is
    # IMMEDIATE from its first statement and a lone read costs no extra round trip.
    engine = create_engine(
        f"sqlite:///{path}",
        module=dbapi2,
        poolclass=QueuePool,
        pool_size=16,
        max_overflow=-1,
        connect_args={
            "isolation_level": None,
            "check_same_thread": False,
            "cached_statements": 256,
        },
        skip_autocommit_rollback=True,
        isolation_level="AUTOCOMMIT",
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        for pragma in _PRAGMAS:
            cursor.execute(pragma)
        cursor.execute(f"PRAGMA synchronous={synchronous}")
        if readonly:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    return engine


def _begin_immediate(driver: Any, deadline: float) -> None:
    # Our own wait instead of SQLite's busy handler, whose sleeps grow to 100 ms: a second worker's
    # transaction takes about a millisecond, and it may be the one in front of us.
    pause = 0.0002
    driver.execute("PRAGMA busy_timeout=0")
    try:
        while True:
            try:
                driver.execute("BEGIN IMMEDIATE")
            except dbapi2.OperationalError as error:
                if not _is_busy(error):
                    raise
                if time.monotonic() + pause > deadline:
                    raise Busy("the write lock of the store is held") from error
                time.sleep(pause)
                pause = min(pause * 1.5, 0.005)
            else:
                return
    finally:
        driver.execute("PRAGMA busy_timeout=5000")


def _extended_code(error: Exception) -> int:
    """SQLite's result code, whether the error came from the driver or through SQLAlchemy."""
    return int(getattr(getattr(error, "orig", error), "sqlite_errorcode", 0))


def _code(error: Exception) -> int:
    """The primary result code."""
    return _extended_code(error) & 0xFF


def _is_busy(error: Exception) -> bool:
    return _code(error) == _SQLITE_BUSY


def _translated(error: Exception) -> Exception:
    code = _code(error)
    if code == _SQLITE_FULL:
        return DiskFull("the device is full")
    if _is_busy(error):
        return Busy("the write lock of the store is held")
    if code in _UNREADABLE and (
        code != _SQLITE_IOERR or _extended_code(error) == _SQLITE_IOERR_READ
    ):
        return _unreadable(error)
    if code == _SQLITE_IOERR:
        return WriterFailed("SQLite could not write")
    if code not in _OF_THE_MOMENT:
        return _damaged(error)
    return error


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        if _code(error) in _UNREADABLE:
            raise _unreadable(error) from error
        if _code(error) not in _OF_THE_MOMENT:
            raise _damaged(error) from error
        raise
    except _MISFITS as error:
        raise _misfit(error) from error


def _misfit(error: Exception) -> StoreDamaged:
    return StoreDamaged(
        f"a row of the database holds what never was put there ({type(error).__name__})"
    )


def _unreadable(error: Exception) -> Unreadable:
    return Unreadable(f"the database cannot be read: {getattr(error, 'orig', error)}")


def _damaged(error: Exception) -> StoreDamaged:
    return StoreDamaged(f"the database is damaged: {getattr(error, 'orig', error)}")
