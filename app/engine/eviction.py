"""Eviction by need: least recently used first, never what is leased, down to a low-water mark.

Quarantined states go last, and only for bytes: evidence must not fill the budget for ever.

Runs on the thread that needs the room. Each round is one durable SQL commit and as many reclaim
commits as it takes, so that the room is real before the caller goes on.
"""

from __future__ import annotations

from contextlib import suppress

from app.engine.errors import Refused
from app.engine.notes import Notes
from app.engine.policy import Policy
from storage.errors import OverLimit, StorageError
from storage.rows import DropResult, Limits
from storage.store import Store

_MOST_AT_ONCE = 64


class Evictor:
    """Makes room in one store."""

    def __init__(self, store: Store, policy: Policy, notes: Notes) -> None:
        self._store = store
        self._policy = policy
        self._notes = notes

    def make_room(self, over: OverLimit, limits: Limits) -> None:
        """Evict until what raised `over` fits, and on to the low-water mark if that is lower.

        Raises:
            Refused: `at_capacity`; all that is left is leased or being recorded.
        """
        low = self._policy.settings.low_water
        namespace_id = over.namespace_id
        if over.need_entries:
            cap = limits.max_entries if namespace_id is None else limits.namespace_entries
            assert cap is not None
            self._evict_down("entries", namespace_id, min(int(cap * low), cap - 1))
        else:
            cap = limits.budget_bytes if namespace_id is None else limits.namespace_bytes
            assert cap is not None
            enough = self._held("bytes", namespace_id) - over.need_bytes
            self._evict_down("bytes", namespace_id, max(0, min(int(cap * low), enough)))

    def evict_to(self, target_bytes: int, namespace_id: int | None) -> DropResult:
        """Evict least recently used states until at most `target_bytes` are held, as far as leases allow."""
        return self._evict("bytes", namespace_id, target_bytes, "admin")

    def reclaim(self) -> int:
        """Delete every block that has no owner; returns how many."""
        total = 0
        while step := self._store.reclaim():
            total += step
        return total

    def _evict_down(self, unit: str, namespace_id: int | None, target: int) -> None:
        result = self._evict(unit, namespace_id, target, "budget" if unit == "bytes" else "entries")
        if not result.dropped and self._held(unit, namespace_id) > target:
            raise Refused(
                "at_capacity",
                "the budget is taken by states that are leased or being recorded",
                retry_after_s=5,
            )

    def _evict(self, unit: str, namespace_id: int | None, target: int, cause: str) -> DropResult:
        dropped: list[str] = []
        with suppress(StorageError):  # without it the order is a little older than it could be
            self._notes.flush()
        self.reclaim()
        while (held := self._held(unit, namespace_id)) > target:
            entries = max(1, self._held("entries", namespace_id))
            average = max(1, held // entries)
            count = min(_MOST_AT_ONCE, max(1, (held - target) // average))
            victims = self._store.catalog.least_recent(namespace_id, count)
            if not victims and unit == "bytes":
                # Evidence gives way only when nothing in service is left to go.
                victims = self._store.catalog.least_recent(namespace_id, 1, "quarantined")
            if not victims:
                break
            result = self._store.evict(
                [row.state_id for row in victims], cause, statuses=("live", "quarantined")
            )
            dropped += result.dropped
            self._notes.count("evictions", cause, len(result.dropped))
            self.reclaim()
        return DropResult(tuple(dropped), (), 0)

    def _held(self, unit: str, namespace_id: int | None) -> int:
        if namespace_id is None:
            usage = self._store.catalog.usage()
            return usage.entries if unit == "entries" else usage.stored_bytes
        row = self._store.catalog.namespace_by_id(namespace_id)
        return row.entries if unit == "entries" else row.stored_bytes
