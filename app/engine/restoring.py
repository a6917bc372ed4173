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

from app.engine.blockreader import BlockReader, Selection, Stored
from app.engine.encoded import Encoded, EncodedReader
from app.engine.errors import Gone, NotFound, Refused, Unavailable
from app.engine.faults import StateFault
from app.engine.gaps import GAP_TOKENS, HIT
from app.engine.holds import Leases
from app.engine.lookup import Candidate, Hit, Passed, find, find_longer
from app.engine.manifest import Part, can_shorten
from app.engine.misses import Miss, explain
from app.engine.notes import Notes
from app.engine.payload import PayloadKind
from app.engine.policy import Policy
from app.engine.quarantine import Quarantine
from app.engine.reader import Opened, Range, Reader
from app.engine.stages import Stage, Stages
from app.engine.threads import in_thread
from storage.blocks.codec import Buffer
from storage.errors import BlockMissing, NotHeld
from storage.rows import ComponentRow, StateRow
from storage.store import Store

# A longer query, or more of them, takes about a millisecond to walk and to hash.
_SEARCH_IN_THREAD_TOKENS: Final = 256_000
_SEARCH_IN_THREAD_CANDIDATES: Final = 4


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
    """A state open for reading under a lease. Close it, whatever happens.

    `state` says what is read; `whole_tokens` is more where that is a prefix of a recorded state.
    """

    state: StateRow
    lease_id: str | None
    opened: Opened | Stored | Encoded
    candidate: int
    lookup_ms: float
    reconstruct_ms: float
    whole_tokens: int
    own_lease: bool = True
    sent: bool = False

    @property
    def stream_bytes(self) -> int:
        """Length of what is sent, where it is not the components' own bytes."""
        assert not isinstance(self.opened, Opened)
        return self.opened.stream_bytes


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
        self._block_reader = BlockReader(store, reader, pool)
        self._encoded_reader = EncodedReader(store, reader, pool)
        self._leases = leases
        self._quarantine = quarantine
        self._notes = notes
        self._stages = Stages(notes)
        self._pool = pool

    async def lookup(
        self,
        candidates: Sequence[Candidate],
        accept: Sequence[str],
        *,
        acquire: bool,
        ttl_ms: int | None = None,
        truncate: bool = False,
    ) -> Found | Missed:
        """The longest usable state of the first candidate that has one.

        Args:
            acquire: open a lease on it, if one can be written at this moment; otherwise only look (and
                leave the LRU order alone).
            truncate: the caller takes a shorter prefix of a dense `kv` state.
        """
        started = time.perf_counter()
        skip: set[str] = set()
        gone: set[str] = set()
        while True:
            found = await self._find(candidates, accept, skip, truncate=truncate)
            if isinstance(found, list):
                misses = await self._explain(candidates, found)
                return Missed(misses, self._stages.since(Stage.LOOKUP, started))
            state = found.state
            lookup_ms = self._stages.since(Stage.LOOKUP, started)
            if not acquire:
                self._hit(candidates, found)
                return Found(found, None, (), lookup_ms)
            asked = time.perf_counter()
            try:
                lease_id = await self._leases.open_if_possible(state.state_id, ttl_ms)
            except NotHeld:
                _vanished(state, gone, skip)
                continue
            self._stages.since(Stage.LEASE, asked)
            try:
                await in_thread(self._pool, self._reader.manifest, state)
            except StateFault as error:
                await self._step_aside(lease_id, error, skip)
                continue
            self._used(candidates, found)
            components = self._store.catalog.components(state.id)
            return Found(found, lease_id, components, _ms(started))

    async def restore(
        self,
        candidates: Sequence[Candidate],
        accept: Sequence[str],
        *,
        truncate: bool = False,
        selection: Selection | None = None,
        encode: bool = False,
    ) -> Reading | Missed:
        """Open the longest usable state for reading; a state that fails steps aside by itself.

        Args:
            truncate: the caller takes a shorter prefix of a dense `kv` state.
            selection: open these blocks as they are stored, instead of the components' bytes.
            encode: the caller decodes zstd; done where the stored form allows it.

        Raises:
            Damaged: a state failed and could not be quarantined.
        """
        started = time.perf_counter()
        skip: set[str] = set()
        gone: set[str] = set()
        while True:
            found = await self._find(candidates, accept, skip, truncate=truncate)
            if isinstance(found, list):
                misses = await self._explain(candidates, found)
                return Missed(misses, self._stages.since(Stage.LOOKUP, started))
            lookup_ms = self._stages.since(Stage.LOOKUP, started)
            looked_up = time.perf_counter()
            try:
                lease_id = await self._leases.open_if_possible(found.state.state_id)
            except NotHeld:
                _vanished(found.state, gone, skip)
                continue
            self._stages.since(Stage.LEASE, looked_up)
            leased = time.perf_counter()
            opened = await self._open(
                found.state,
                lease_id,
                selection,
                skip,
                prefix_tokens=found.prefix_tokens,
                encode=encode,
            )
            if opened is None:
                continue
            self._used(candidates, found)
            self._stages.since(Stage.RECONSTRUCT, leased)
            return Reading(
                state=opened.manifest.state,
                lease_id=lease_id,
                opened=opened,
                candidate=found.candidate,
                lookup_ms=lookup_ms,
                reconstruct_ms=_ms(looked_up),
                whole_tokens=found.state.token_count,
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
            self.readable(state.state_id, None)  # it may have gone, and its rows with it
            raise Gone("state_quarantined", "the state failed its proof just now") from error
        part = manifest.part(component)
        if part is None:
            raise NotFound("component_not_found", "the state has no such component")
        return part

    async def read(
        self,
        state_id: str,
        lease_id: str | None,
        wanted: Sequence[Range] | Selection,
        *,
        encode: bool = False,
    ) -> Reading:
        """Open ranges of components, or stored blocks, under the caller's lease or one of its own.

        Args:
            encode: one whole component is wanted, and the caller decodes zstd.

        Raises:
            NotFound: no such state.
            Gone: the lease has run out, or the state was found damaged just now.
        """
        started = time.perf_counter()
        state = self.readable(state_id, lease_id)
        own_lease = lease_id is None
        try:
            lease_id = lease_id or await self._leases.open_if_possible(state_id)
        except NotHeld as error:
            raise NotFound("state_not_found", "no such state") from error
        leased = time.perf_counter()
        opened = await self._open(
            state, lease_id, wanted, set(), own_lease=own_lease, encode=encode
        )
        if opened is None:
            self.readable(state_id, None)  # it may have gone, and its rows with it
            raise Gone("state_quarantined", "the state failed its proof and is out of service")
        self._notes.touch(state_id)
        self._stages.since(Stage.RECONSTRUCT, leased)
        return Reading(
            state=state,
            lease_id=lease_id,
            opened=opened,
            candidate=0,
            lookup_ms=0.0,
            reconstruct_ms=_ms(started),
            whole_tokens=state.token_count,
            own_lease=own_lease,
        )

    def readable(self, state_id: str, lease_id: str | None) -> StateRow:
        """The live state of that name. Fit for the event loop.

        Raises:
            NotFound: no such state, or it is still being recorded, or no such lease.
            Gone: it is quarantined, or the lease has run out.
        """
        if lease_id is not None:
            self._leases.check_held(lease_id, state_id)
        state = self._store.catalog.state(state_id)
        if state is None or state.status == "recording":
            raise NotFound("state_not_found", "no such state")
        if state.status == "quarantined":
            raise Gone("state_quarantined", "the state is out of service")
        return state

    async def stream(self, reading: Reading, ranges: Sequence[Range] = ()) -> AsyncIterator[Buffer]:
        """Verified bytes for sending; renews the lease as it goes.

        Args:
            ranges: of what was opened, as `Reader.stream` takes them; a block stream has none.

        Raises:
            Gone: it must be broken off; a state that failed has been quarantined.
        """
        renew_after = self._leases.default_ttl_ms / 2000
        renewed = time.monotonic()
        began = time.perf_counter()
        try:
            async for chunk in self._chunks(reading.opened, ranges):
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
        self._stages.since(Stage.SEND, began)

    async def close(self, reading: Reading) -> None:
        """End a reading; its lease ends with it unless the caller brought it."""
        if isinstance(reading.opened, Opened):
            self._reader.close(reading.opened)
        if reading.own_lease:
            await self._leases.end_with_response(reading.lease_id, sent=reading.sent)

    def _chunks(
        self, opened: Opened | Stored | Encoded, ranges: Sequence[Range]
    ) -> AsyncIterator[Buffer]:
        if isinstance(opened, Stored):
            return self._block_reader.stream(opened)
        if isinstance(opened, Encoded):
            return self._encoded_reader.stream(opened)
        return self._reader.stream(opened, ranges)

    async def _renew(self, reading: Reading) -> None:
        if reading.lease_id is not None:
            with suppress(Unavailable, Refused):
                await self._leases.heartbeat(reading.lease_id, None)

    async def _find(
        self,
        candidates: Sequence[Candidate],
        accept: Sequence[str],
        skip: set[str],
        *,
        truncate: bool,
    ) -> Hit | list[Passed]:
        passed: list[Passed] = []
        in_a_thread = _is_long(candidates)
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
                if in_a_thread:
                    found = await in_thread(self._pool, search)
                else:
                    found = search()
                if truncate and PayloadKind.KV in accept:
                    longer = await in_thread(
                        self._pool,
                        find_longer,
                        self._store.catalog,
                        self._shortens,
                        found,
                        candidate,
                        position,
                        frozenset(skip),
                    )
                    found = longer or found
            except StateFault as error:
                skip.add(error.state_id)
                await self._quarantine.take(error)
                continue
            if isinstance(found, Hit):
                return found
            passed.append(found)
            position += 1
        return passed

    def _shortens(self, state: StateRow, prefix_tokens: int) -> bool:
        return can_shorten(self._reader.manifest(state), prefix_tokens)

    async def _open(
        self,
        state: StateRow,
        lease_id: str | None,
        wanted: Sequence[Range] | Selection | None,
        skip: set[str],
        *,
        own_lease: bool = True,
        prefix_tokens: int | None = None,
        encode: bool = False,
    ) -> Opened | Stored | Encoded | None:
        """The opened state, or None if it failed and was put aside."""
        try:
            if isinstance(wanted, Selection):
                return await self._block_reader.open(state, wanted, prefix_tokens)
            if encode and prefix_tokens is None:
                component = None if wanted is None else wanted[0][0]
                encoded = await self._encoded_reader.open(state, component)
                if encoded is not None:
                    return encoded
            return await self._reader.open(state, wanted, prefix_tokens)
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

    def _hit(self, candidates: Sequence[Candidate], found: Hit) -> None:
        held_tokens = found.prefix_tokens or found.state.token_count
        gap = candidates[found.candidate].token_count - held_tokens
        self._notes.count("lookups", "hit")
        GAP_TOKENS.observe(self._notes, HIT, gap)

    def _used(self, candidates: Sequence[Candidate], found: Hit) -> None:
        self._notes.touch(found.state.state_id)
        self._notes.count("hit_tokens", "", found.prefix_tokens or found.state.token_count)
        self._hit(candidates, found)

    async def _explain(
        self, candidates: Sequence[Candidate], passed: list[Passed]
    ) -> tuple[Miss, ...]:
        def explained() -> tuple[Miss, ...]:
            return tuple(
                explain(self._store.catalog, candidate, way)
                for candidate, way in zip(candidates, passed, strict=True)
            )

        if _is_long(candidates):
            misses = await in_thread(self._pool, explained)
        else:
            misses = explained()
        self._notes.count("lookups", "miss")
        reason = misses[0].reason.value
        self._notes.count("misses", reason)
        if misses[0].evicted_ago is not None:
            self._notes.count("misses_evicted", misses[0].evicted_ago)
        gap = candidates[0].token_count - passed[0].longest_tokens
        GAP_TOKENS.observe(self._notes, reason, gap)
        return misses


def _vanished(state: StateRow, gone: set[str], skip: set[str]) -> None:
    """A state was found and is not there: it went meanwhile, and the next search finds another.

    Found a second time it is in the tree and not under its name, which only damage brings about.
    """
    (skip if state.state_id in gone else gone).add(state.state_id)


def _is_long(candidates: Sequence[Candidate]) -> bool:
    tokens = sum(candidate.token_count for candidate in candidates)
    return tokens > _SEARCH_IN_THREAD_TOKENS or len(candidates) > _SEARCH_IN_THREAD_CANDIDATES


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000
