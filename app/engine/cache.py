"""The cache: one process's front door to the store, put together and taken apart here."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import structlog

from app.engine.desk import Desk
from app.engine.eviction import Evictor
from app.engine.holds import Leases
from app.engine.housekeeping import Housekeeper
from app.engine.memory import MemoryBudget
from app.engine.notes import Notes
from app.engine.policy import Policy
from app.engine.quarantine import Quarantine
from app.engine.reader import Reader
from app.engine.recorder import Recorder
from app.engine.recordings import Recordings
from app.engine.registry import Registry
from app.engine.restoring import Restorer
from app.engine.writer import BlockWriter
from app.settings import Settings
from storage.errors import StorageError
from storage.layout import DataFolder
from storage.recovery import mark_clean, recover
from storage.store import Store

_log = structlog.get_logger("statehold.cache")


class Cache:
    """Everything a route may ask for.

    Attributes:
        restorer: lookups and restores.
        recordings: admission, commit, abort.
        recorder: component uploads.
        leases: heartbeat and release.
        quarantine: out of service and back.
        registry: namespaces.
        desk: the operator's view.
    """

    def __init__(self, settings: Settings, folder: DataFolder) -> None:
        """Open the store and recover it; the schema must be up to date. Blocks: not for the loop."""
        self.settings = settings
        with folder.starting():
            self._store = Store(folder, tombstones_kept=settings.tombstones)
            self.recovery = recover(self._store)
        _log.info(
            "store_opened",
            alone=self.recovery.alone,
            was_clean=self.recovery.was_clean,
            expired_recordings=self.recovery.expired_recordings,
            lost_commits=self.recovery.lost_commits,
            quarantined=self.recovery.quarantined,
        )
        # Small transactions and listings; each is short, so two threads keep up.
        self._small = ThreadPoolExecutor(2, thread_name_prefix="small")
        # Hashing, compressing and reading blocks, all outside the interpreter lock.
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="blocks")
        self.policy = Policy(settings)
        self._notes = Notes(self._store)
        self._evictor = evictor = Evictor(self._store, self.policy, self._notes)
        self._writer = BlockWriter(self._store, evictor, self._notes)
        reader = Reader(
            self._store,
            MemoryBudget(settings.restore_buffer_bytes),
            self._pool,
            settings.verify_ahead_bytes,
        )
        self.leases = Leases(self._store, self._notes, self._small, settings.lease_ttl_s * 1000)
        self.quarantine = Quarantine(self._store, reader, self._notes, self._small, self._pool)
        self.restorer = Restorer(
            self._store, self.policy, reader, self.leases, self.quarantine, self._notes, self._pool
        )
        self.recordings = Recordings(
            self._store, self.policy, self._writer, evictor, self._notes, self._small
        )
        self.recorder = Recorder(
            self._store,
            self._writer,
            self.policy,
            MemoryBudget(settings.buffer_bytes),
            self._small,
            self._pool,
        )
        self.registry = Registry(self._store, self._small)
        self.desk = Desk(self._store, self.policy, evictor, self._writer, self._notes, self._small)
        self._housekeeper = Housekeeper(
            self._store, self._notes, evictor, settings, sweep=self.recovery.needs_sweep
        )

    @property
    def sweeping(self) -> bool:
        """Whether the background sweep after an unclean stop is still going on."""
        return self._housekeeper.sweeping

    async def close(self) -> None:
        """Refuse what is new, finish commits under way, flush, and close both stores."""
        self.recordings.closing = True
        await self.recordings.drain()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._housekeeper.close()
        self._writer.close()
        self._small.shutdown()
        self._pool.shutdown()
        # One at a time, so that of several workers that stop together one is the last.
        with self._store.folder.starting():
            try:
                self._notes.flush()
                self._evictor.reclaim()
                if not self._writer.failed:
                    mark_clean(self._store)
            except StorageError as error:
                _log.warning("unclean_stop", error=str(error))
            self._store.close()
