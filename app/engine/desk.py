"""What operators ask for: listings, eviction, run-time settings, figures."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from app.engine.errors import NotFound
from app.engine.eviction import Evictor
from app.engine.notes import Notes
from app.engine.policy import Policy
from app.engine.threads import in_thread
from app.engine.writer import BlockWriter
from storage.metadata.database import sqlite_version
from storage.metadata.radix import NodeRow
from storage.rows import ComponentRow, DropResult, Evidence, StateRow
from storage.store import Store


class Desk:
    """The operator's view of one store."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        evictor: Evictor,
        writer: BlockWriter,
        notes: Notes,
        small: Executor,
    ) -> None:
        self._store = store
        self._policy = policy
        self._evictor = evictor
        self._writer = writer
        self._notes = notes
        self._small = small

    async def states(
        self,
        *,
        limit: int,
        after: str | None,
        namespace: str | None,
        status: str | None,
        kind: str | None,
    ) -> list[tuple[StateRow, str]]:
        """States with their namespace's name, in order of recording."""
        namespace_id = None
        if namespace is not None:
            row = self._store.catalog.namespace(namespace)
            if row is None:
                return []
            namespace_id = row.id
        return await in_thread(
            self._small,
            self._store.catalog.states,
            limit=limit,
            after=after,
            namespace_id=namespace_id,
            status=status,
            kind=kind,
        )

    def state(
        self, state_id: str
    ) -> tuple[StateRow, str, tuple[ComponentRow, ...], Evidence | None]:
        """One state of any status, its namespace's name, components and quarantine evidence.

        Raises:
            NotFound: no such state.
        """
        row = self._store.catalog.state(state_id)
        if row is None:
            raise NotFound("state_not_found", "no such state")
        namespace = self._store.catalog.namespace_by_id(row.namespace_id).name
        components = self._store.catalog.components(row.id)
        evidence = self._store.catalog.evidence(row.id) if row.status == "quarantined" else None
        return row, namespace, components, evidence

    async def evict_ids(self, state_ids: Sequence[str]) -> DropResult:
        """Evict these live states, except leased ones.

        Raises:
            NotFound: one of them is not live; nothing was evicted then.
        """
        for state_id in state_ids:
            row = self._store.catalog.state(state_id)
            if row is None or row.status != "live":
                raise NotFound("state_not_found", f"{state_id} is not a live state")
        return await self._evict(state_ids)

    async def evict_namespace(self, namespace: str) -> DropResult:
        """Evict every live state of a namespace, except leased ones.

        Raises:
            NotFound: no such namespace.
        """
        row = self._store.catalog.namespace(namespace)
        if row is None:
            raise NotFound("namespace_not_found", "no such namespace")
        dropped: list[str] = []
        kept: list[str] = []
        unowned = 0
        after: str | None = None
        while page := await in_thread(
            self._small,
            self._store.catalog.states,
            limit=64,
            after=after,
            namespace_id=row.id,
            status="live",
        ):
            result = await self._evict([state.state_id for state, _ in page])
            dropped += result.dropped
            kept += result.kept_leased
            unowned += result.unowned_bytes
            after = page[-1][0].state_id
        return DropResult(tuple(dropped), tuple(kept), unowned)

    async def evict_to(self, target_bytes: int, namespace: str | None) -> DropResult:
        """Evict least recently used states until at most `target_bytes` are held.

        Raises:
            NotFound: no such namespace.
        """
        namespace_id = None
        if namespace is not None:
            row = self._store.catalog.namespace(namespace)
            if row is None:
                raise NotFound("namespace_not_found", "no such namespace")
            namespace_id = row.id
        return await in_thread(self._small, self._evictor.evict_to, target_bytes, namespace_id)

    async def set_mode(self, mode: str | None) -> str:
        """Change the store's mode for all workers; None goes back to the configured one."""
        await in_thread(self._small, self._store.ledger.set_setting, "mode", mode)
        return mode or self._policy.settings.mode

    async def tree(self, namespace: str, limit: int) -> list[NodeRow]:
        """The radix tree of a namespace, depth first.

        Raises:
            NotFound: no such namespace.
        """
        if self._store.catalog.namespace(namespace) is None:
            raise NotFound("namespace_not_found", "no such namespace")
        return await in_thread(self._small, self._store.catalog.tree, namespace, limit)

    async def stats(self) -> dict[str, Any]:
        """Figures of the whole store; scans, so for people and not for every second."""
        return await in_thread(self._small, self._stats)

    def health(self) -> dict[str, Any]:
        """What can be served right now and what is degraded. Fit for the event loop."""
        degraded = []
        if self._writer.failed is not None:
            degraded.append(f"writer stopped: {self._writer.failed}")
        free = self._store.folder.free_bytes()
        if free < self._policy.settings.free_disk_reserve_bytes:
            degraded.append("free disk is below the reserve: recording is refused")
        mode = self._store.catalog.setting("mode") or self._policy.settings.mode
        if mode != "lookup_record":
            degraded.append(f"mode is {mode}")
        return {
            "degraded": degraded,
            "mode": mode,
            "free_disk_bytes": free,
            "sqlite_version": ".".join(map(str, sqlite_version())),
        }

    def _stats(self) -> dict[str, Any]:
        self._notes.flush()
        usage = self._store.catalog.usage()
        blocks = self._store.blocks.stats()
        return {
            "counts": self._store.catalog.counts(),
            "usage": usage,
            "block_store": blocks,
            "counters": self._store.catalog.counters(),
            "leases_held": self._store.catalog.leases_held(),
            "budget_bytes": self._policy.settings.budget_bytes,
            "max_entries": self._policy.settings.max_entries,
            "free_disk_bytes": self._store.folder.free_bytes(),
            "wal_bytes": self._store.db.wal_bytes(),
        }

    async def _evict(self, state_ids: Sequence[str]) -> DropResult:
        result = await in_thread(self._small, self._store.evict, state_ids, "admin")
        self._notes.count("evictions", "admin", len(result.dropped))
        await in_thread(self._small, self._evictor.reclaim)
        return result
