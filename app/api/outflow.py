"""Sending states: verified bytes straight to the socket, broken off rather than ever padded.

Plain ASGI messages: no task group per response, no thread hop per chunk, no chunked encoding. The
client's silence is bounded while we send: one that does not take a chunk within the idle time is cut
off, and what was held for it is freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import structlog
from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.engine.errors import EngineError
from storage.errors import StorageError

_log = structlog.get_logger("statehold.api")


class ByteStream(Response):
    """A response of known length from an iterator of verified chunks."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes | bytearray | memoryview] | None,
        length: int,
        close: Callable[[], Awaitable[None]],
        *,
        status_code: int = 200,
        headers: Mapping[str, str],
        idle_timeout_s: float,
    ) -> None:
        """
        Args:
            chunks: None sends the headers alone (HEAD).
            length: bytes that the chunks add up to.
            close: called once, whatever happens; frees what the chunks come from.
        """
        self.status_code = status_code
        self.background: BackgroundTask | None = None
        self.body = b""
        self._chunks = chunks
        self._close = close
        self._passed: Callable[[int], None] | None = None
        self._idle_timeout_s = idle_timeout_s
        self.init_headers(
            {"Content-Length": str(length), "Content-Type": "application/octet-stream", **headers}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        self._passed = scope.get("state", {}).get("passed")
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            if self._chunks is None or await self._send_chunks(receive, send):
                await send({"type": "http.response.body", "body": b""})
            else:
                abort = scope.get("extensions", {}).get("statehold.abort")
                if abort is not None:
                    abort["call"]()
        finally:
            await asyncio.shield(self._close())

    async def _send_chunks(self, receive: Receive, send: Send) -> bool:
        """Send all chunks; False if the answer must be broken off."""
        assert self._chunks is not None
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            async for chunk in self._chunks:
                if gone.done():
                    return False
                async with asyncio.timeout(self._idle_timeout_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if self._passed is not None:
                    self._passed(len(chunk))
        except TimeoutError:
            _log.info("reader_stalled")
            return False
        except EngineError as error:
            _log.warning("broken_off", code=error.code)
            return False
        except StorageError as error:
            _log.error("broken_off", code=type(error).__name__, error=str(error))
            return False
        else:
            return True
        finally:
            gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
