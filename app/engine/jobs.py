"""Long jobs: each on a thread of its own, seen and stopped from every worker through its row.

Invariants: one running job of a kind, whichever worker runs it; a job that ended says how; a job whose
process died is `failed` with `interrupted` as soon as another worker looks or the next start comes. A job may
hand itself over to the server (`HandedOver`), which ends it when no worker runs.

A job says how far it is as often as it likes: the row is written about once a second and asked five times
a second whether the job should stop. A stop is seen at the job's next report or rest, so bodies report at
least a few times a second.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog
import uuid_utils

from app.engine.errors import Conflicting, EngineError, NotFound
from app.engine.threads import in_thread, trouble
from storage.errors import Busy, Conflict, StorageError, StoreUnusable
from storage.rows import JobRow
from storage.store import Store

_KEPT: Final = 200
_WRITE_EVERY_SECONDS: Final = 1.0
_LOOK_EVERY_SECONDS: Final = 0.2
_LONGEST_END_SECONDS: Final = 10.0
_END_ATTEMPTS: Final = 6  # each waits for the write lock as long as any write

_log = structlog.get_logger("statehold.jobs")


class Stopped(Exception):
    """The job was asked to end; what it had done stays done."""


class HandedOver(Exception):
    """The job goes on outside this process, and is ended there (`Ledger.finish_handed_over_job`)."""


class JobFailed(Exception):
    """The job cannot be done. `code` goes into its row, `detail` is for people and into the log."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Run:
    """What the body of a job is given: to say how far it is, and to rest."""

    def __init__(self, store: Store, job_id: str, closing: threading.Event) -> None:
        self._store = store
        self._job_id = job_id
        self._closing = closing
        self._written = self._looked = time.monotonic()
        self._stop = False
        self.done = 0
        self.total = 0
        self.partly: dict[str, Any] = {}

    def hand_over(self) -> None:
        """From now on the job is the server's; the body raises `HandedOver` once it has said so there.

        Raises:
            Stopped: the job should end.
        """
        self._store.ledger.advance_job(self._job_id, self.done, self.total)
        if not self._store.ledger.hand_over_job(self._job_id):
            raise Stopped

    def report(
        self, done: int, total: int | None = None, bookmark: tuple[str, str] | None = None
    ) -> None:
        """So much is done.

        Args:
            done: in the job's unit.
            total: what it will be at the end, if that is known better now.
            bookmark: a setting (key, value) that is written with the figures.

        Raises:
            Stopped: the job should end.
        """
        first = total is not None and total != self.total
        self.done, self.total = done, self.total if total is None else total
        now = time.monotonic()
        if first or now - self._written >= _WRITE_EVERY_SECONDS:
            self._written = now
            with suppress(Busy):  # the next report says more
                self._store.ledger.advance_job(self._job_id, self.done, self.total, bookmark)
        self.check()

    def check(self) -> None:
        """Raises:
        Stopped: the job should end.
        """
        now = time.monotonic()
        if not self._stop and now - self._looked >= _LOOK_EVERY_SECONDS:
            self._looked = now
            self._stop = self._store.catalog.job_asked_to_stop(self._job_id)
        if self._stop or self._closing.is_set():
            raise Stopped

    def rest(self, seconds: float) -> None:
        """Do nothing for a while.

        Raises:
            Stopped: the job should end.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._closing.wait(min(left, _LOOK_EVERY_SECONDS))
            self.check()


# What a job does: gets its run and its arguments, returns its result (JSON values).
Body = Callable[[Run, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: its body, the unit of its progress, and what is refused before it begins.

    One that runs alone would end all others (they would be `interrupted`), so it waits for their end, and they
    for its.
    """

    body: Body
    unit: str
    check: Callable[[Mapping[str, Any]], None] = lambda _: None
    alone: bool = False


class Jobs:
    """The jobs of one process, and the rows of all."""

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], small: Executor, *, alone: bool
    ) -> None:
        """
        Args:
            alone: no other worker was there when the store was opened, so no job runs anywhere.
        """
        self._store = store
        self._kinds = kinds
        self._small = small
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        if alone:
            _log_interrupted(store.ledger.interrupt_all_jobs())
        else:
            self.end_dead()

    async def start(self, kind: str, arguments: Mapping[str, Any], actor: str) -> JobRow:
        """Begin a job of a kind.

        Raises:
            Conflicting: `job_running`, or what the kind refuses.
        """
        return await in_thread(self._small, self._start, kind, arguments, actor)

    async def page(self, limit: int) -> list[JobRow]:
        """The newest jobs, newest first."""
        return await in_thread(self._small, self._store.catalog.jobs, limit)

    def show(self, job_id: str) -> JobRow:
        """The job of that id. Fit for the event loop.

        Raises:
            NotFound: there is none.
        """
        row = self._store.catalog.job(job_id)
        if row is None:
            raise NotFound("job_not_found", "no such job")
        return row

    async def cancel(self, job_id: str) -> JobRow:
        """Ask a job to end, whichever worker runs it; it does within a second.

        Raises:
            NotFound: there is none.
            Conflicting: it has ended.
        """
        if self.show(job_id).status != "running":
            raise Conflicting("job_ended", "the job has ended")
        await in_thread(self._small, self._store.ledger.cancel_job, job_id)
        return self.show(job_id)

    def end_dead(self) -> None:
        """Mark the jobs of processes that are gone."""
        mine = {self._store.instance.name}
        ended = self._store.ledger.interrupt_jobs(
            lambda: self._store.instance.others_alive() | mine
        )
        _log_interrupted(ended)

    def close(self) -> None:
        """End what runs here; each is marked as interrupted."""
        self._closing.set()
        for thread in self._threads:
            thread.join(_LONGEST_END_SECONDS)

    def _start(self, kind: str, arguments: Mapping[str, Any], actor: str) -> JobRow:
        self.end_dead()
        self._kinds[kind].check(arguments)
        job_id = str(uuid_utils.uuid7())
        try:
            self._store.ledger.start_job(
                job_id=job_id,
                kind=kind,
                owner=self._store.instance.name,
                actor=actor,
                arguments=json.dumps(arguments),
                unit=self._kinds[kind].unit,
                not_beside=self._not_beside(kind),
                keep=_KEPT,
            )
        except Conflict as error:
            raise Conflicting("job_running", str(error)) from error
        thread = threading.Thread(
            target=self._run, args=(kind, job_id, arguments), name=f"job-{kind}", daemon=True
        )
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()
        return self.show(job_id)

    def _not_beside(self, kind: str) -> list[str]:
        alone = self._kinds[kind].alone
        return [
            name for name, other in self._kinds.items() if name != kind and (alone or other.alone)
        ]

    def _run(self, kind: str, job_id: str, arguments: Mapping[str, Any]) -> None:
        run = Run(self._store, job_id, self._closing)
        result: dict[str, Any] | None = None
        status, error = "failed", None
        try:
            result = self._kinds[kind].body(run, arguments)
            status = "done"
        except HandedOver:
            _log.info("job_handed_over", kind=kind, job_id=job_id)
            return
        except Stopped:
            result = run.partly or None
            if self._closing.is_set():
                error = "interrupted"
            else:
                status = "cancelled"
        except Exception as failure:
            result = run.partly or None
            error = _code(failure)
            if error == "internal_error":
                _log.exception("job_broken", kind=kind, job_id=job_id)
            else:
                _log.warning("job_failed", kind=kind, job_id=job_id, error=str(failure))
        self._end(kind, job_id, run, status, result, error)
        _log.info("job_ended", kind=kind, job_id=job_id, status=status, error=error)

    def _end(
        self,
        kind: str,
        job_id: str,
        run: Run,
        status: str,
        result: dict[str, Any] | None,
        error: str | None,
    ) -> None:
        text = None if result is None else json.dumps(result)
        for _ in range(_END_ATTEMPTS):
            try:
                self._store.ledger.advance_job(job_id, run.done, run.total)
                self._store.ledger.finish_job(job_id, status, result=text, error=error)
            except Busy:
                continue
            except StorageError as failure:
                # The row is left running; it ends as interrupted when this process does.
                _log.warning("job_end_not_written", kind=kind, job_id=job_id, error=str(failure))
            return


def _log_interrupted(count: int) -> None:
    if count:
        _log.warning("jobs_interrupted", count=count)


def _code(failure: Exception) -> str:
    if isinstance(failure, StoreUnusable):
        return "store_damaged"
    if isinstance(failure, StorageError):
        failure = trouble(failure)
    return failure.code if isinstance(failure, EngineError | JobFailed) else "internal_error"
