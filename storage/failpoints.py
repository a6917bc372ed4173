"""Named places where a test may kill or fail the process. Off unless the environment says so.

`STATEHOLD_FAILPOINT=name` kills the process (SIGKILL, as a power button would) the first time it
reaches `name`; `name:3` the third time. The names are the crash points that the docstrings of
`storage/store.py`, `storage/recovery.py` and `storage/compact.py` speak of; `POINTS` is the full list
of those a server reaches and `OFFLINE_POINTS` of those of commands on a stopped folder, so that a test
can prove that none is forgotten.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

POINTS: Final = (
    "admit.before_commit",
    "admit.after_commit",
    "own.before_commit",
    "own.after_commit",
    "shown.before_commit",
    "shown.after_commit",
    "blocks.before_commit",
    "blocks.after_commit",
    "component.before_commit",
    "component.after_commit",
    "publish.before_barrier",
    "publish.after_barrier",
    "publish.before_commit",
    "publish.after_commit",
    "drop.before_commit",
    "drop.after_commit",
    "evict.before_commit",
    "evict.after_commit",
    "reclaim.before_delete",
    "reclaim.after_delete",
    "reclaim.after_commit",
    "quarantine.before_commit",
    "quarantine.after_commit",
    "recover.before_expire",
    "recover.after_expire",
)
OFFLINE_POINTS: Final = (
    "compact.before_copy",
    "compact.after_copy",
    "compact.before_rename",
    "compact.after_rename",
)
# Of a salvage, which writes beside a stopped folder.
SALVAGE_POINTS: Final = ("salvage.before_proof", "salvage.before_rename")
# Of a backup, which a child of the server or a command makes, and of a restore.
BACKUP_POINTS: Final = (
    "backup.before_moment",
    "backup.after_moment",
    "backup.after_database",
    "backup.after_blocks",
    "backup.before_manifest",
    "backup.after_manifest",
    "backup.after_rename",
)
RESTORE_POINTS: Final = (
    "restore.before_copy",
    "restore.after_copy",
    "restore.after_proof",
    "restore.after_decision",
    "restore.after_removal",
    "restore.after_blocks",
    "restore.after_database",
)

_ALL: Final = POINTS + OFFLINE_POINTS + BACKUP_POINTS + RESTORE_POINTS + SALVAGE_POINTS
_lock = threading.Lock()
_armed = ""
_left = 0


def arm(point: str) -> None:
    """Arm a point as the environment variable does; "" arms none.

    Raises:
        ValueError: there is no such point.
    """
    global _armed, _left
    name, _, count = point.partition(":")
    if name and name not in _ALL:
        raise ValueError(f"STATEHOLD_FAILPOINT names no crash point: {name!r}")
    _armed, _left = name, int(count or "1")


def failpoint(name: str) -> None:
    """Die here if the environment armed this point and its count has run down."""
    global _left
    if name != _armed:
        return
    with _lock:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("STATEHOLD_FAILPOINT", ""))
