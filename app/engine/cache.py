"""The cache: one process's front door to the store, put together and taken apart here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from app.engine.access import Gate
from app.engine.desk import Desk
from app.engine.errors import EngineError
from app.engine.evicting import Evictions
from app.engine.eviction import Evictor
from app.engine.exchange import Exchange
from app.engine.explaining import Explainer
from app.engine.forensics import Forensics
from app.engine.history import History
from app.engine.holds import Leases
from app.engine.housekeeping import Housekeeper
from app.engine.jobs import Jobs
from app.engine.limits import KEY, RunTimeLimits
from app.engine.listing import Listing
from app.engine.longwork import kinds
from app.engine.memory import MemoryBudget
from app.engine.metrics import Metrics
from app.engine.notes import Notes
from app.engine.pins import Pins
from app.engine.policy import Policy
from app.engine.quarantine import Quarantine
from app.engine.quotas import Quotas
from app.engine.reader import Reader
from app.engine.recorder import Recorder
from app.engine.recordings import Recordings
from app.engine.registry import Registry
from app.engine.restoring import Restorer
from app.engine.tenants import Tenants
from app.engine.threads import in_thread
from app.engine.uploads import Uploads
from app.engine.walk import TreeWalk
from app.engine.workers import Workers, figures_of
from app.engine.writer import BlockWriter
from app.settings import Settings
from storage.errors import StorageError
from storage.layout import DataFolder
from storage.recovery import mark_clean, recover
from storage.rows import AuditRow
from storage.store import Store

_log = structlog.get_logger("statehold.cache")


class Cache:
    """Everything a route may ask for.

    Attributes:
        restorer: lookups and restores.
        recordings: admission, commit, abort.
        recorder: component uploads.
        exchange: component uploads block by block.
        leases: heartbeat and release.
        quarantine: out of service and back.
        forensics: bytes as they are.
        registry: namespaces.
        desk: the operator's view.
        limits: what operators change while it runs.
        evictions: what operators want to be gone.
        pins: what they want to stay.
        metrics: figures for monitoring.
        gate: who is asking.
        quotas: how much tenants ask for.
        tenants: what they may hold.
        listing: states and namespaces, a page at a time.
        walk: the tree, step by step.
        history: counters over time.
        explainer: why a query is served as far as it is.
        jobs: work that takes long.
    """

    def __init__(
        self,
        settings: Settings,
        folder: DataFolder,
        renew: Callable[[], None],
        compact: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open the store and recover it; the schema must be up to date. Blocks: not for the loop.

        Args:
            renew: asks, from a thread, for a new cache in the place of this one, which cannot write
                any more.
            compact: asks, from a thread, for the end of every cache of the folder, a compaction, and
                new caches; False where nobody can do that.
        """
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
        self.policy = Policy(settings, partial(self._store.catalog.setting, KEY))
        self._notes = Notes(self._store)
        if self.recovery.quarantined:
            self._notes.count("quarantines", "recovery", self.recovery.quarantined)
        self._evictor = evictor = Evictor(self._store, self.policy, self._notes)
        self._writer = BlockWriter(self._store, evictor, self._notes)
        reader = Reader(
            self._store,
            settings.restore_buffer_bytes,
            self._pool,
            settings.verify_ahead_bytes,
        )
        self.leases = Leases(self._store, self._notes, self._small, settings.lease_ttl_s * 1000)
        self.forensics = Forensics(self._store, reader, self._pool)
        self.quarantine = Quarantine(
            self._store, self.policy, evictor, self.forensics, self._notes, self._small
        )
        self.restorer = Restorer(
            self._store, self.policy, reader, self.leases, self.quarantine, self._notes, self._pool
        )
        self.recordings = Recordings(
            self._store, self.policy, self._writer, evictor, self._notes, self._small
        )
        uploads = Uploads(self._store, self._writer, self.policy, self._small)
        memory = MemoryBudget(settings.buffer_bytes)
        self.recorder = Recorder(
            self._store, self._writer, self.policy, uploads, memory, self._notes, self._pool
        )
        self.exchange = Exchange(
            self._store,
            self._writer,
            evictor,
            uploads,
            memory,
            self._notes,
            self._small,
            self._pool,
        )
        self.registry = Registry(self._store, self._small)
        self.desk = Desk(self._store, self.policy, self._writer, self._notes, self._small)
        self.limits = RunTimeLimits(self._store, settings, self._small)
        self.evictions = Evictions(self._store, evictor, self._notes)
        self.pins = Pins(self._store, self.policy, self._small)
        self.gate = Gate(self._store, settings, self._small)
        self.quotas = Quotas(self._store, settings.workers)
        self.tenants = Tenants(self._store, self._small)
        workers = Workers(
            self._store,
            lambda: figures_of(
                self._store, self._writer, memory, reader, self.recovery.lost_commits
            ),
        )
        self.metrics = Metrics(self._store, self.policy, self._notes, workers)
        self.listing = Listing(self._store, self.policy, self.registry)
        self.walk = TreeWalk(self._store, self._small)
        self.history = History(self._store.catalog, self._notes.flush, self._small)
        self.explainer = Explainer(self._store, self.policy, reader)
        self.jobs = Jobs(
            self._store,
            kinds(self._store, self.policy, reader, self.quarantine, compact),
            self._small,
            alone=self.recovery.alone,
        )
        self._housekeeper = Housekeeper(
            self._store,
            self._notes,
            evictor,
            self.gate,
            self.policy,
            publish=workers.publish,
            end_dead_jobs=self.jobs.end_dead,
            renew=renew,
            sweep=self.recovery.needs_sweep,
        )

    @property
    def sweeping(self) -> bool:
        """Whether the background sweep after an unclean stop is still going on."""
        return self._housekeeper.sweeping

    def namespace_of_state(self, state_id: str) -> str | None:
        """The held name of a state's namespace, None without such a state. Fit for the event loop."""
        return self._store.catalog.namespace_of_state(state_id)

    def namespace_of_lease(self, lease_id: str) -> str | None:
        """The held name of a lease's namespace, None without such a lease. Fit for the event loop."""
        return self._store.catalog.namespace_of_lease(lease_id)

    async def audit(self, entry: Mapping[str, object]) -> bool:
        """Add to the audit log; False if it could not be written."""
        try:
            await in_thread(self._small, self._store.ledger.audit, entry)
        except (EngineError, StorageError):
            return False
        return True

    async def audit_log(self, before: int | None, limit: int, action: str | None) -> list[AuditRow]:
        """Entries of the audit log, newest first."""
        return await in_thread(self._small, self._store.catalog.audit, before, limit, action)

    async def close(self) -> None:
        """Refuse what is new, finish commits under way, flush, and close both stores."""
        self.recordings.closing = True
        await self.recordings.drain()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.jobs.close()
        self._housekeeper.close()
        self._writer.close()
        self.explainer.close()
        self.listing.close()
        self.evictions.close()
        self._small.shutdown()
        self._pool.shutdown()
        self.metrics.close()
        # One at a time, so that of several workers that stop together one is the last.
        with self._store.folder.starting():
            try:
                self._notes.flush()
                self.gate.flush()
                self._evictor.reclaim()
                if not self._writer.failed:
                    mark_clean(self._store)
            except StorageError as error:
                _log.warning("unclean_stop", error=str(error))
            self._store.close()
