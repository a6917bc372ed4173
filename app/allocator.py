"""Keep freed memory: blocks come and go by the megabyte, and new memory is dear.

glibc gives large blocks back to the kernel as soon as they are freed and gets them anew, zeroed, with
a page fault for every 4 KiB. Restoring raw blocks cost 1.73 CPU seconds a GB that way and 1.19 with
these thresholds (`python -m bench --only transfers`, 2 virtual cores). What is kept is bounded by the memory
budgets of uploads and restores.
"""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory(most_bytes: int) -> None:
    """Let this process keep up to about `most_bytes` of freed memory. Does nothing without glibc."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 64 << 20)
        mallopt(_M_TRIM_THRESHOLD, min(most_bytes, (1 << 31) - 1))
