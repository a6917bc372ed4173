"""Eviction because somebody asked: of named states, or least recently used first out of a scope.

Leased and pinned states are kept and named. A dry run takes the same way through the same candidates and
adds up in memory what a real run would free, block by block (`Tally`); it ends where the real one would,
because that one, too, goes by the sum and looks at what is really held at its end.

Both go in short steps on a thread of their own: the write lock is held for a few states at a time, and
requests of others go between. Between two steps it rests for as long as the step took: the interpreter
lock is then free for the event loop, which would else get it only in turns of the switch interval (lookups
at 100 a second beside an eviction had a p50 of 64 ms without and 13 ms with it, minutes apart on two
busy cores). States whose recording began after the request are none of its business, so that it comes to
an end while others record. Nothing ends it early but a fault: a caller that goes away does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from app.engine.access import Caller
from app.engine.errors import NotFound, Unavailable
from app.engine.eviction import MOST_AT_ONCE, Evictor
from app.engine.notes import Notes
from app.engine.threads import in_thread
from storage.catalog import Catalog
from storage.clock import wall_ms
from storage.errors import StorageError
from storage.metadata.scope import Scope
from storage.metadata.victims import Place
from storage.rows import Candidate, StateRow
from storage.store import Store

MOST_LISTED: Final = 10_000
# Raw bytes of a round, so that large states do not hold the write lock for long: about 4,000 blocks.
_MOST_BYTES_AT_ONCE: Final = 1 << 30
_STEP_SECONDS: Final = 0.02
# A step that took longer had to wait for the device.
_LONGEST_REST_SECONDS: Final = 0.05
_PAGE: Final = 64
# About 100 MB of counts. Then a dry run says what it has found so far, and a real one begins anew.
_MOST_SHARED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Choice:
    """Which states are to go, least recently used first.

    Attributes:
        namespace, tenant: whose; without both all that the caller may see.
        target_bytes: until no more stored bytes are held there; None: every one. Quarantined states give
            way when nothing in service is left to.
        untouched_for_s: only those that nobody has used for so long.
    """

    namespace: str | None = None
    tenant: str | None = None
    target_bytes: int | None = None
    untouched_for_s: int | None = None


@dataclass(frozen=True, slots=True)
class Evicted:
    """What went, or would go.

    Attributes:
        evicted, kept_leased, kept_pinned: the first MOST_LISTED of each.
        freed_bytes: stored bytes of the blocks that nobody else owns, and the states' overhead; for a caller
            that does not see all, what its namespaces hold less: who else owns a block is not for it to know.
        more: whether a dry run ended before the real one would.
    """

    evicted: tuple[str, ...]
    evicted_count: int
    kept_leased: tuple[str, ...]
    kept_leased_count: int
    kept_pinned: tuple[str, ...]
    kept_pinned_count: int
    freed_bytes: int
    more: bool


class Tally:
    """What going states leave without an owner, one after another, if nobody else does anything.

    Kept are only blocks that states which have gone shared with others.
    """

    def __init__(self, catalog: Catalog, *, by_namespace: bool) -> None:
        """
        Args:
            by_namespace: whether it matters what namespaces hold, besides the store.
        """
        self._catalog = catalog
        self._by_namespace = by_namespace
        self._owners: dict[int, int] = {}
        self._within: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._owners) + len(self._within)

    def drop(self, row: StateRow) -> tuple[int, int]:
        """The state goes: bytes that this frees, and bytes that its namespace then holds less."""
        freed = left = row.overhead_bytes
        for block in self._catalog.owned_rows(row.id):
            owners = self._owners.pop(block.block, block.refs) - block.times
            if owners:
                self._owners[block.block] = owners
            else:
                freed += block.stored_bytes
            if self._by_namespace and not self._owners_within(
                row, block.block, block.times, owners
            ):
                left += block.stored_bytes
        return freed, left if self._by_namespace else freed

    def _owners_within(self, row: StateRow, block: int, times: int, owners: int) -> int:
        """Owners that a block has left in the namespace of a state that goes."""
        key = (row.namespace_id, block)
        before = self._within.pop(key, None)
        if before is None:
            if not owners:
                return 0
            before = self._catalog.owners_within(block, row.namespace_id)
        if after := before - times:
            self._within[key] = after
        return after


class Evictions:
    """What was asked for of one store."""

    def __init__(self, store: Store, evictor: Evictor, notes: Notes) -> None:
        self._store = store
        self._evictor = evictor
        self._notes = notes
        self._closing = False
        # Its own: looking for candidates can take a while, and no lease waits for that.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evictions")

    def close(self) -> None:
        """Finish the step under way; who waits for more is told so."""
        self._closing = True
        self._thread.shutdown(cancel_futures=True)

    async def of_states(
        self, state_ids: Sequence[str], caller: Caller, *, dry_run: bool
    ) -> Evicted:
        """Evict these live states.

        Raises:
            NotFound: one of them is no live state that the caller may see; nothing was evicted then.
        """
        wanted = list(dict.fromkeys(state_ids))
        await in_thread(self._thread, self._check, state_ids, caller.sees)
        found = (self._store.catalog.candidate(state_id) for state_id in wanted)
        live = (one for one in found if one is not None and one.state.status == "live")
        return await self._run(live, "admin", None, caller, dry_run=dry_run)

    async def of(self, choice: Choice, caller: Caller, *, dry_run: bool) -> Evicted:
        """Evict what a choice says.

        Raises:
            NotFound: no such namespace.
            Forbidden: a namespace or a tenant that the caller may not use.
        """
        scope = await self._scope(choice, caller)
        now_ms, target = wall_ms(), None
        # Where the clock was set back, what is there was made after this moment by it.
        latest_ms = max(now_ms, self._store.catalog.newest_touch_ms())
        if choice.target_bytes is not None:
            target = _Target(self._store.catalog, scope, choice.target_bytes)
        touched_to_ms = None
        if choice.untouched_for_s is not None:
            touched_to_ms = now_ms - 1000 * choice.untouched_for_s
        elif dry_run:
            # One that is used meanwhile would come a second time, and be counted twice.
            touched_to_ms = latest_ms
        candidates = _walk(
            self._store.catalog,
            scope,
            # Evidence gives way only for bytes, and only when nothing in service is left to.
            ("live",) if target is None else ("live", "quarantined"),
            created_to_ms=latest_ms,
            touched_to_ms=touched_to_ms,
        )
        cause = "admin" if choice.untouched_for_s is None else "age"
        return await self._run(candidates, cause, target, caller, dry_run=dry_run)

    async def _run(
        self,
        candidates: Iterator[Candidate],
        cause: str,
        target: _Target | None,
        caller: Caller,
        *,
        dry_run: bool,
    ) -> Evicted:
        run = _Run(
            self._store,
            self._evictor,
            self._notes,
            candidates,
            cause,
            target,
            dry_run=dry_run,
            sees_all=caller.unbounded,
        )
        await in_thread(self._thread, run.begin)
        while not run.done:
            if self._closing:
                raise Unavailable("stopped", "the service is stopping; a part has gone", 5)
            began = time.monotonic()
            await in_thread(self._thread, run.step)
            await asyncio.sleep(min(_LONGEST_REST_SECONDS, time.monotonic() - began))
        return run.found

    async def _scope(self, choice: Choice, caller: Caller) -> Scope:
        if choice.namespace is not None:
            row = self._store.catalog.namespace(caller.held(choice.namespace, choice.tenant))
            if row is None:
                raise NotFound("namespace_not_found", "no such namespace")
            return row.id
        tenant = caller.whole(choice.tenant)
        if caller.patterns is None:
            return tenant
        names = await in_thread(self._thread, self._store.catalog.namespace_names, caller.home)
        return tuple(row for row, held in names if caller.sees(held))

    def _check(self, state_ids: Sequence[str], sees: Callable[[str | None], bool]) -> None:
        seen: dict[int, bool] = {}
        for place, state_id in enumerate(state_ids):
            row = self._store.catalog.state(state_id)
            if row is not None and row.namespace_id not in seen:
                name = self._store.catalog.namespace_by_id(row.namespace_id).name
                seen[row.namespace_id] = sees(name)
            if row is None or row.status != "live" or not seen[row.namespace_id]:
                # Not named: a state of somebody else is answered like none, to the letter.
                raise NotFound(
                    "state_not_found", "one of them is no live state", f"state_ids.{place}"
                )


@dataclass(frozen=True, slots=True)
class _Target:
    """So many stored bytes may stay in a scope."""

    catalog: Catalog
    scope: Scope
    most_bytes: int

    def over(self) -> int:
        """Bytes that are held beyond it; what waits to be reclaimed does not count."""
        match self.scope:
            case None:
                held = self.catalog.usage().stored_bytes - self.catalog.unowned_bytes()
            case str(tenant):
                held = self.catalog.tenant(tenant)[1].stored_bytes
            case int(row):
                held = self.catalog.namespace_by_id(row).stored_bytes
            case rows:
                held = self.catalog.stored_bytes_of(rows)
        return held - self.most_bytes


class _Run:
    """One request on its way. `step` is called until it is `done`, by one thread at a time."""

    def __init__(
        self,
        store: Store,
        evictor: Evictor,
        notes: Notes,
        candidates: Iterator[Candidate],
        cause: str,
        target: _Target | None,
        *,
        dry_run: bool,
        sees_all: bool,
    ) -> None:
        self._store = store
        self._evictor = evictor
        self._notes = notes
        self._sees_all = sees_all
        self._candidates = candidates
        self._cause = cause
        self._target = target
        self._dry_run = dry_run
        self._over = 0
        self._exhausted = False
        self._went = _Names()
        self._leased = _Names()
        self._pinned = _Names()
        self._freed_bytes = 0
        self._cut_short = False
        self._tally = self._new_tally()
        self.done = False

    @property
    def found(self) -> Evicted:
        """The answer so far."""
        return Evicted(
            tuple(self._went.first),
            self._went.count,
            tuple(self._leased.first),
            self._leased.count,
            tuple(self._pinned.first),
            self._pinned.count,
            self._freed_bytes,
            self._cut_short,
        )

    def begin(self) -> None:
        """Bring the order of last use up to date, and see how much has to go."""
        with suppress(StorageError):  # without it the order is a little older than it could be
            self._notes.flush()
        if not self._dry_run:
            self._evictor.reclaim()
        if self._target is not None:
            self._over = self._target.over()

    def step(self) -> None:
        """One round of a real run, or some of a dry one."""
        victims, ended = self._next()
        if self._dry_run:
            self._went.add(row.state_id for row in victims)
            self._cut_short = len(self._tally) > _MOST_SHARED
            self.done = ended or self._cut_short
            return
        self._evict(victims)
        if self._target is None:
            self.done = ended
        elif ended or len(self._tally) > _MOST_SHARED:
            # What others did meanwhile shows in what is held now.
            self._tally = self._new_tally()
            self._over = self._target.over()
            self.done = self._exhausted or self._over <= 0

    def _next(self) -> tuple[list[StateRow], bool]:
        """Victims of a round, and whether none come after them."""
        until = time.monotonic() + _STEP_SECONDS
        victims: list[StateRow] = []
        raw_bytes = 0
        while time.monotonic() < until and len(self._tally) <= _MOST_SHARED:
            if not self._dry_run and (
                len(victims) == MOST_AT_ONCE or raw_bytes >= _MOST_BYTES_AT_ONCE
            ):
                break
            if self._target is not None and self._over <= 0:
                return victims, True
            one = next(self._candidates, None)
            if one is None:
                self._exhausted = True
                return victims, True
            if one.leased:
                self._leased.add((one.state.state_id,))
            elif one.pinned:
                self._pinned.add((one.state.state_id,))
            else:
                victims.append(one.state)
                raw_bytes += one.state.logical_bytes
                self._count(one.state)
        return victims, False

    def _count(self, row: StateRow) -> None:
        if self._dry_run or self._target is not None:
            freed, left = self._tally.drop(row)
            self._over -= left
            if self._dry_run:
                self._freed_bytes += freed if self._sees_all else left

    def _evict(self, victims: Sequence[StateRow]) -> None:
        for status in dict.fromkeys(row.status for row in victims):
            result = self._store.evict(
                [row.state_id for row in victims if row.status == status],
                self._cause,
                statuses=(status,),
            )
            self._went.add(result.dropped)
            # One that was kept comes again when it is used meanwhile.
            self._leased.forget(result.dropped)
            self._pinned.forget(result.dropped)
            self._leased.add(result.kept_leased)
            self._pinned.add(result.kept_pinned)
            self._freed_bytes += result.freed_bytes if self._sees_all else result.left_bytes
            self._notes.count("evictions", self._cause, len(result.dropped))
        if victims:
            self._evictor.reclaim()

    def _new_tally(self) -> Tally:
        of_store = self._target is None or self._target.scope is None
        return Tally(self._store.catalog, by_namespace=not (of_store and self._sees_all))


class _Names:
    """How many there were, each counted once, and the first of them."""

    def __init__(self) -> None:
        self.first: dict[str, None] = {}
        self.count = 0

    def add(self, names: Iterable[str]) -> None:
        for name in names:
            # One that was kept and used comes a second time; beyond the first it counts twice then.
            if name in self.first:
                continue
            self.count += 1
            if len(self.first) < MOST_LISTED:
                self.first[name] = None

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.first:
                del self.first[name]
                self.count -= 1


def _walk(
    catalog: Catalog,
    scope: Scope,
    statuses: Sequence[str],
    *,
    created_to_ms: int,
    touched_to_ms: int | None,
) -> Iterator[Candidate]:
    """Candidates of a scope, least recently used first, read as they are wanted."""
    for status in statuses:
        after: Place | None = None
        while True:
            page = catalog.candidates(
                scope,
                _PAGE,
                status,
                after=after,
                created_to_ms=created_to_ms,
                touched_to_ms=touched_to_ms,
            )
            yield from page
            if len(page) < _PAGE:
                break
            last = page[-1].state
            after = Place(last.touched_at_ms, last.id)
