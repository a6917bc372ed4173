"""How the processes on a data folder stand at this moment, added up over all of them.

What lives in a process (memory held, jobs that wait) is in no table. So each process publishes its
figures about once a second in its instance's file, and whoever is asked adds its own, of this very
moment, to those of the others. Those are a second old, or as old as `oldest_ms` says where a
housekeeper is held up; a process that ended has none, however it ended.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.engine.memory import MemoryBudget
from app.engine.reader import Reader
from app.engine.writer import BlockWriter
from storage.clock import boot_ms
from storage.store import Store

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Standing:
    """Sums over the running processes; `oldest_ms` is the age of the oldest figures among them."""

    processes: int
    oldest_ms: int
    sums: Mapping[str, int]


def figures_of(
    store: Store, writer: BlockWriter, memory: MemoryBudget, reader: Reader, lost_commits: int
) -> dict[str, int]:
    """How this process stands."""
    return {
        "upload_bytes": memory.used_bytes,
        "most_upload_bytes": memory.total_bytes,
        "uploads_waiting": memory.waiting,
        "restore_bytes": reader.held_bytes,
        "most_restore_bytes": reader.most_bytes,
        "writer_jobs": writer.queued,
        "writer_stopped": int(writer.failed is not None),
        "database_failed": int(store.db.failed),
        "block_store_failed": int(store.blocks.failed),
        "lost_commits": lost_commits,
        "resident_bytes": _resident_bytes(),
    }


class Workers:
    """This process among its like. Thread-safe."""

    def __init__(self, store: Store, own: Callable[[], Mapping[str, int]]) -> None:
        """
        Args:
            own: the figures of this process by name; called from threads.
        """
        self._instance = store.instance
        self._own = own

    def publish(self) -> None:
        """Tell the others.

        Raises:
            DiskFull: nobody could be told.
        """
        notice = {"at_boot_ms": boot_ms(), "figures": dict(self._own())}
        self._instance.publish(json.dumps(notice, separators=(",", ":")).encode())

    def standing(self) -> Standing:
        """All processes together. A few system calls for each: for a thread."""
        sums = Counter(self._own())
        now, ages = boot_ms(), [0]
        notices = [json.loads(notice) for notice in self._instance.notices().values()]
        for notice in notices:
            ages.append(max(0, now - notice["at_boot_ms"]))
            # Only the names known here: while workers are replaced, another version may run beside.
            sums.update({name: notice["figures"].get(name, 0) for name in self._own()})
        return Standing(1 + len(notices), max(ages), dict(sums))


def _resident_bytes() -> int:
    """Memory of this process that is in RAM, mapped files (the block store's) included."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
