"""The regular small duties of a process, on one thread; each may be cut off and done again.

Several workers do them side by side: every duty is idempotent and decides under the write lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from app.engine.eviction import Evictor
from app.engine.notes import Notes
from app.settings import Settings
from storage.clock import boot_ms
from storage.errors import Busy, StorageError
from storage.store import Store

# A released or expired lease is remembered this long, so that a release sent again is recognised.
_LEASE_MEMORY_MS = 600_000
_BALLAST_BYTES = 64 << 20
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
        self, store: Store, notes: Notes, evictor: Evictor, settings: Settings, *, sweep: bool
    ) -> None:
        self._store = store
        self._settings = settings
        self._sweep_after: bytes | None = None
        self._sweeping = sweep
        self._stop = threading.Event()
        self._duties = [
            _Duty(notes.flush, settings.touch_flush_s),
            _Duty(store.expire_recordings, 1.0),
            _Duty(store.drop_replaced, 5.0),
            _Duty(evictor.reclaim, 2.0),
            _Duty(self._forget_leases, 30.0),
            _Duty(store.note_commit, 5.0),
            _Duty(store.blocks.reader_check, 60.0),
            _Duty(self._cut_wal, 10.0),
            _Duty(self._keep_ballast, 30.0),
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

    def _forget_leases(self) -> None:
        while self._store.ledger.sweep_leases(boot_ms() - _LEASE_MEMORY_MS) == 1000:
            pass

    def _cut_wal(self) -> None:
        if self._store.db.wal_bytes() > _WAL_WORTH_CUTTING_BYTES:
            self._store.db.checkpoint()

    def _keep_ballast(self) -> None:
        self._store.folder.keep_ballast(_BALLAST_BYTES, self._settings.free_disk_reserve_bytes)
