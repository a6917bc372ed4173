"""Last uses and counters, gathered in memory and written in batches.

What is lost when a process dies is at most `touch_flush_s` of them: the LRU order is then a little
older than it could be and a counter a little smaller; no rule rests on either. What a counter grew by
belongs to the minute of the flush (`history`).
"""

from __future__ import annotations

import threading
from collections import Counter

from app.engine.history import growth_to_remember, minute_now
from storage.clock import wall_ms
from storage.errors import StorageError
from storage.store import Store


class Notes:
    """This process's notes since the last flush. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._touches: dict[str, tuple[int, int]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def touch(self, state_id: str) -> None:
        """The state was used now."""
        with self._lock:
            _, uses = self._touches.get(state_id, (0, 0))
            self._touches[state_id] = (wall_ms(), uses + 1)

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """Add to a counter; labels come from fixed sets, never from a request."""
        with self._lock:
            self._counts[name, label] += by

    def flush(self) -> None:
        """Write what has gathered; on failure it is kept for the next time.

        Raises:
            StorageError: the store could not be written.
        """
        # Whoever asks while another flush is being written waits for it: after the call everything that
        # was noted before it is there to be read.
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            touches, self._touches = self._touches, {}
            counts, self._counts = self._counts, Counter()
        if not touches and not counts:
            return
        try:
            self._store.ledger.note(touches, counts, minute_now(), growth_to_remember(counts))
        except StorageError:
            with self._lock:
                self._counts += counts
                for state_id, (at_ms, uses) in touches.items():
                    later, more = self._touches.get(state_id, (0, 0))
                    self._touches[state_id] = (max(at_ms, later), uses + more)
            raise
