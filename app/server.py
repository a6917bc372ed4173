"""Serving: the checks before the first worker, and uvicorn as we run it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from app.settings import Settings
from migrations import upgrade
from storage.errors import StoreUnusable
from storage.layout import DataFolder
from storage.metadata.database import safe_for_many_writers, sqlite_version


def serve(settings: Settings) -> None:
    """Run the service until it is told to stop.

    Raises:
        StoreUnusable: the data folder cannot be used as it is.
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
    with _alone(folder):
        with folder.starting():
            upgrade(folder.database)
        uvicorn.run(
            "app.main:create_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            http="app.api.guard:GuardedProtocol",
            loop="uvloop",
            ws="none",
            lifespan="on",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            log_config=None,
            backlog=1024,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=settings.shutdown_grace_s,
        )


@contextmanager
def _alone(folder: DataFolder) -> Iterator[None]:
    """One server a data folder; its workers are its own."""
    descriptor = os.open(folder.path / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreUnusable(f"another server is using the data folder {folder.path}") from error
    finally:
        os.close(descriptor)
