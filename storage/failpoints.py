"""Named places where a test may kill or fail the process. Off unless the environment says so.

`STATEHOLD_FAILPOINT=name` kills the process (SIGKILL, as a power button would) the first time it
reaches `name`; `name:3` the third time. The names are the crash points that the docstrings of
`storage/store.py` and `storage/recovery.py` speak of; `POINTS` is their full list, so that a test
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

_lock = threading.Lock()
_armed, _, _count = os.environ.get("STATEHOLD_FAILPOINT", "").partition(":")
_left = int(_count or "1")
if _armed and _armed not in POINTS:
    raise ValueError(f"STATEHOLD_FAILPOINT names no crash point: {_armed!r}")


def failpoint(name: str) -> None:
    """Die here if the environment armed this point and its count has run down."""
    global _left
    if name != _armed:
        return
    with _lock:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
