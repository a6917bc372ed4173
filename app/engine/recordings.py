"""The life of a recording: admitted, filled, committed or given up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from uuid_utils import uuid7

from app.engine.admission import Admission, Decision, overhead_bytes, refusal
from app.engine.errors import Conflicting, EngineError, NotFound
from app.engine.eviction import Evictor
from app.engine.identity import token_digest
from app.engine.notes import Notes
from app.engine.payload import checked_payload
from app.engine.policy import Policy
from app.engine.threads import in_thread
from app.engine.writer import BlockWriter
from storage.cut import FixedCut
from storage.errors import Busy, Conflict, DiskFull, NotHeld, OverLimit, WriterFailed
from storage.rows import NewComponent, NewRecording, RecordingRow, StateRow
from storage.store import Store

_ADMISSION_WAIT_MS = 250
_ROOM_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What a client wants to record. `components` maps names to raw bytes."""

    namespace: str
    tokens: bytes
    kind: str
    components: Mapping[str, int]
    kv_descriptor: Mapping[str, Any] | None = None
    page_id: str | None = None
    replace: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to an admission that was not refused."""

    verdict: Admission
    state_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """Where a recording stands."""

    state: StateRow
    namespace: str
    recording: RecordingRow | None
    committing: bool


class Recordings:
    """Admission, commit and abort."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        writer: BlockWriter,
        evictor: Evictor,
        notes: Notes,
        small: Executor,
    ) -> None:
        self._store = store
        self._policy = policy
        self._writer = writer
        self._evictor = evictor
        self._notes = notes
        self._small = small
        self._committing: dict[str, asyncio.Future[None]] = {}
        self.closing = False

    async def admit(self, request: AdmissionRequest) -> Admitted:
        """Say whether this may be recorded, and open the recording if so.

        Raises:
            InvalidInput: namespace, tokens, kind, components and descriptor do not fit together.
            Refused: with one of the codes of DESIGN section 2, rule 7.
        """
        new = await in_thread(self._small, self._new, request)
        decision = Decision(
            self._policy,
            new,
            free_disk_bytes=self._store.folder.free_bytes(),
            writer_stopped=self._writer.stopped or self.closing,
        )
        held = await in_thread(self._small, self._decide, new, decision)
        self._notes.count("admissions", decision.verdict.value)
        if decision.verdict is Admission.ADMITTED:
            return Admitted(decision.verdict, new.state_id, new.ttl_ms)
        if decision.verdict is Admission.ALREADY_RECORDED:
            assert held is not None
            self._notes.touch(held)
            return Admitted(decision.verdict, held, 0)
        raise refusal(decision.verdict)

    async def commit(self, state_id: str, wait_s: float) -> bool:
        """Make a recording live. Committing again what is committed is the same answer again.

        Args:
            wait_s: how long to wait for durability; 0 does not wait.

        Returns:
            Whether the state is live and durable now.

        Raises:
            NotFound: no such recording (any more).
            Conflicting: components are missing, or the prefix was recorded meanwhile.
            Refused, Unavailable: no room, or the writer has stopped.
        """
        pending = self._committing.get(state_id)
        if pending is None:
            status = await in_thread(self._small, self.status, state_id)
            if status.recording is None:
                return True
            missing = [c.name for c in status.recording.components if c.digest is None]
            if missing:
                raise Conflicting(
                    "components_missing", f"these components have not arrived: {', '.join(missing)}"
                )
            pending = asyncio.ensure_future(self._publish(status.recording))
            self._committing[state_id] = pending
            pending.add_done_callback(lambda done: self._committed(state_id, done))
        if wait_s <= 0:
            return False
        try:
            await asyncio.wait_for(asyncio.shield(pending), wait_s)
        except TimeoutError:
            return False
        return True

    async def abort(self, state_id: str) -> None:
        """Give a recording up with all it has brought.

        Raises:
            NotFound: no such recording is under way.
            Conflicting: it has been committed.
        """
        if not await asyncio.wrap_future(
            self._writer.call(lambda: self._store.drop_recording(state_id))
        ):
            if self._store.catalog.state(state_id) is not None:
                raise Conflicting("record_committed", "the recording has been committed")
            raise NotFound("record_not_found", "no such recording is under way")
        self._notes.count("records", "aborted")
        self._writer.call(self._evictor.reclaim)

    async def give_up(self, state_id: str) -> None:
        """Abort without asking whether there is anything to abort."""
        # Committed, gone, or the writer has stopped: expiry takes what is left.
        with suppress(EngineError):
            await self.abort(state_id)

    async def status_of(self, state_id: str) -> RecordStatus:
        """Where a recording stands, live or still under way.

        Raises:
            NotFound: no such recording (any more).
        """
        return await in_thread(self._small, self.status, state_id)

    def status(self, state_id: str) -> RecordStatus:
        """`status_of`, for a thread.

        Raises:
            NotFound: no such recording (any more).
        """
        recording = self._store.catalog.recording(state_id)
        state = recording.state if recording else self._store.catalog.state(state_id)
        if state is None:
            raise NotFound(
                "record_not_found", "no such recording: aborted, expired, evicted or never made"
            )
        if recording is None and state.status == "recording":
            return self.status(state_id)  # committed between the two reads
        namespace = self._store.catalog.namespace_by_id(state.namespace_id).name
        return RecordStatus(state, namespace, recording, state_id in self._committing)

    async def drain(self) -> None:
        """Wait for the commits under way."""
        if self._committing:
            await asyncio.wait(list(self._committing.values()))

    def _new(self, request: AdmissionRequest) -> NewRecording:
        token_count = len(request.tokens) // 4
        sizes, descriptor = checked_payload(
            request.kind, request.components, request.kv_descriptor, token_count
        )
        digest = token_digest(request.namespace, request.tokens)
        blocks = sum(len(FixedCut().plan(size).lengths) for size in sizes.values())
        ttl_ms = self._policy.settings.record_ttl_s * 1000
        return NewRecording(
            state_id=str(uuid7()),
            namespace=request.namespace,
            page_id=request.page_id or digest.hex(),
            kind=request.kind,
            tokens=request.tokens,
            token_digest=digest,
            components=tuple(NewComponent(name, size) for name, size in sizes.items()),
            kv_descriptor=descriptor,
            overhead_bytes=overhead_bytes(token_count, blocks, descriptor),
            replace=request.replace,
            ttl_ms=min(request.ttl_ms or ttl_ms, ttl_ms),
        )

    def _decide(self, new: NewRecording, decision: Decision) -> str | None:
        for _ in range(_ROOM_ATTEMPTS):
            try:
                facts = self._store.admit(new, decision, _ADMISSION_WAIT_MS)
            except OverLimit as over:
                try:
                    limits = self._policy.limits(self._store.catalog.namespace(new.namespace))
                    self._evictor.make_room(over, limits)
                except EngineError:
                    decision.verdict = Admission.AT_CAPACITY
                    return None
            except (Busy, Conflict):
                decision.verdict = Admission.BUSY
                return None
            except DiskFull:
                decision.verdict = Admission.LOW_SPACE
                return None
            except WriterFailed:
                decision.verdict = Admission.STOPPED
                return None
            else:
                return facts.held_state_id
        decision.verdict = Admission.AT_CAPACITY
        return None

    async def _publish(self, recording: RecordingRow) -> None:
        state_id = recording.state.state_id
        limits = self._policy.limits(
            await in_thread(
                self._small, self._store.catalog.namespace_by_id, recording.state.namespace_id
            )
        )
        try:
            await asyncio.wrap_future(self._writer.publish(state_id, limits))
        except NotHeld as error:
            state = self._store.catalog.state(state_id)
            if state is not None and state.status != "recording":
                return  # another worker committed it
            raise NotFound("record_not_found", "the recording was aborted or expired") from error
        except Conflict as error:
            self._writer.call(lambda: self._store.drop_recording(state_id))
            raise Conflicting("already_recorded", "the prefix was recorded meanwhile") from error
        self._notes.count("records", "committed")
        self._notes.count("recorded_bytes", "", recording.state.logical_bytes)

    def _committed(self, state_id: str, done: asyncio.Future[None]) -> None:
        self._committing.pop(state_id, None)
        if not done.cancelled():
            done.exception()  # told to whoever waits; nobody may
