"""The figures for monitoring, gathered at one place whichever worker is asked.

Counters come from the metadata, so they are those of all workers since the store was made and lag by
`touch_flush_s` at most; they never go back, except by what a power loss takes. Gauges are of this moment
(`workers.py` says how old those of other processes may be). Nothing is scanned that grows with the
states. However many ask at once, the figures are gathered once, on a thread of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.engine.notes import Notes
from app.engine.policy import Policy
from app.engine.threads import in_thread
from app.engine.workers import Standing, Workers
from app.settings import Settings
from storage.blocks.store import EnvironmentStats
from storage.metadata.database import sqlite_version
from storage.rows import Vitals
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that is shown, of one moment. `settings` are those in force."""

    counters: Mapping[tuple[str, str], int]
    vitals: Vitals
    environments: tuple[EnvironmentStats, ...]
    standing: Standing
    settings: Settings
    pin_budget_bytes: int
    mode: str
    wal_bytes: int
    free_disk_bytes: int
    sqlite_version: str


class Metrics:
    """Gathers the figures of one store."""

    def __init__(self, store: Store, policy: Policy, notes: Notes, workers: Workers) -> None:
        self._store = store
        self._policy = policy
        self._notes = notes
        self._workers = workers
        # Its own, so that no lease waits behind a scrape.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._under_way: asyncio.Future[Figures] | None = None

    def count(self, name: str, label: str) -> None:
        """Count something that only a caller of the engine sees; labels come from fixed sets."""
        self._notes.count(name, label)

    async def figures(self) -> Figures:
        """The figures of this moment.

        Raises:
            Unavailable: the store is in trouble at this moment.
        """
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(in_thread(self._thread, self._gather))
            self._under_way.add_done_callback(self._gathered)
        # Shielded: one who goes away must not take it from the others.
        return await asyncio.shield(self._under_way)

    def close(self) -> None:
        """Finish what is under way."""
        self._thread.shutdown()

    def _gathered(self, done: asyncio.Future[Figures]) -> None:
        self._under_way = None
        if not done.cancelled():
            done.exception()  # told to whoever waits; nobody may

    def _gather(self) -> Figures:
        store, settings = self._store, self._policy.now()
        vitals = store.catalog.vitals()
        return Figures(
            counters=store.catalog.counters(),
            vitals=vitals,
            environments=tuple(store.blocks.environments()),
            standing=self._workers.standing(),
            settings=settings,
            pin_budget_bytes=self._policy.pin_budget_bytes,
            mode=vitals.mode or settings.mode,
            wal_bytes=store.db.wal_bytes(),
            free_disk_bytes=store.folder.free_bytes(),
            sqlite_version=".".join(map(str, sqlite_version())),
        )
