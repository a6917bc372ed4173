"""The backup job: a child process copies, this watches it, stops it, and puts away what it leaves.

What the copy found damaged in the store is looked at again here and quarantined through the normal way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any, Final

import structlog

from app import VERSION
from app.engine.errors import Conflicting
from app.engine.jobs import JobFailed, Run
from app.engine.policy import Policy
from app.engine.scrubbing import Scrubber
from app.settings import Settings, origin
from storage.backups.copying import alone, remove_partial
from storage.blocks.prober import Prober
from storage.blocks.store import BlockRef
from storage.children import child_environment
from storage.errors import BackupRunning, StorageError
from storage.layout import nearest
from storage.store import Store

_LOOK_EVERY_SECONDS: Final = 0.1
_CODES: Final = {
    "BackupExists": "backup_exists",
    "BackupRunning": "backup_running",
    "BackupDirUnusable": "backup_dir_unusable",
    "DiskFull": "low_space",
    "Busy": "busy",
    "WriterFailed": "store_damaged",
    "StoreUnusable": "store_damaged",
}

_log = structlog.get_logger("statehold.backup")


def backup_dir(settings: Settings) -> Path:
    """Where backups go. No request names a folder."""
    return settings.backup_dir or settings.data_dir / "backups"


def why_not_there(settings: Settings) -> str | None:
    """Why no folder of backups can ever be where the settings want it; None where one is or can be made."""
    path = backup_dir(settings)
    if (at := nearest(path)).is_dir():
        return None
    return f"{origin('backup_dir')}: backups cannot go into {path}, because {at} is no folder"


class BackupJob:
    """Backups of one store."""

    def __init__(self, store: Store, policy: Policy, scrubber: Scrubber) -> None:
        self._store = store
        self._policy = policy
        self._scrubber = scrubber
        self._dir = backup_dir(policy.settings)
        if self._dir.is_dir():
            self._put_away()

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse what is known to fail.

        Raises:
            Conflicting: `backup_exists`.
        """
        if os.path.lexists(self._dir / str(arguments["name"])):
            raise Conflicting("backup_exists", "there is a backup of that name")

    def back_up(self, run: Run, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The body of the job. `name`: of the new backup."""
        child = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "storage.backups"),
                str(self._store.folder.path),
                str(self._dir),
                str(arguments["name"]),
                VERSION,
                str(int(self._policy.now().free_disk_reserve_bytes)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        try:
            ended = self._watch(run, child)
        finally:
            child.kill()  # a copy that has ended is past caring
            child.wait()
            assert child.stdin is not None
            assert child.stdout is not None
            with suppress(BrokenPipeError):
                child.stdin.close()
            child.stdout.close()
            self._store.blocks.reader_check()
            self._put_away()
        if (code := ended.get("error")) is not None:
            raise JobFailed(_CODES.get(code, "internal_error"), str(ended["detail"]))
        bad = [BlockRef(bytes.fromhex(digest), size) for digest, size in ended.pop("bad")]
        if bad:
            self._blame(bad)
        run.report(run.total)
        return {"name": arguments["name"], **ended}

    def _watch(self, run: Run, child: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The child's last line."""
        assert child.stdout is not None
        lines: SimpleQueue[bytes | None] = SimpleQueue()
        Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
        while True:
            run.check()
            try:
                line = lines.get(timeout=_LOOK_EVERY_SECONDS)
            except Empty:
                continue
            if line is None:
                code = child.wait()
                raise JobFailed("interrupted", f"the copying process ended with {code}")
            said: dict[str, Any] = json.loads(line)
            if "done" not in said:
                return said
            run.report(said["done"], said["total"])

    def _blame(self, bad: list[BlockRef]) -> None:
        prober = Prober(self._store.folder.blocks)
        try:
            for ref in bad:
                self._scrubber.blame(ref, prober)
        finally:
            prober.close()

    def _put_away(self) -> None:
        # What is locked is being made by somebody else, who puts away what was left before.
        try:
            with alone(self._dir):
                remove_partial(self._dir)
        except BackupRunning:
            pass
        except StorageError as error:
            _log.warning("backup_dir_unusable", error=str(error))


def _read(pipe: IO[bytes], lines: SimpleQueue[bytes | None]) -> None:
    with suppress(ValueError, OSError):
        for line in pipe:
            lines.put(line)
    lines.put(None)
