"""The regular small duties of a process, on one thread; each may be cut off and done again.

Several workers do them side by side: every duty is idempotent and decides under the write lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from app.engine.access import Gate
from app.engine.eviction import Evictor
from app.engine.history import trim
from app.engine.notes import Notes
from app.engine.policy import Policy
from storage.clock import boot_ms
from storage.errors import Busy, StorageError
from storage.store import Store

# A released or expired lease is remembered this long, so that a release sent again is recognised.
_LEASE_MEMORY_MS = 600_000
_BALLAST_BYTES = 64 << 20
# In a row, one a second, before a disk that failed is trusted again.
_GOOD_WRITES = 5
_WAL_WORTH_CUTTING_BYTES = 16 << 20

_log = structlog.get_logger("statehold.housekeeping")


@dataclass(slots=True)
class _Duty:
    run: Callable[[], object]
    every_s: float
    due: float = 0.0


class Housekeeper:
    """Runs the duties until it is stopped."""

    def __init__(
        self,
        store: Store,
        notes: Notes,
        evictor: Evictor,
        gate: Gate,
        policy: Policy,
        *,
        publish: Callable[[], None],
        end_dead_jobs: Callable[[], None],
        renew: Callable[[], None],
        sweep: bool,
    ) -> None:
        """
        Args:
            publish: tells the other workers how this one stands.
            end_dead_jobs: marks the jobs of workers that are gone.
            renew: ends this process's use of the store, for a new one. Called once a write has failed
                and the disk works again: what the kernel still held when it failed is not known, so
                nothing more is written before the files have been opened anew.
            sweep: whether values without a row are possible and have to be looked for.
        """
        self._store = store
        self._notes = notes
        self._policy = policy
        self._sweep_after: bytes | None = None
        self._sweeping = sweep
        self._renew: Callable[[], None] | None = renew
        self._good_writes = 0
        self._stop = threading.Event()
        self._duties = [
            _Duty(notes.flush, policy.settings.touch_flush_s),
            _Duty(self._expire_recordings, 1.0),
            _Duty(self._drop_replaced, 5.0),
            _Duty(publish, 1.0),
            _Duty(self._look_for_the_end_of_trouble, 1.0),
            _Duty(evictor.reclaim, 2.0),
            _Duty(self._forget_leases, 30.0),
            _Duty(self._forget_pins, 10.0),
            _Duty(end_dead_jobs, 5.0),
            _Duty(store.note_commit, 5.0),
            _Duty(store.blocks.reader_check, 60.0),
            _Duty(self._cut_wal, 10.0),
            _Duty(self._keep_ballast, 30.0),
            _Duty(gate.flush, 10.0),
            _Duty(self._trim_history, 60.0),
        ]
        self._thread = threading.Thread(target=self._run, name="housekeeper", daemon=True)
        self._thread.start()

    @property
    def sweeping(self) -> bool:
        """Whether the sweep after an unclean stop is still going on."""
        return self._sweeping

    def close(self) -> None:
        """Stop after the duty under way."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            now = time.monotonic()
            for duty in self._duties:
                if duty.due <= now and not self._stop.is_set():
                    duty.due = now + duty.every_s
                    self._attempt(duty.run)
            if self._sweeping:
                self._attempt(self._sweep)

    def _attempt(self, run: Callable[[], object]) -> None:
        try:
            run()
        except Busy:
            pass  # it is due again soon
        except StorageError as error:
            _log.warning("duty_failed", duty=getattr(run, "__name__", "?"), error=str(error))
        except Exception:
            _log.exception("duty_broken", duty=getattr(run, "__name__", "?"))

    def _sweep(self) -> None:
        self._sweep_after = self._store.sweep(self._sweep_after)
        self._sweeping = self._sweep_after is not None
        if not self._sweeping:
            _log.info("sweep_done")

    def _look_for_the_end_of_trouble(self) -> None:
        if self._renew is None or not self._store.failed:
            return
        self._good_writes = self._good_writes + 1 if self._store.folder.takes_writes() else 0
        if self._good_writes >= _GOOD_WRITES:
            _log.warning("renewing", reason="a write had failed, and the disk works again")
            self._renew()
            self._renew = None

    def _expire_recordings(self) -> None:
        while (expired := self._store.expire_recordings()) and not self._stop.is_set():
            self._notes.count("records", "expired", expired)

    def _drop_replaced(self) -> None:
        dropped = self._store.drop_replaced()
        if dropped:
            self._notes.count("evictions", "replaced", dropped)

    def _forget_leases(self) -> None:
        forgotten = 1000
        while forgotten == 1000:
            forgotten, ran_out = self._store.ledger.sweep_leases(boot_ms() - _LEASE_MEMORY_MS)
            if ran_out:
                self._notes.count("leases_expired", "", ran_out)

    def _forget_pins(self) -> None:
        while self._store.remove_expired_pins() and not self._stop.is_set():
            pass

    def _trim_history(self) -> None:
        while trim(self._store.ledger) and not self._stop.is_set():
            pass

    def _cut_wal(self) -> None:
        if self._store.db.wal_bytes() > _WAL_WORTH_CUTTING_BYTES:
            self._store.db.checkpoint()

    def _keep_ballast(self) -> None:
        reserve_bytes = self._policy.now().free_disk_reserve_bytes
        self._store.folder.keep_ballast(_BALLAST_BYTES, reserve_bytes)
