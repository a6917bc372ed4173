"""The compact job: asks the server to stop its workers, rewrite the files, and go on with new workers.

Files cannot be shortened while anybody has them open (`storage/compact.py`), so the job's part here is what can
be known before: that there is room. Then it is the server's, which ends it (`app/server.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.engine.jobs import HandedOver, JobFailed, Run
from storage.compact import lacking_bytes
from storage.store import Store


class CompactJob:
    """Compaction of one store."""

    def __init__(self, store: Store, begin: Callable[[], bool]) -> None:
        """
        Args:
            begin: asks the server; False where there is none that could.
        """
        self._store = store
        self._begin = begin

    def compact(self, run: Run, _: Mapping[str, Any]) -> dict[str, Any]:
        """The body of the job; never returns.

        Raises:
            JobFailed: `low_space`, `no_supervisor`.
            HandedOver: the server has been asked.
        """
        used = [
            *(one.used_bytes for one in self._store.blocks.environments()),
            self._store.db.path.stat().st_size,
        ]
        run.report(0, sum(used))
        if lacking := lacking_bytes(self._store.folder, max(used)):
            raise JobFailed("low_space", f"compacting lacks {lacking:,} bytes of free disk")
        run.hand_over()
        if not self._begin():
            raise JobFailed(
                "no_supervisor",
                "what started this process cannot pause it: stop it and run `statehold compact`",
            )
        raise HandedOver
