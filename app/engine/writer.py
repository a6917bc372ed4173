"""The one thread that writes blocks and publishes recordings, and the queue in front of it.

Everything that a recording does to the store goes through here in order, so that a later step of a
recording finds the earlier ones done, and steps of different recordings that wait at the same
moment share LMDB commits, the barrier and the SQL commit. The queue is bounded by the memory budget
of the uploads that feed it (`recorder.py`).

A write or sync that failed leaves it unknown what the kernel still holds: the writer then stops for
good and says so (`failed`); a restart verifies. A full disk does not stop it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import structlog

from app.engine.admission import no_room
from app.engine.errors import EngineError, Unavailable
from app.engine.eviction import Evictor
from app.engine.manifest import seal
from app.engine.notes import Notes
from app.engine.stages import Stage, Stages
from app.engine.threads import trouble
from storage.blocks.codec import EncodedBlock
from storage.errors import OverLimit, StorageError, WriterFailed
from storage.rows import Limits, OwnedBlock, RecordingRow, StateRow
from storage.store import Publication, Store

_BATCH_BYTES = 32 << 20
_ROOM_ATTEMPTS = 8

_log = structlog.get_logger("statehold.writer")


@dataclass(frozen=True, slots=True)
class _Blocks:
    recording: StateRow
    ordinal: int
    seqs: Sequence[int]
    blocks: Sequence[EncodedBlock]
    limits: Limits
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Publish:
    state_id: str
    limits: Limits
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Call:
    run: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)


_Job = _Blocks | _Publish | _Call


class BlockWriter:
    """The write thread of one process."""

    def __init__(self, store: Store, evictor: Evictor, notes: Notes) -> None:
        self._store = store
        self._evictor = evictor
        self._notes = notes
        self._stages = Stages(notes)
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._held_back: _Job | None = None
        self._closed = False
        self.failed: str | None = None
        self._thread = threading.Thread(target=self._run, name="block-writer", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closed or self.failed is not None or self._store.failed

    @property
    def queued(self) -> int:
        """Jobs that wait."""
        return self._queue.qsize() + (self._held_back is not None)

    def write(
        self,
        recording: StateRow,
        ordinal: int,
        seqs: Sequence[int],
        blocks: Sequence[EncodedBlock],
        limits: Limits,
    ) -> Future[None]:
        """Own and write blocks of a component; done when LMDB has committed them."""
        return self._put(_Blocks(recording, ordinal, seqs, blocks, limits))

    def publish(self, state_id: str, limits: Limits) -> Future[None]:
        """Make a whole recording live; done when it is durable."""
        return self._put(_Publish(state_id, limits))

    def call(self, run: Callable[[], Any]) -> Future[Any]:
        """Run something in order with the writes before it."""
        return self._put(_Call(run))

    def close(self) -> None:
        """Finish what waits, then stop."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _put(self, job: _Job) -> Future[Any]:
        # From here on a waiter that goes away cannot cancel the job, only stop waiting for it.
        job.done.set_running_or_notify_cancel()
        if self.stopped:
            job.done.set_exception(Unavailable("stopped", "the writer has stopped", 30))
        else:
            self._queue.put(job)
        return job.done

    def _run(self) -> None:
        while True:
            jobs = self._take()
            if jobs is None:
                return
            try:
                self._work(jobs)
            except Exception as error:
                # A fault of ours: its transaction was rolled back, so the writer can go on; what
                # must not happen is that anybody waits for ever.
                _log.exception("writer_error")
                for job in jobs:
                    _settle(job, error)

    def _take(self) -> list[_Job] | None:
        """The jobs of one round: all of one sort that stand together, up to a batch of bytes."""
        first = self._held_back or self._queue.get()
        self._held_back = None
        if first is None:
            return None
        jobs, size = [first], _size(first)
        while size < _BATCH_BYTES and not isinstance(first, _Call):
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._queue.put(None)
                break
            if type(job) is not type(first):
                self._held_back = job
                break
            jobs.append(job)
            size += _size(job)
        return jobs

    def _work(self, jobs: list[_Job]) -> None:
        if self.failed is not None or self._store.failed:
            for job in jobs:
                _settle(job, Unavailable("stopped", "the writer has stopped", 30))
            return
        blocks = [job for job in jobs if isinstance(job, _Blocks)]
        publications = [job for job in jobs if isinstance(job, _Publish)]
        if blocks:
            self._write(blocks)
        if publications:
            self._publish(publications)
        for job in jobs:
            if isinstance(job, _Call):
                try:
                    job.done.set_result(job.run())
                except WriterFailed as error:
                    self._fail("a write failed", error)
                    job.done.set_exception(trouble(error))
                except StorageError as error:
                    job.done.set_exception(trouble(error))
                except Exception as error:
                    job.done.set_exception(error)

    def _write(self, jobs: list[_Blocks]) -> None:
        began = time.perf_counter()
        owned = []
        for job in jobs:
            error = self._with_room(job.limits, lambda job=job: self._own(job))  # type: ignore[misc]
            if error is None:
                owned.append(job)
            else:
                _settle(job, error)
        if not owned:
            return
        try:
            written = self._store.put([block for job in owned for block in job.blocks])
        except StorageError as error:
            if isinstance(error, WriterFailed):
                self._fail("a block write failed", error)
            for job in owned:
                _settle(job, trouble(error))
            return
        total = sum(len(job.blocks) for job in owned)
        raw_bytes = sum(block.raw_bytes for job in owned for block in job.blocks)
        self._notes.count("blocks_written", "", written.blocks)
        self._notes.count("blocks_deduplicated", "", total - written.blocks)
        self._notes.count("raw_bytes_written", "", written.raw_bytes)
        self._notes.count("raw_bytes_deduplicated", "", raw_bytes - written.raw_bytes)
        self._notes.count("stored_bytes_written", "", written.value_bytes)
        self._stages.since(Stage.WRITE, began)
        for job in owned:
            job.done.set_result(None)

    def _own(self, job: _Blocks) -> None:
        self._store.own(job.recording, job.ordinal, job.seqs, job.blocks, job.limits)

    def _publish(self, jobs: list[_Publish]) -> None:
        try:
            self._store.barrier()
            waiting = jobs
            for _ in range(_ROOM_ATTEMPTS):
                waiting = self._publish_once(waiting)
                if not waiting:
                    return
            for job in waiting:
                _settle(job, no_room())
        except StorageError as error:
            if isinstance(error, WriterFailed):
                self._fail("a commit failed", error)
            for job in jobs:
                _settle(job, trouble(error))

    def _publish_once(self, jobs: list[_Publish]) -> list[_Publish]:
        """One commit for all of them; returns those that need room first, which was then made."""
        results = self._store.publish(
            [Publication(job.state_id, _manifest_digest, job.limits) for job in jobs]
        )
        again = []
        for job, result in zip(jobs, results, strict=True):
            if result is None:
                job.done.set_result(None)
            elif isinstance(result, OverLimit):
                try:
                    self._evictor.make_room(result, job.limits)
                    again.append(job)
                except EngineError as error:
                    _settle(job, error)
            else:
                _settle(job, result)
        return again

    def _with_room(self, limits: Limits, run: Callable[[], None]) -> Exception | None:
        """Run a step, making room as often as it asks; returns what stopped it."""
        for _ in range(_ROOM_ATTEMPTS):
            try:
                run()
            except OverLimit as over:
                try:
                    self._evictor.make_room(over, limits)
                except EngineError as error:
                    return error
                except StorageError as error:
                    return trouble(error)
            except StorageError as error:
                if isinstance(error, WriterFailed):
                    self._fail("a commit failed", error)
                return trouble(error)
            else:
                return None
        return no_room()

    def _fail(self, what: str, error: BaseException) -> None:
        if self.failed is None:
            self.failed = what
            _log.error("writer_stopped", what=what, error=type(error).__name__, exc_info=error)


def _manifest_digest(recording: RecordingRow, blocks: Sequence[OwnedBlock]) -> bytes:
    return seal(recording.state, recording.components, blocks)


def _size(job: _Job) -> int:
    return sum(b.value_bytes for b in job.blocks) if isinstance(job, _Blocks) else 0


def _settle(job: _Job, error: Exception) -> None:
    if not job.done.done():
        job.done.set_exception(error)
