"""Serving: the checks before the first worker, and uvicorn as we run it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum, auto
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Final

import structlog
import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess

from app.engine.backup import why_not_there
from app.listening import CannotListen, bind_port, bind_unix
from app.main import COMPACT_SIGNAL, SUPERVISOR_VARIABLE, create_app
from app.settings import Settings, origin
from app.settings_file import UnusableSettings
from migrations import upgrade
from storage.catalog import Catalog
from storage.compact import CompactionStopped, compact_held
from storage.errors import InUse, NoRoom, StorageError, StoreUnusable
from storage.examining import examine
from storage.faults import begin, refuse_after_fault
from storage.layout import DataFolder
from storage.ledger import Ledger
from storage.metadata.database import Database, safe_for_many_writers, sqlite_version

_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_APP: Final = "app.main:create_app"
_log = structlog.get_logger("statehold.server")
# How a compaction that was not made is called in its job.
_CODES: Final = {NoRoom: "low_space", InUse: "busy"}
_STARTUP_FAILURE: Final = 3  # what `uvicorn.run` exits with when the app could not start


def serve(settings: Settings) -> None:
    """Run the service until it is told to stop.

    Raises:
        StoreUnusable: the data folder cannot be used as it is.
        UnusableSettings: others can reach the address, and no token was ever made; or backups have no place.
        CannotListen: the socket cannot be made, or the port cannot be had.
    """
    with made_ready(settings) as folder:
        options: dict[str, Any] = {
            "factory": True,
            "workers": settings.workers,
            "http": "app.api.guard:GuardedProtocol",
            "loop": "uvloop",
            "ws": "none",
            "lifespan": "on",
            "access_log": False,
            "server_header": False,
            "proxy_headers": False,
            "log_config": None,
            "backlog": 1024,
            "timeout_keep_alive": 75,
            "timeout_graceful_shutdown": settings.shutdown_grace_s,
        }
        if settings.socket is None:
            _serve_on_port(settings, options, folder)
        else:
            _serve_on_socket(settings, settings.socket, options, folder)


@contextmanager
def made_ready(settings: Settings) -> Iterator[DataFolder]:
    """The data folder is this server's alone, of this schema, and fit to be opened by its workers.

    Raises:
        StoreUnusable, UnusableSettings: as `serve`.
    """
    os.umask(0o077)
    if settings.workers > 1 and not safe_for_many_writers(sqlite_version()):
        version = ".".join(map(str, sqlite_version()))
        raise StoreUnusable(
            f"SQLite {version} can corrupt a database that several processes write "
            "(fixed in 3.51.3); run one worker or install pysqlite3 0.6.1 or newer"
        )
    folder = DataFolder(settings.data_dir)
    folder.prepare()
    if (why := why_not_there(settings)) is not None:
        raise UnusableSettings(why)
    with folder.alone("another server or a compaction is using it"):
        with folder.starting():
            upgrade(folder.database)
            examine(folder)
        _refuse_strangers(settings, folder)
        begin(folder)
        yield folder
        # Several workers end as if all were well when one of them cannot be replaced.
        refuse_after_fault(folder)


class _Next(Enum):
    """What comes after an app, or after all workers, have ended."""

    END = auto()
    ANEW = auto()
    COMPACT = auto()


def _serve_on_port(settings: Settings, options: dict[str, Any], folder: DataFolder) -> None:
    place: dict[str, Any] = {"host": settings.host, "port": settings.port}
    # Bound once: while one app makes way for the next, connections wait.
    try:
        listener = bind_port(settings.host, settings.port)
    except CannotListen as error:
        raise CannotListen(f"{error} (set by {origin('host')} and {origin('port')})") from error
    port = listener.getsockname()[1]
    _log.info("listening", host=settings.host, port=port)
    try:
        _serve_on(listener, {**options, **place}, folder)
    finally:
        listener.close()


def _serve_on_socket(
    settings: Settings, path: Path, options: dict[str, Any], folder: DataFolder
) -> None:
    """As `uvicorn.run` does it, on a socket that was never open to everybody."""
    # uvicorn raises the signal that ended it once more, which would end us before the file is gone.
    signal.signal(signal.SIGTERM, _end)
    listener = bind_unix(path, int(settings.socket_mode, 8))
    try:
        _serve_on(listener, {**options, "uds": str(path)}, folder)
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _serve_on(listener: socket.socket, options: dict[str, Any], folder: DataFolder) -> None:
    """Serve until the end, with new apps or workers, and compactions between them, as they ask."""
    once = _with_workers if options["workers"] > 1 else _with_one_app
    while (following := once(listener, options)) is not _Next.END:
        if following is _Next.COMPACT and not _compact(folder):
            return


class _Server(uvicorn.Server):
    """uvicorn's, which tells an end that a signal asked for from one that the app did."""

    told_to_end = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.told_to_end = True
        super().handle_exit(sig, frame)


def _with_one_app(listener: socket.socket, options: dict[str, Any]) -> _Next:
    following = _Next.END

    def renew() -> None:
        nonlocal following
        following, server.should_exit = _Next.ANEW, True

    def compact() -> bool:
        nonlocal following
        following, server.should_exit = _Next.COMPACT, True
        return True

    server = _Server(uvicorn.Config(partial(create_app, renew, compact), **options))
    # uvicorn raises what ended it once more; whether that arrives here is asyncio's matter.
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener.dup()])
    if not server.started:
        raise SystemExit(_STARTUP_FAILURE)
    return _Next.END if server.told_to_end else following


def _with_workers(listener: socket.socket, options: dict[str, Any]) -> _Next:
    asked = False
    os.environ[SUPERVISOR_VARIABLE] = str(os.getpid())
    supervisor = Multiprocess(uvicorn.Config(_APP, **options), sockets=[listener])

    def compact(_number: int, _frame: object) -> None:
        nonlocal asked
        if not asked:
            asked = True
            supervisor.signal_queue.append(signal.SIGTERM)

    signal.signal(COMPACT_SIGNAL, compact)
    try:
        supervisor.run()
    finally:
        # A worker that asks for what is under way already.
        signal.signal(COMPACT_SIGNAL, signal.SIG_IGN)
        # Nobody reads the supervisor's queue any more.
        for number in _ENDING:
            signal.signal(number, _end)
    # What came while the workers ended waits in the queue. Who wants the end gets it; SIGHUP, which replaces
    # workers, and the rest have no meaning now.
    ending = not _ENDING.isdisjoint(supervisor.signal_queue)
    return _Next.COMPACT if asked and not ending else _Next.END


def _compact(folder: DataFolder) -> bool:
    """Compact the folder and end the job that asked for it; False if a signal meanwhile asked for the end.

    A signal waits until the file that is being written is done: raised in the middle of a statement or a
    copy it would end as whatever is made of an exception there.

    Crash at any point: as `storage/compact.py` says of the files; the job is found running by the next start,
    which ends it as interrupted.
    """
    ends = Event()
    before = {number: signal.signal(number, lambda *_: ends.set()) for number in _ENDING}
    try:
        try:
            done = compact_held(folder, lambda: not ends.is_set())
        except CompactionStopped:
            _log.info("compaction_stopped")
            _end_job(folder, "failed", error="interrupted")
            return False
        except StoreUnusable as error:
            _log.warning("not_compacted", error=str(error))
            code = next(
                (code for kind, code in _CODES.items() if isinstance(error, kind)), "store_damaged"
            )
            _end_job(folder, "failed", error=code)
            return not ends.is_set()
        result = {
            "before_bytes": done.before_bytes,
            "after_bytes": done.after_bytes,
            "reclaimed_blocks": done.reclaimed_blocks,
            "took_ms": round(1000 * done.seconds),
        }
        _log.info("compacted", **result)
        _end_job(folder, "done", result=json.dumps(result))
        return not ends.is_set()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_job(
    folder: DataFolder, status: str, *, result: str | None = None, error: str | None = None
) -> None:
    try:
        with closing(Database(folder.database)) as database:
            Ledger(database).finish_handed_over_job(status, result=result, error=error)
    except StorageError as trouble:
        # The next app finds it running, and ends it as interrupted.
        _log.warning("job_end_not_written", error=str(trouble))


def _end(number: int, _frame: object) -> None:
    """A stop that was asked for is no failure, except that Ctrl-C says what it says everywhere."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(0)


def _refuse_strangers(settings: Settings, folder: DataFolder) -> None:
    """Nobody serves the network without knowing whom; who wants to says so."""
    if settings.access != "auto" or settings.socket is not None or is_loopback(settings.host):
        return
    database = Database(folder.database)
    try:
        if Catalog(database).any_token():
            return
    finally:
        database.close()
    raise UnusableSettings(
        f"{origin('host')} is {settings.host}, which others can reach, and there is no token yet: make "
        "one with `statehold token create`, or set STATEHOLD_ACCESS=open to serve everybody"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
