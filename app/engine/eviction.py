"""Eviction by need: least recently used first, never what is leased or pinned, down to a low-water mark.

Quarantined states go last, and only for bytes: evidence must not fill the budget for ever.
What operators ask for goes another way (`evicting`).

Runs on the thread that needs the room. Each round is one durable SQL commit and as many reclaim
commits as it takes, so that the room is real before the caller goes on. Rounds are short, because the
write lock is held for one (a lookup that takes a lease waits for it).

Each round looks on behind where the last one found its victims. In a store of a million states with ten
thousand pinned ones at the old end a look from there took 0.9 ms, as without pins, and one from the
beginning 3 to 15 ms (two busy cores). What was passed over gets its turn when the place is forgotten, after
some seconds, or when nothing is left behind it.

A caller that waits for room does not wait for the low-water mark too: what goes beyond its need is
bounded, and the next one goes on.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from app.engine.errors import Refused
from app.engine.notes import Notes
from app.engine.policy import Policy
from storage.errors import OverLimit, StorageError
from storage.metadata.victims import Place
from storage.rows import Limits, NamespaceRow, StateRow, TenantUsage, Usage
from storage.store import Store

MOST_AT_ONCE: Final = 16
_MOST_BEYOND_NEED: Final = 256
# How long a place is remembered, and of how many scopes.
_REMEMBERED_SECONDS: Final = 10.0
_MOST_REMEMBERED: Final = 1024


class Evictor:
    """Makes room in one store."""

    def __init__(self, store: Store, policy: Policy, notes: Notes) -> None:
        self._store = store
        self._policy = policy
        self._notes = notes
        # By scope and status: where the last victims were, and until when that counts.
        self._places: dict[tuple[int | str | None, str], tuple[Place, float]] = {}

    def make_room(self, over: OverLimit, limits: Limits) -> None:
        """Evict until what raised `over` fits, and on towards the low-water mark if that is lower.

        Raises:
            Refused: `at_capacity`; all that is left is leased, pinned or being recorded.
        """
        cap = _cap(over, limits)
        if over.unit == "entries":
            enough = cap - over.need
        else:
            enough = max(0, self._held(over.unit, over.scope) - over.need)
        target = min(int(cap * self._policy.now().low_water), enough)
        self._evict_down(over.unit, over.scope, enough, target)

    def reclaim(self) -> int:
        """Delete every block that has no owner; returns how many."""
        total = 0
        while step := self._store.reclaim():
            total += step
        return total

    def _evict_down(self, unit: str, scope: int | str | None, enough: int, target: int) -> None:
        cause = "entries" if unit == "entries" else "budget"
        gone = self._evict(unit, scope, enough, cause)
        if self._held(unit, scope) > target:
            more = self._evict(unit, scope, target, cause, most=_MOST_BEYOND_NEED)
            gone += more
        if not gone and self._held(unit, scope) > enough:
            raise Refused(
                "at_capacity",
                "all that could make room is leased, pinned or being recorded",
                retry_after_s=5,
            )

    def _evict(
        self,
        unit: str,
        scope: int | str | None,
        target: int,
        cause: str,
        *,
        most: int | None = None,
    ) -> int:
        """Evict down to `target` of a unit, `most` states at most; returns how many went."""
        gone = 0
        with suppress(StorageError):  # without it the order is a little older than it could be
            self._notes.flush()
        self.reclaim()
        while (held := self._held(unit, scope)) > target:
            if most is not None and gone >= most:
                break
            entries = max(1, self._held("entries", scope))
            average = max(1, held // entries)
            count = min(MOST_AT_ONCE, max(1, (held - target) // average))
            victims = self._least_recent(scope, "live", count)
            if not victims and unit == "bytes":
                # Evidence gives way only when nothing in service is left to go.
                victims = self._least_recent(scope, "quarantined", 1)
            if not victims:
                break
            result = self._store.evict(
                [row.state_id for row in victims], cause, statuses=("live", "quarantined")
            )
            self._remember(scope, victims[-1])
            gone += len(result.dropped)
            self._notes.count("evictions", cause, len(result.dropped))
            self.reclaim()
        return gone

    def _least_recent(self, scope: int | str | None, status: str, count: int) -> list[StateRow]:
        place, until = self._places.get((scope, status), (None, 0.0))
        if place is not None and time.monotonic() < until:
            found = self._store.catalog.least_recent(scope, count, status, place)
            if found:
                return found
        self._places.pop((scope, status), None)
        return self._store.catalog.least_recent(scope, count, status)

    def _remember(self, scope: int | str | None, last: StateRow) -> None:
        """These are done with; a place that is known already is remembered no longer for that."""
        key = (scope, last.status)
        if len(self._places) >= _MOST_REMEMBERED:
            self._places.clear()
        _, until = self._places.get(key, (None, time.monotonic() + _REMEMBERED_SECONDS))
        self._places[key] = (Place(last.touched_at_ms, last.id), until)

    def _held(self, unit: str, scope: int | str | None) -> int:
        held: Usage | NamespaceRow | TenantUsage
        if isinstance(scope, str):
            _, held = self._store.catalog.tenant(scope)
            if unit == "logical_bytes":
                return held.logical_bytes
        elif scope is None:
            held = self._store.catalog.usage()
        else:
            held = self._store.catalog.namespace_by_id(scope)
        return held.entries if unit == "entries" else held.stored_bytes


def _cap(over: OverLimit, limits: Limits) -> int:
    caps: dict[str, int | None]
    if over.scope is None:
        caps = {"entries": limits.max_entries, "bytes": limits.budget_bytes}
    elif isinstance(over.scope, str):
        caps = {
            "entries": limits.tenant_entries,
            "bytes": limits.tenant_bytes,
            "logical_bytes": limits.tenant_logical_bytes,
        }
    else:
        caps = {"entries": limits.namespace_entries, "bytes": limits.namespace_bytes}
    cap = caps[over.unit]
    assert cap is not None, "only a limit that is set can be exceeded"
    return cap
