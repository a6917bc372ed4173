"""Finding and giving back: the first candidate with a usable state wins, and bad ones step aside.

Every pass of the loop either answers, or takes one state out of the running (quarantined, evicted
meanwhile), so it ends; a request whose states keep vanishing under it ends as a miss.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from app.engine.errors import Gone, NotFound, Refused, Unavailable
from app.engine.faults import StateFault
from app.engine.holds import Leases
from app.engine.lookup import Candidate, Hit, Passed, find
from app.engine.manifest import Part
from app.engine.misses import Miss, explain
from app.engine.notes import Notes
from app.engine.policy import Policy
from app.engine.quarantine import Quarantine
from app.engine.reader import Opened, Range, Reader
from app.engine.threads import in_thread
from storage.blocks.codec import Buffer
from storage.errors import BlockMissing, NotHeld
from storage.rows import ComponentRow, StateRow
from storage.store import Store

# A longer query takes about a millisecond to walk and to hash.
_SEARCH_IN_THREAD_TOKENS: Final = 256_000


@dataclass(frozen=True, slots=True)
class Found:
    """A lookup's answer. `lease_id` and `components` only where a lease was asked for."""

    hit: Hit
    lease_id: str | None
    components: tuple[ComponentRow, ...]
    lookup_ms: float


@dataclass(frozen=True, slots=True)
class Missed:
    """Nothing usable; one reason for each candidate, in order."""

    misses: tuple[Miss, ...]
    lookup_ms: float


@dataclass(slots=True)
class Reading:
    """A state open for reading under a lease. Close it, whatever happens."""

    state: StateRow
    lease_id: str | None
    opened: Opened
    candidate: int
    lookup_ms: float
    reconstruct_ms: float
    own_lease: bool = True
    sent: bool = False


class Restorer:
    """Lookups and restores."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        reader: Reader,
        leases: Leases,
        quarantine: Quarantine,
        notes: Notes,
        pool: Executor,
    ) -> None:
        self._store = store
        self._policy = policy
        self._reader = reader
        self._leases = leases
        self._quarantine = quarantine
        self._notes = notes
        self._pool = pool

    async def lookup(
        self,
        candidates: Sequence[Candidate],
        accept: Sequence[str],
        *,
        acquire: bool,
        ttl_ms: int | None = None,
    ) -> Found | Missed:
        """The longest usable state of the first candidate that has one.

        Args:
            acquire: open a lease on it; otherwise only look (and leave the LRU order alone).
        """
        started = time.perf_counter()
        skip: set[str] = set()
        while True:
            found = await self._find(candidates, accept, skip)
            if isinstance(found, list):
                return Missed(self._explain(candidates, found), _ms(started))
            state = found.state
            if not acquire:
                self._notes.count("lookups", "hit")
                return Found(found, None, (), _ms(started))
            try:
                lease_id = await self._leases.open(state.state_id, ttl_ms)
            except NotHeld:
                continue
            try:
                await in_thread(self._pool, self._reader.manifest, state)
            except StateFault as error:
                await self._step_aside(lease_id, error, skip)
                continue
            self._used(state, found)
            components = self._store.catalog.components(state.id)
            return Found(found, lease_id, components, _ms(started))

    async def restore(
        self, candidates: Sequence[Candidate], accept: Sequence[str]
    ) -> Reading | Missed:
        """Open the longest usable state for reading; a state that fails steps aside by itself.

        Raises:
            Damaged: a state failed and could not be quarantined.
        """
        started = time.perf_counter()
        skip: set[str] = set()
        while True:
            found = await self._find(candidates, accept, skip)
            if isinstance(found, list):
                return Missed(self._explain(candidates, found), _ms(started))
            looked_up = time.perf_counter()
            try:
                lease_id = await self._leases.open_for_response(found.state.state_id)
            except NotHeld:
                continue
            opened = await self._open(found.state, lease_id, None, skip)
            if opened is None:
                continue
            self._used(found.state, found)
            return Reading(
                state=found.state,
                lease_id=lease_id,
                opened=opened,
                candidate=found.candidate,
                lookup_ms=(looked_up - started) * 1000,
                reconstruct_ms=_ms(looked_up),
            )

    async def part(self, state: StateRow, component: str) -> Part:
        """The length and digest of a component, from the proven manifest.

        Raises:
            NotFound: the state has no such component.
            Gone: the state was found damaged just now.
        """
        try:
            manifest = await in_thread(self._pool, self._reader.manifest, state)
        except StateFault as error:
            await self._quarantine.take(error)
            raise Gone("state_quarantined", "the state failed its proof just now") from error
        part = manifest.part(component)
        if part is None:
            raise NotFound("component_not_found", "the state has no such component")
        return part

    async def read(
        self, state_id: str, component: str, lease_id: str | None, start: int, end: int
    ) -> Reading:
        """Open bytes [start, end) of a component, under the caller's lease or one of its own.

        Raises:
            NotFound: no such state.
            Gone: the lease has run out, or the state was found damaged just now.
        """
        started = time.perf_counter()
        state = self.readable(state_id, lease_id)
        own_lease = lease_id is None
        try:
            lease_id = lease_id or await self._leases.open_for_response(state_id)
        except NotHeld as error:
            raise NotFound("state_not_found", "no such state") from error
        opened = await self._open(
            state, lease_id, [(component, start, end)], set(), own_lease=own_lease
        )
        if opened is None:
            raise Gone("state_quarantined", "the state failed its proof and is out of service")
        self._notes.touch(state_id)
        return Reading(
            state=state,
            lease_id=lease_id,
            opened=opened,
            candidate=0,
            lookup_ms=0.0,
            reconstruct_ms=_ms(started),
            own_lease=own_lease,
        )

    def readable(self, state_id: str, lease_id: str | None) -> StateRow:
        """The live state of that name. Fit for the event loop.

        Raises:
            NotFound: no such state, or it is still being recorded, or no such lease.
            Gone: it is quarantined, or the lease has run out.
        """
        if lease_id is not None and self._leases.held_state(lease_id) != state_id:
            raise NotFound("lease_not_found", "no such lease on this state")
        state = self._store.catalog.state(state_id)
        if state is None or state.status == "recording":
            raise NotFound("state_not_found", "no such state")
        if state.status == "quarantined":
            raise Gone("state_quarantined", "the state is out of service")
        return state

    async def stream(self, reading: Reading, ranges: Sequence[Range]) -> AsyncIterator[Buffer]:
        """Verified bytes for sending; renews the lease as it goes. See `Reader.stream`.

        Raises:
            Gone: it must be broken off; a state that failed has been quarantined.
        """
        renew_after = self._leases.default_ttl_ms / 2000
        renewed = time.monotonic()
        try:
            async for chunk in self._reader.stream(reading.opened, ranges):
                if time.monotonic() - renewed > renew_after:
                    await self._renew(reading)
                    renewed = time.monotonic()
                yield chunk
                self._notes.count("restored_bytes", "", len(chunk))
        except StateFault as error:
            await self._quarantine.take(error)
            raise Gone(
                "state_quarantined", "the state failed its proof while being sent"
            ) from error
        except BlockMissing as error:
            raise Gone("lease_expired", "the state went while it was being sent") from error
        reading.sent = True

    async def close(self, reading: Reading) -> None:
        """End a reading; its lease ends with it unless the caller brought it."""
        self._reader.close(reading.opened)
        if reading.own_lease:
            await self._leases.end_with_response(reading.lease_id, sent=reading.sent)

    async def _renew(self, reading: Reading) -> None:
        if reading.lease_id is not None:
            with suppress(Unavailable, Refused):
                await self._leases.heartbeat(reading.lease_id, None)

    async def _find(
        self, candidates: Sequence[Candidate], accept: Sequence[str], skip: set[str]
    ) -> Hit | list[Passed]:
        passed: list[Passed] = []
        position = 0
        while position < len(candidates):
            candidate = candidates[position]
            search = partial(
                find,
                self._store.catalog,
                self._policy,
                position,
                candidate,
                accept,
                frozenset(skip),
            )
            try:
                if candidate.token_count > _SEARCH_IN_THREAD_TOKENS:
                    found = await in_thread(self._pool, search)
                else:
                    found = search()
            except StateFault as error:
                skip.add(error.state_id)
                await self._quarantine.take(error)
                continue
            if isinstance(found, Hit):
                return found
            passed.append(found)
            position += 1
        return passed

    async def _open(
        self,
        state: StateRow,
        lease_id: str | None,
        ranges: Sequence[Range] | None,
        skip: set[str],
        *,
        own_lease: bool = True,
    ) -> Opened | None:
        """The opened state, or None if it failed and was put aside."""
        try:
            return await self._reader.open(state, ranges)
        except StateFault as error:
            await self._step_aside(lease_id if own_lease else None, error, skip)
            return None
        except BlockMissing:
            skip.add(state.state_id)
            return None
        except BaseException:
            if own_lease:
                await self._leases.end_with_response(lease_id, sent=False)
            raise

    async def _step_aside(self, lease_id: str | None, error: StateFault, skip: set[str]) -> None:
        skip.add(error.state_id)
        try:
            await self._quarantine.take(error)
        finally:
            if lease_id is not None:
                await self._leases.end_with_response(lease_id, sent=False)

    def _used(self, state: StateRow, found: Hit) -> None:
        self._notes.touch(state.state_id)
        self._notes.count("lookups", "hit")
        self._notes.count("hit_tokens", "", found.state.token_count)

    def _explain(self, candidates: Sequence[Candidate], passed: list[Passed]) -> tuple[Miss, ...]:
        misses = tuple(
            explain(self._store.catalog, candidate, way)
            for candidate, way in zip(candidates, passed, strict=True)
        )
        self._notes.count("lookups", "miss")
        self._notes.count("misses", misses[0].reason.value)
        return misses


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000
