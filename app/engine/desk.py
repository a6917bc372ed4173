"""What operators ask for: listings, run-time settings, figures."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from app.engine.errors import NotFound
from app.engine.notes import Notes
from app.engine.policy import Policy
from app.engine.threads import in_thread
from app.engine.writer import BlockWriter
from app.settings import Settings
from storage.catalog import Catalog
from storage.layout import instance_digest
from storage.metadata.database import sqlite_version
from storage.metadata.radix import NodeRow
from storage.rows import ComponentRow, Evidence, Pin, StateRow
from storage.store import Store

# A state, its namespace's held name, its components, why it is quarantined, and what pins it.
Detail = tuple[StateRow, str, tuple[ComponentRow, ...], Evidence | None, Pin | None]


def detail(catalog: Catalog, state_id: str) -> Detail:
    """One state of any status, with what is known of it.

    Raises:
        NotFound: no such state.
    """
    row = catalog.state(state_id)
    if row is None:
        raise NotFound("state_not_found", "no such state")
    namespace = catalog.namespace_by_id(row.namespace_id).name
    evidence = catalog.evidence(row.id) if row.status == "quarantined" else None
    return row, namespace, catalog.components(row.id), evidence, catalog.pin(row.id)


class Desk:
    """The operator's view of one store."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        writer: BlockWriter,
        notes: Notes,
        small: Executor,
    ) -> None:
        self._store = store
        self._policy = policy
        self._writer = writer
        self._notes = notes
        self._small = small

    def state(self, state_id: str) -> Detail:
        """One state of any status. Fit for the event loop.

        Raises:
            NotFound: no such state.
        """
        return detail(self._store.catalog, state_id)

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
        elif self._store.failed:  # what leases, evictions or housekeeping wrote
            degraded.append("writer stopped: a small write failed")
        free = self._store.folder.free_bytes()
        if free < self._policy.now().free_disk_reserve_bytes:
            degraded.append("free disk is below the reserve: recording is refused")
        mode = self._store.catalog.setting("mode") or self._policy.settings.mode
        if mode != "lookup_record":
            degraded.append(f"mode is {mode}")
        return {
            "degraded": degraded,
            "mode": mode,
            "instance": instance_digest(self._store.instance.name),
            "free_disk_bytes": free,
            "sqlite_version": ".".join(map(str, sqlite_version())),
        }

    def _stats(self) -> dict[str, Any]:
        self._notes.flush()
        return figures(self._store, self._policy.now())


def figures(store: Store, limits: Settings) -> dict[str, Any]:
    """Figures of a whole store; scans.

    Args:
        limits: the settings with what was changed at run time.
    """
    return {
        "counts": store.catalog.counts(),
        "usage": store.catalog.usage(),
        "block_store": store.blocks.stats(),
        "counters": store.catalog.counters(),
        "leases_held": store.catalog.leases_held(),
        "budget_bytes": limits.budget_bytes,
        "max_entries": limits.max_entries,
        "free_disk_bytes": store.folder.free_bytes(),
        "wal_bytes": store.db.wal_bytes(),
    }
