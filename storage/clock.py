"""Time for deadlines and time for people. A leaf.

Deadlines (leases, recordings) are kept on the boot clock: every process of one boot reads the same
value and no clock step moves it. It says nothing across a reboot, so `boot_id` is stored beside it
and deadlines are given their full length again when it has changed.
"""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def boot_ms() -> int:
    """Milliseconds since this machine booted; never steps, counts suspend where the system can."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000


def wall_ms() -> int:
    """Milliseconds since the Unix epoch; may step. For display and LRU order only."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Names this boot. Where the system has no such id, every start counts as a new boot."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return f"start-{time.time_ns()}"
