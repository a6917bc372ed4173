"""Taking bad states out of service, exactly the one that failed, and letting proven ones back in."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import structlog

from app.engine.errors import Conflicting, Damaged, EngineError, NotFound, Refused
from app.engine.eviction import Evictor
from app.engine.faults import DETERMINISTIC, StateFault
from app.engine.forensics import Forensics, Raw
from app.engine.holds import Failure
from app.engine.notes import Notes
from app.engine.policy import Policy
from app.engine.threads import in_thread
from storage.clock import wall_ms
from storage.errors import Conflict, NotHeld, OverLimit, StorageError
from storage.rows import ComponentRow, DropResult, Evidence, Pin, StateRow
from storage.store import Store

_ROOM_ATTEMPTS = 4

_log = structlog.get_logger("statehold.quarantine")


@dataclass(frozen=True, slots=True)
class Held:
    """A quarantined state with its namespace's held name, what it is made of, and why it is here."""

    state: StateRow
    namespace: str
    components: tuple[ComponentRow, ...]
    evidence: Evidence
    pin: Pin | None


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification found. `evidence` is that of a quarantined state after it."""

    intact: bool
    evidence: Evidence | None
    proven_bytes: int
    seconds: float


class Quarantine:
    """The desk where states leave service and may come back."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        evictor: Evictor,
        forensics: Forensics,
        notes: Notes,
        small: Executor,
    ) -> None:
        self._store = store
        self._policy = policy
        self._evictor = evictor
        self._forensics = forensics
        self._notes = notes
        self._small = small

    async def take(self, found: StateFault) -> None:
        """Quarantine the state that failed.

        A state that is not live any more (another request was faster) is left as it is.

        Raises:
            Damaged: the quarantine itself failed; the error says both.
        """
        await self._take(found.state_id, found.evidence)

    async def report(
        self, state_id: str, lease_id: str | None, failure: Failure, client: str | None
    ) -> bool:
        """A client could not import a state. True if that put it into quarantine.

        Only a deterministic class does; and only this very recording, never a newer one.

        Args:
            client: id of its access token, None where it needed none.
        """
        self._notes.count("failures_reported", failure.failure_class)
        if failure.failure_class not in DETERMINISTIC:
            return False
        return await self._take(
            state_id,
            Evidence(
                failure.failure_class, failure.reason, "client", lease_id=lease_id, client=client
            ),
        )

    def taken_by(self, state_id: str, lease_id: str) -> bool:
        """Whether a report under this lease is why the state is out of service. Fit for the event loop."""
        state = self._store.catalog.state(state_id)
        if state is None or state.status != "quarantined":
            return False
        evidence = self._store.catalog.evidence(state.id)
        return evidence is not None and evidence.lease_id == lease_id

    async def put_in(self, state_id: str, reason: str, client: str | None) -> Evidence:
        """An operator takes a live state out of service. Returns what is kept of that.

        Args:
            client: id of the operator's access token, None where none was needed.

        Raises:
            NotFound: no such state.
            Conflicting: it is not live.
        """
        state = self._store.catalog.state(state_id)
        if state is None:
            raise NotFound("state_not_found", "no such state")
        evidence = Evidence("operator", reason, "operator", client=client, at_ms=wall_ms())
        if not await self._take(state_id, evidence):
            raise Conflicting("state_not_live", "only a live state can be quarantined")
        return evidence

    async def page(
        self,
        *,
        limit: int,
        after: tuple[int, str] | None,
        sees: Callable[[str], bool] | None,
        failure_class: str | None,
    ) -> list[Held]:
        """Quarantined states, those found last first.

        Args:
            after: (`at_ms` of the evidence, state id) of the last one before this page.
            sees: tells by its held name whether a namespace counts; None: all do.
        """
        rows = await in_thread(
            self._small,
            self._store.catalog.quarantined,
            limit=limit,
            after=after,
            sees=sees,
            failure_class=failure_class,
        )
        return [Held(*row) for row in rows]

    async def verify(self, state_id: str) -> Verified:
        """Read and prove every byte of a state, up to the first that fails.

        A live state that fails goes into quarantine. One that is in quarantine stays there, and its
        evidence says what was found.

        Raises:
            NotFound: no such state (any more).
            Conflicting: it is still being recorded.
        """
        began = time.perf_counter()
        proof = await self._forensics.prove(self._recorded(state_id))
        evidence = await in_thread(self._small, self._keep, state_id, proof.fault)
        return Verified(
            proof.fault is None, evidence, proof.proven_bytes, time.perf_counter() - began
        )

    async def open_raw(self, state_id: str, component: str) -> Raw:
        """A component of a live or quarantined state as it is; close it with `forensics`.

        A live state that turns out to be damaged goes into quarantine.

        Raises:
            NotFound: no such state, or it has no such component.
            Conflicting: it is still being recorded, or its rows are too damaged to read it.
        """
        raw = await self._forensics.open(self._recorded(state_id), component)
        try:
            if raw.fault is not None and raw.state.status == "live":
                await self.take(raw.fault)
        except BaseException:
            await self._forensics.close(raw)
            raise
        return raw

    async def release(self, state_id: str) -> None:
        """Verify every byte of a quarantined state, then put it back into service.

        Raises:
            NotFound: no such state.
            Conflicting: it is not quarantined, a newer recording is live, or it still fails.
            Refused: `at_capacity`; no room can be made for one more live state.
        """
        state = self._quarantined(state_id)
        proof = await self._forensics.prove(state)
        if proof.fault is not None:
            self._quarantined(state_id)  # it may have gone meanwhile, and its blocks with it
            await in_thread(self._small, self._keep, state_id, proof.fault)
            raise Conflicting(
                "still_failing", f"verification failed: {proof.fault.evidence.reason}"
            )
        await in_thread(self._small, self._put_back, state)
        self._notes.count("quarantine_released")

    def _put_back(self, state: StateRow) -> None:
        for _ in range(_ROOM_ATTEMPTS):
            limits = self._policy.limits(*self._store.catalog.with_tenant(state.namespace_id))
            try:
                self._store.end_quarantine(state.state_id, limits)
            except OverLimit as over:
                self._evictor.make_room(over, limits)
            except NotHeld as error:
                self._quarantined(state.state_id)
                raise Conflicting(
                    "state_not_quarantined", "the state is not quarantined"
                ) from error
            except Conflict as error:
                raise Conflicting("newer_recording", f"{error}") from error
            else:
                return
        raise Refused("at_capacity", "no room could be made", retry_after_s=5)

    async def purge(self, state_id: str) -> DropResult:
        """Remove a quarantined state for good, pinned or not.

        Raises:
            NotFound: no such state.
            Conflicting: it is not quarantined, or somebody holds a lease on it.
        """
        self._quarantined(state_id)
        result = await in_thread(
            self._small,
            self._store.evict,
            [state_id],
            "purged",
            statuses=("quarantined",),
            pinned_too=True,
        )
        if result.kept_leased:
            raise Conflicting("state_leased", "somebody holds a lease on the state")
        if not result.dropped:
            return await self.purge(state_id)  # somebody else was faster: it says with what
        self._notes.count("evictions", "purged", len(result.dropped))
        await in_thread(self._small, self._store.reclaim)
        return result

    def _quarantined(self, state_id: str) -> StateRow:
        state = self._store.catalog.state(state_id)
        if state is None:
            raise NotFound("state_not_found", "no such state")
        if state.status != "quarantined":
            raise Conflicting("state_not_quarantined", "the state is not quarantined")
        return state

    def _recorded(self, state_id: str) -> StateRow:
        state = self._store.catalog.state(state_id)
        if state is None:
            raise NotFound("state_not_found", "no such state")
        if state.status == "recording":
            raise Conflicting("state_not_live", "the state is still being recorded")
        return state

    def _keep(self, state_id: str, found: StateFault | None) -> Evidence | None:
        """Act on what a verification found; the evidence after it, None for a state in service."""
        state = self._store.catalog.state(state_id)
        is_live = state is not None and state.status == "live"
        if found is None or not is_live or not self.take_now(state_id, found.evidence):
            self._store.note_verified(state_id, None if found is None else found.evidence)
        state = self._store.catalog.state(state_id)
        if state is None:
            raise NotFound("state_not_found", "the state has gone")
        return self._store.catalog.evidence(state.id)

    def take_now(self, state_id: str, evidence: Evidence) -> bool:
        """Quarantine a state for this evidence. For a thread. False if it is not live (any more).

        Raises:
            Damaged: the quarantine itself failed; the error says both.
        """
        try:
            taken = self._store.quarantine(state_id, evidence)
        except (EngineError, StorageError) as error:
            raise Damaged(
                "quarantine_failed",
                f"state {state_id} failed ({evidence.failure_class}: {evidence.reason}) and could "
                f"not be quarantined ({type(error).__name__}: {error})",
            ) from error
        if taken:
            self._notes.count("quarantines", evidence.failure_class)
            _log.warning(
                "state_quarantined",
                state_id=state_id,
                **{
                    name: value.hex() if isinstance(value, bytes) else value
                    for name, value in dataclasses.asdict(evidence).items()
                    if value is not None
                },
            )
        return taken

    async def _take(self, state_id: str, evidence: Evidence) -> bool:
        return await in_thread(self._small, self.take_now, state_id, evidence)
