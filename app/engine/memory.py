"""A bound on bytes held in memory, shared by all requests of a process."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class MemoryBudget:
    """Hands out bytes in order of asking; whoever asks for too much waits, and holds up those behind.

    For the event loop's thread only. A request larger than the whole bound is served when nothing
    else is out, so that it cannot wait for ever.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total = total_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def total_bytes(self) -> int:
        """The bound."""
        return self._total

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    async def acquire(self, size: int) -> None:
        """Wait until `size` bytes may be held."""
        if not self._waiting and self._fits(size):
            self.used_bytes += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size)
            else:
                # Gone already if bytes were given back in the same turn of the loop.
                with suppress(ValueError):
                    self._waiting.remove(entry)
                self._wake()
            raise

    def try_acquire(self, size: int, *, whole: bool = True) -> bool:
        """Take `size` bytes if they are free now.

        Args:
            whole: more than the whole bound may be taken when nothing else is out.
        """
        if self._waiting or not self._fits(size) or (size > self._total and not whole):
            return False
        self.used_bytes += size
        return True

    def release(self, size: int) -> None:
        """Give `size` bytes back."""
        self.used_bytes -= size
        self._wake()

    def _fits(self, size: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size <= self._total

    def _wake(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.used_bytes += size
                turn.set_result(None)
