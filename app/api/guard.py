"""The HTTP protocol with bounds that the server itself does not have.

uvicorn's fast parser takes header blocks and URLs of any size and keeps silent connections for ever
(FACTS E2). Here a header block may have 32 KiB and a URL 8 KiB, and a request's header must be whole
within 10 seconds of its first byte, and the first byte must come within the idle time. Bytes are
counted before they are parsed. Bodies are bounded by the routes, which know what they expect.

A route that takes a large body may claim it (`BodyQueue`): its pieces are then handed on as the parser
made them. The server's own way gathers them in a buffer and copies that once more; receiving a GB
took 1.25 CPU seconds of the event loop that way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api.problem_body import problem_body

MOST_HEADER_BYTES: Final = 32 << 10
MOST_URL_BYTES: Final = 8 << 10
HEADER_TIME_S: Final = 10.0
IDLE_TIME_S: Final = 30.0
_QUEUED_BYTES: Final = 1 << 20


class BodyQueue:
    """The rest of one request's body, piece by piece, with back-pressure on the socket.

    For the event loop's thread. `get` gives the next piece, b"" at the end.
    """

    def __init__(self, flow: FlowControl) -> None:
        self._flow = flow
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._lost = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, piece: bytes) -> None:
        """The parser found more of the body."""
        self._pieces.append(piece)
        self._bytes += len(piece)
        if self._bytes > _QUEUED_BYTES:
            self._flow.pause_reading()
        self._wake()

    def end(self) -> None:
        """The body is whole."""
        self._ended = True
        self._wake()

    def lose(self) -> None:
        """The connection is gone before the body was whole."""
        self._lost = not self._ended
        self._wake()

    async def get(self, timeout_s: float) -> bytes:
        """The next piece, b"" when the body is whole.

        Raises:
            ConnectionError: the connection is gone.
            TimeoutError: nothing came.
        """
        while not self._pieces:
            if self._ended:
                return b""
            if self._lost:
                raise ConnectionError
            self._waiter = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(timeout_s):
                await self._waiter
        piece = self._pieces.popleft()
        self._bytes -= len(piece)
        if self._bytes <= _QUEUED_BYTES:
            self._flow.resume_reading()
        return piece

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._in_header = True
        self._refused = False
        self._claimed: BodyQueue | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The client connected; it has the idle time to say something."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(IDLE_TIME_S, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._stop_clock()
        if self._claimed is not None:
            self._claimed.lose()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a header before it is parsed."""
        if self._refused:
            return
        if self._in_header:
            if self._header_bytes == 0:
                self._stop_clock()
                self._deadline = self.loop.call_later(HEADER_TIME_S, self._too_late)
            # A header ends within this many bytes, or is refused at the next chunk: what comes in
            # one read is bounded by the transport's buffer.
            self._header_bytes += len(data)
            if (
                self._header_bytes > MOST_HEADER_BYTES
                and b"\r\n\r\n" not in data[:MOST_HEADER_BYTES]
            ):
                self._refuse(431, "header_too_large", "The header block is too large")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins, maybe right behind another one."""
        self._in_header = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Bound the URL."""
        super().on_url(url)
        if len(self.url) > MOST_URL_BYTES:
            self._refuse(414, "url_too_long", "The URL is too long")

    def on_headers_complete(self) -> None:
        """The header is whole: the routes take over."""
        self._in_header = False
        self._header_bytes = 0
        self._stop_clock()
        if self._refused:
            return
        self._claimed = None
        self.scope["extensions"] = {
            "statehold.abort": {"call": self.transport.abort},
            "statehold.body": {"claim": self._claim},
        }
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand body bytes on, unless the request was refused."""
        if self._refused:
            return
        if self._claimed is not None and not self.cycle.response_complete:
            self._claimed.put(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; what comes next is a header again."""
        self._in_header = True
        if self._claimed is not None:
            self._claimed.end()
        if not self._refused:
            super().on_message_complete()

    def _claim(self) -> BodyQueue:
        """Take the rest of the body of the request being served, after its first piece was received."""
        queue = self._claimed = BodyQueue(self.flow)
        if self.cycle.body:
            queue.put(bytes(self.cycle.body))
            self.cycle.body = bytearray()
        if not self.cycle.more_body:
            queue.end()
        if self.transport.is_closing():
            queue.lose()
        # The server may have paused the socket for the sake of its own buffer, which is empty now.
        self.flow.resume_reading()
        return queue

    def _refuse(self, status: int, code: str, title: str) -> None:
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._stop_clock()
        body = problem_body(status, code, title, f"{title}.")
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/problem+json\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\nconnection: close\r\n\r\n"
            + body
        )
        self.transport.close()

    def _too_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
