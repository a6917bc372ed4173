"""The HTTP protocol with bounds that the server itself does not have.

uvicorn's fast parser takes header blocks and URLs of any size and keeps silent connections for ever
(FACTS E2). Here a header block may have 32 KiB and a URL 8 KiB, and a request's header must be whole
within 10 seconds of its first byte, and the first byte must come within the idle time. Bytes are
counted before they are parsed. Bodies are bounded by the routes, which know what they expect.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api.problem_body import problem_body

MOST_HEADER_BYTES: Final = 32 << 10
MOST_URL_BYTES: Final = 8 << 10
HEADER_TIME_S: Final = 10.0
IDLE_TIME_S: Final = 30.0


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._in_header = True
        self._refused = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The client connected; it has the idle time to say something."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(IDLE_TIME_S, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._stop_clock()
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
        self.scope["extensions"] = {"statehold.abort": {"call": self.transport.abort}}
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand body bytes on, unless the request was refused."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; what comes next is a header again."""
        self._in_header = True
        if not self._refused:
            super().on_message_complete()

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
