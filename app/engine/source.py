"""The bytes of an upload as they come, for whoever asks for some."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from app.engine.batches import Batch
from app.engine.errors import InvalidInput


class Source:
    """The body, handed out in pieces of the sizes asked for."""

    def __init__(self, body: AsyncIterator[bytes], expected: int) -> None:
        self._body = body
        self._expected = expected
        self._got = 0
        self._rest = memoryview(b"")
        self._coming: asyncio.Future[bytes | None] | None = None

    async def fill(self, batch: Batch, patience_s: float) -> bool:
        """Fill a batch; False if the bytes did not come in time, what has come is in it then."""
        until = time.monotonic() + patience_s
        while batch.left:
            if not self._rest and not await self._arrives(until - time.monotonic()):
                return False
            taken = batch.take(self._rest)
            self._rest = self._rest[taken:]
        return True

    async def take(self, most: int) -> memoryview:
        """Some of the next bytes, at least one, however long they take."""
        if not self._rest:
            await self._arrives(None)
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    async def peek(self, size: int) -> bytes:
        """The first bytes, fewer only where the body has no more; they stay to be read."""
        head = bytes(self._rest)
        while len(head) < size and (chunk := await anext(self._body, None)) is not None:
            self._got += len(chunk)
            head += chunk
        self._rest = memoryview(head)
        return head[:size]

    async def expect_end(self) -> None:
        """Nothing may follow."""
        if self._rest:
            raise self._wrong("more than")
        async for _ in self._body:
            raise self._wrong("more than")

    async def _arrives(self, within_s: float | None) -> bool:
        """Wait for the next chunk; False if the time ran out first."""
        if self._coming is None:
            # A task of its own: a wait that is given up must not end the body with it.
            self._coming = asyncio.ensure_future(anext(self._body, None))
        done, _ = await asyncio.wait({self._coming}, timeout=within_s)
        if not done:
            return False
        chunk = self._coming.result()
        self._coming = None
        if chunk is None:
            raise self._wrong(f"{self._got} of")
        self._got += len(chunk)
        self._rest = memoryview(chunk)
        return True

    async def close(self) -> None:
        """Give up a wait that nobody needs any more."""
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})
            with suppress(asyncio.CancelledError, Exception):
                self._coming.result()

    def _wrong(self, sent: str) -> InvalidInput:
        return InvalidInput(
            "length_mismatch",
            f"{self._expected} bytes were announced and {sent} them were sent",
            "body",
        )
