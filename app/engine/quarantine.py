"""Taking bad states out of service, exactly the one that failed, and letting proven ones back in."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Executor

import structlog

from app.engine.errors import Conflicting, Damaged, EngineError, NotFound
from app.engine.faults import DETERMINISTIC, StateFault
from app.engine.holds import Failure
from app.engine.notes import Notes
from app.engine.reader import Reader
from app.engine.threads import in_thread
from storage.errors import BlockFault, Conflict, NotHeld, StorageError
from storage.rows import DropResult, Evidence, StateRow
from storage.store import Store

_log = structlog.get_logger("statehold.quarantine")


class Quarantine:
    """The desk where states leave service and may come back."""

    def __init__(
        self, store: Store, reader: Reader, notes: Notes, small: Executor, pool: Executor
    ) -> None:
        self._store = store
        self._reader = reader
        self._notes = notes
        self._small = small
        self._pool = pool

    async def take(self, found: StateFault) -> None:
        """Quarantine the state that failed.

        A state that is not live any more (another request was faster) is left as it is.

        Raises:
            Damaged: the quarantine itself failed; the error says both.
        """
        await self._take(found.state_id, found.evidence)

    async def report(self, state_id: str, lease_id: str | None, failure: Failure) -> bool:
        """A client could not import a state. True if that put it into quarantine.

        Only a deterministic class does; and only this very recording, never a newer one.
        """
        self._notes.count("failures_reported", failure.failure_class)
        if failure.failure_class not in DETERMINISTIC:
            return False
        return await self._take(
            state_id, Evidence(failure.failure_class, failure.reason, "client", lease_id=lease_id)
        )

    async def put_in(self, state_id: str, reason: str) -> None:
        """An operator takes a live state out of service.

        Raises:
            NotFound: no such state.
            Conflicting: it is not live.
        """
        state = self._store.catalog.state(state_id)
        if state is None:
            raise NotFound("state_not_found", "no such state")
        if not await self._take(state_id, Evidence("operator", reason, "operator")):
            raise Conflicting("state_not_live", "only a live state can be quarantined")

    async def release(self, state_id: str) -> None:
        """Verify every byte of a quarantined state, then put it back into service.

        Raises:
            NotFound: no such state.
            Conflicting: it is not quarantined, a newer recording is live, or it still fails.
        """
        state = self._quarantined(state_id)
        try:
            await in_thread(self._pool, self._verify, state)
        except StateFault as error:
            raise Conflicting(
                "still_failing", f"verification failed: {error.evidence.reason}"
            ) from error
        try:
            await in_thread(self._small, self._store.end_quarantine, state_id)
        except NotHeld as error:
            raise Conflicting("state_not_quarantined", "the state is not quarantined") from error
        except Conflict as error:
            raise Conflicting(
                "newer_recording", "a newer recording of the prefix is in service"
            ) from error
        self._notes.count("quarantine_released")

    async def purge(self, state_id: str) -> DropResult:
        """Remove a quarantined state for good.

        Raises:
            NotFound: no such state.
            Conflicting: it is not quarantined.
        """
        self._quarantined(state_id)
        result = await in_thread(
            self._small, self._store.evict, [state_id], "purged", statuses=("quarantined",)
        )
        await in_thread(self._small, self._store.reclaim)
        return result

    def _quarantined(self, state_id: str) -> StateRow:
        state = self._store.catalog.state(state_id)
        if state is None:
            raise NotFound("state_not_found", "no such state")
        if state.status != "quarantined":
            raise Conflicting("state_not_quarantined", "the state is not quarantined")
        return state

    def _verify(self, state: StateRow) -> None:
        manifest = self._reader.load(state)
        for part in manifest.parts:
            for seq, ref in enumerate(part.blocks):
                try:
                    self._store.blocks.read([ref])
                except BlockFault as error:
                    raise StateFault(
                        state.state_id,
                        Evidence(
                            "block_damaged",
                            error.reason,
                            "service",
                            part.name,
                            seq,
                            error.digest,
                            error.actual,
                        ),
                    ) from error

    async def _take(self, state_id: str, evidence: Evidence) -> bool:
        try:
            taken = await in_thread(self._small, self._store.quarantine, state_id, evidence)
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
