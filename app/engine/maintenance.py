"""The jobs that give room back while the store serves: `reclaim` and `checkpoint`.

Both do what housekeeping does by itself, at once and to the end. `reclaim` also goes through the whole key
space for values without a row, which otherwise only follows an unclean stop.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from app.engine.jobs import Run
from storage.errors import Busy
from storage.store import Store

_SWEEP_KEYS: Final = 512
_LOOK_AGAIN_SECONDS: Final = 0.2
_CHECKPOINT_SECONDS: Final = 10.0


class Maintenance:
    """Maintenance of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reclaim(self, run: Run, _: Mapping[str, Any]) -> dict[str, Any]:
        """Delete every block without an owner, and every value without a row."""
        found = {"expired_recordings": 0, "replaced_states": 0, "reclaimed_blocks": 0}
        run.partly = found
        before = self._store.blocks.stats()
        while step := _patiently(run, self._store.expire_recordings):
            found["expired_recordings"] += step
        while step := _patiently(run, self._store.drop_replaced):
            found["replaced_states"] += step
        waiting = self._store.catalog.unowned_blocks()
        run.report(0, waiting + before.blocks)
        while step := _patiently(run, self._store.reclaim):
            found["reclaimed_blocks"] += step
            run.report(min(found["reclaimed_blocks"], waiting))
        after: bytes | None = None
        swept = 0
        while (
            after := _patiently(run, lambda at=after: self._store.sweep(at, _SWEEP_KEYS))
        ) is not None:
            swept += _SWEEP_KEYS
            run.report(min(waiting + swept, run.total))
        run.report(run.total)
        now = self._store.blocks.stats()
        return found | {"used_bytes_before": before.used_bytes, "used_bytes_after": now.used_bytes}

    def checkpoint(self, run: Run, _: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the write-ahead log into the database and cut it to nothing.

        A reader that is still in an older snapshot stands in the way; it is tried again for a while.
        """
        before = self._store.db.wal_bytes()
        run.report(0, before)
        until = time.monotonic() + _CHECKPOINT_SECONDS
        self._store.db.checkpoint()
        while (left := self._store.db.wal_bytes()) and time.monotonic() < until:
            run.rest(_LOOK_AGAIN_SECONDS)
            self._store.db.checkpoint()
        run.report(before - min(left, before))
        return {"wal_bytes_before": before, "wal_bytes_after": left}


def _patiently(run: Run, step: Any) -> Any:
    """A step, again while the write lock is not free.

    Raises:
        Stopped: the job should end.
    """
    while True:
        run.check()
        try:
            return step()
        except Busy:
            run.rest(_LOOK_AGAIN_SECONDS)
