"""The life of a recording: admitted, filled, committed or given up."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from uuid_utils import uuid7

from app.engine.admission import Admission, Decision, no_room, overhead_bytes, refusal
from app.engine.cutting import block_count
from app.engine.derived import of_descriptor
from app.engine.errors import Conflicting, EngineError, InvalidPayload, NotFound, Refused
from app.engine.eviction import Evictor
from app.engine.geometry import Layout, given
from app.engine.identity import token_digest
from app.engine.notes import Notes
from app.engine.payload import checked_payload
from app.engine.policy import Policy
from app.engine.stages import Stage, Stages
from app.engine.threads import in_thread
from app.engine.writer import BlockWriter
from storage.errors import Busy, Conflict, DiskFull, NotHeld, OverLimit, WriterFailed
from storage.rows import ComponentRow, NewComponent, NewRecording, RecordingRow, StateRow
from storage.scoped import split
from storage.store import Store

_ADMISSION_WAIT_MS = 250
_ROOM_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What a client wants to record. `components` maps names to raw bytes, `geometry` to layouts."""

    namespace: str
    tokens: bytes
    kind: str
    components: Mapping[str, int]
    kv_descriptor: Mapping[str, Any] | None = None
    geometry: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    page_id: str | None = None
    replace: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to an admission that was not refused.

    `layouts`: rows of a token window (None: blocks in wire order) and number of blocks, by component.
    """

    verdict: Admission
    state_id: str
    ttl_ms: int
    layouts: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """Where a recording stands. `recording` None: it is live, or was."""

    state: StateRow
    namespace: str
    components: tuple[ComponentRow, ...]
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
        self._stages = Stages(notes)
        self._small = small
        self._committing: dict[str, asyncio.Future[RecordStatus]] = {}
        self.closing = False

    async def admit(self, request: AdmissionRequest) -> Admitted:
        """Say whether this may be recorded, and open the recording if so.

        Raises:
            InvalidInput: namespace, tokens, kind, components and descriptor do not fit together.
            Refused: with one of the codes of DESIGN section 2, rule 7.
        """
        started = time.perf_counter()
        new, layouts = await in_thread(self._small, self._new, request)
        decision = Decision(
            self._policy,
            new,
            free_disk_bytes=self._store.folder.free_bytes(),
            writer_stopped=self._writer.stopped or self.closing,
        )
        held = await in_thread(self._small, self._decide, new, decision)
        self._notes.count("admissions", decision.verdict.value)
        self._stages.since(Stage.ADMIT, started)
        if decision.verdict is Admission.ADMITTED:
            return Admitted(decision.verdict, new.state_id, new.ttl_ms, layouts)
        if decision.verdict is Admission.ALREADY_RECORDED:
            assert held is not None
            self._notes.touch(held)
            return Admitted(decision.verdict, held, 0)
        raise decision.refused or refusal(decision.verdict)

    async def commit(self, state_id: str, wait_s: float) -> RecordStatus:
        """Make a recording live. Committing again what is committed is the same answer again.

        Args:
            wait_s: how long to wait for durability; 0 does not wait.

        Returns:
            Where it stands: without a recording the state is durable, whatever has become of it since.

        Raises:
            NotFound: no such recording (any more).
            Conflicting: components are missing, or the prefix was recorded meanwhile.
            Refused, Unavailable: no room, or the writer has stopped.
        """
        pending = self._committing.get(state_id)
        if pending is None:
            status = await in_thread(self._small, self.status, state_id)
            if status.recording is None:
                return status
            missing = [c.name for c in status.recording.components if c.digest is None]
            if missing:
                raise Conflicting(
                    "components_missing", f"these components have not arrived: {', '.join(missing)}"
                )
            pending = asyncio.ensure_future(self._publish(status.recording))
            self._committing[state_id] = pending
            pending.add_done_callback(lambda done: self._committed(state_id, done))
        if wait_s <= 0:
            return await self.status_of(state_id)
        try:
            return await asyncio.wait_for(asyncio.shield(pending), wait_s)
        except TimeoutError:
            return await self.status_of(state_id)

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
        components = recording.components if recording else self._store.catalog.components(state.id)
        if not components and self._store.catalog.state(state_id) is None:
            raise NotFound("record_not_found", "it has gone just now")
        namespace = self._store.catalog.namespace_by_id(state.namespace_id).name
        return RecordStatus(state, namespace, components, recording, state_id in self._committing)

    async def drain(self) -> None:
        """Wait for the commits under way."""
        if self._committing:
            await asyncio.wait(list(self._committing.values()))

    def _new(
        self, request: AdmissionRequest
    ) -> tuple[NewRecording, dict[str, tuple[int | None, int]]]:
        token_count = len(request.tokens) // 4
        sizes, descriptor = checked_payload(
            request.kind, request.components, request.kv_descriptor, token_count
        )
        digest = token_digest(request.namespace, request.tokens)
        layouts = self._layouts(request, sizes)
        cuts = {
            name: (
                layouts[name].window_rows if name in layouts else None,
                block_count(layouts.get(name), size),
            )
            for name, size in sizes.items()
        }
        packed = {name: layout.geometry.pack() for name, layout in layouts.items()}
        described_bytes = len(descriptor or "") + sum(map(len, packed.values()))
        ttl_ms = self._policy.settings.record_ttl_s * 1000
        new = NewRecording(
            state_id=str(uuid7()),
            namespace=request.namespace,
            page_id=request.page_id or digest.hex(),
            kind=request.kind,
            tokens=request.tokens,
            token_digest=digest,
            components=tuple(
                NewComponent(
                    name,
                    size,
                    packed.get(name),
                    layouts[name].geometry.row_bytes if name in layouts else 0,
                )
                for name, size in sizes.items()
            ),
            kv_descriptor=descriptor,
            overhead_bytes=overhead_bytes(
                token_count, sum(count for _, count in cuts.values()), described_bytes
            ),
            replace=request.replace,
            ttl_ms=min(request.ttl_ms or ttl_ms, ttl_ms),
        )
        return new, cuts

    def _layouts(self, request: AdmissionRequest, sizes: Mapping[str, int]) -> dict[str, Layout]:
        """Layouts that the client gave, or that the KV descriptor says."""
        layouts = {}
        for name, document in request.geometry.items():
            if name not in sizes:
                raise InvalidPayload(
                    "invalid_geometry", "a geometry goes with an announced component", "geometry"
                )
            layouts[name] = Layout(given(document, sizes[name]), sizes[name])
            self._notes.count("geometry", "given")
        if request.kv_descriptor is not None and sizes.get("kv") and "kv" not in layouts:
            found = of_descriptor(request.kv_descriptor, sizes["kv"])
            self._notes.count("geometry", "derived" if found is not None else "not_derived")
            if found is not None:
                layouts["kv"] = Layout(found, sizes["kv"])
        return layouts

    def _decide(self, new: NewRecording, decision: Decision) -> str | None:
        for _ in range(_ROOM_ATTEMPTS):
            try:
                facts = self._store.admit(new, decision, _ADMISSION_WAIT_MS)
            except OverLimit as over:
                try:
                    limits = self._policy.limits(
                        self._store.catalog.namespace(new.namespace),
                        self._store.catalog.tenant_limits(split(new.namespace)[0]),
                    )
                    self._evictor.make_room(over, limits)
                except Refused as error:
                    decision.verdict, decision.refused = Admission.AT_CAPACITY, error
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
        decision.verdict, decision.refused = Admission.AT_CAPACITY, no_room()
        return None

    async def _publish(self, recording: RecordingRow) -> RecordStatus:
        state_id = recording.state.state_id
        limits = self._policy.limits(
            *await in_thread(
                self._small, self._store.catalog.with_tenant, recording.state.namespace_id
            )
        )
        asked = time.perf_counter()
        try:
            await asyncio.wrap_future(self._writer.publish(state_id, limits))
        except NotHeld as error:
            state = self._store.catalog.state(state_id)
            if state is not None and state.status != "recording":
                return self._durable(recording, state)  # another worker committed it
            raise NotFound("record_not_found", "the recording was aborted or expired") from error
        except Conflict as error:
            self._writer.call(lambda: self._store.drop_recording(state_id))
            raise Conflicting("already_recorded", "the prefix was recorded meanwhile") from error
        self._stages.since(Stage.COMMIT, asked)
        self._notes.count("records", "committed")
        self._notes.count("recorded_bytes", "", recording.state.logical_bytes)
        return self._durable(recording, dataclasses.replace(recording.state, status="live"))

    @staticmethod
    def _durable(recording: RecordingRow, state: StateRow) -> RecordStatus:
        """What a commit has made of a recording, whoever may have taken the state further since."""
        return RecordStatus(state, recording.namespace, recording.components, None, False)

    def _committed(self, state_id: str, done: asyncio.Future[RecordStatus]) -> None:
        self._committing.pop(state_id, None)
        if not done.cancelled():
            done.exception()  # told to whoever waits; nobody may
