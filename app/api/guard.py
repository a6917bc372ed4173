"""The HTTP protocol with bounds that the server itself does not have.

uvicorn's fast parser takes header blocks and URLs of any size and keeps silent connections for ever
(FACTS E2). Here a header block may have 32 KiB and a URL 8 KiB, and a request's header must be whole
within 10 seconds of its first byte, and the first byte must come within the idle time. Bytes are
counted before they are parsed. Bodies are bounded by the routes, which know what they expect; what
comes between and behind their bytes (chunk extensions, trailers) is bounded here. A refusal is never
written into an answer under way: the connection is closed instead, behind the answers to all whole requests.

Nothing is read in two ways (RFC 9112, sections 3.2, 6.1 and 7.8): a request has one Host header, no transfer
coding but `chunked`, and the body that its header announces, also where it asks for an upgrade. No upgrade is
known; the parser would take the bytes behind such a header for the other protocol, and those of the next
read for a request. Java's own client asks for h2c with its first request, whatever that is.

A route that takes a large body may claim it (`BodyQueue`): its pieces are then handed on as the parser
made them. The server's own way gathers them in a buffer and copies that once more; receiving a GB
took 1.25 CPU seconds of the event loop that way.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from functools import partial
from typing import Any, Final

import structlog
from httptools import HttpParserError, HttpParserUpgrade
from uuid_utils import uuid7
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from app.api.problem_body import problem_body

MOST_HEADER_BYTES: Final = 32 << 10
MOST_URL_BYTES: Final = 8 << 10
HEADER_TIME_S: Final = 10.0
IDLE_TIME_S: Final = 30.0
_QUEUED_BYTES: Final = 1 << 20
_NO_HTTP: Final = "The request is not HTTP/1.1"

_log = structlog.get_logger("statehold.http")


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
        self._tail = b""
        self._bodiless_bytes = 0
        self._in_header = True
        self._refused = False
        # A header that asked for an upgrade, until it is parsed as one that did not.
        self._asking = b""
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
        """Count what belongs to a header before it is parsed, and what came with no body after."""
        if self._refused:
            return
        if self._in_header:
            if self._header_bytes == 0:
                self._stop_clock()
                self._deadline = self.loop.call_later(HEADER_TIME_S, self._too_late)
            # A header ends within this many bytes, or is refused at the next chunk: what comes in
            # one read is bounded by the transport's buffer.
            room = max(0, MOST_HEADER_BYTES - self._header_bytes)
            self._header_bytes += len(data)
            # The end of a header may be split between two reads, and a body may follow it.
            if (
                self._header_bytes > MOST_HEADER_BYTES
                and b"\r\n\r\n" not in self._tail + data[:room]
            ):
                self._refuse(431, "header_too_large", "The header block is too large")
                return
        else:
            self._bodiless_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except HttpParserError:
            self._refuse(400, "invalid_http", _NO_HTTP)
        if self._in_header:
            self._tail = data[-3:] if len(data) > 2 else (self._tail + data)[-3:]
        elif self._bodiless_bytes > MOST_HEADER_BYTES:
            self._refuse(431, "header_too_large", "The trailer section is too large")
        # Any byte ends the server's keep-alive time. What comes behind an early answer must not
        # leave the connection without a clock.
        if (
            self._deadline is None
            and self.timeout_keep_alive_task is None
            and self.cycle is not None
            and self.cycle.response_complete
            and not self.transport.is_closing()
        ):
            self._deadline = self.loop.call_later(IDLE_TIME_S, self._too_late)

    def _parse(self, data: bytes) -> None:
        """Have the parser read on.

        It ends where a header asks for an upgrade, which nobody has to grant: it is given that header once
        more as if it did not ask.
        """
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
            except HttpParserUpgrade as asked:
                rest = rest[asked.args[0] :]
            else:
                return
            if self._refused:
                return
            header, self._asking = self._asking, b""
            self.parser.feed_data(header)

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
        if self._refused or not self._is_plain():
            return
        if self.parser.should_upgrade():
            self._asking = self._header_without(b"upgrade")
            return
        self._in_header = False
        self._header_bytes = 0
        self._stop_clock()
        self._claimed = None
        super().on_headers_complete()
        self._bodiless_bytes = 0
        # Trailers would be appended to the request's headers while a route reads them.
        self.headers = []
        # Bound to its own request: a pipelined one may have been parsed before a route claims. Weakly: the
        # request holds its scope, and a ring of the two would be left to the collector each time.
        self.scope["extensions"] = {
            "statehold.abort": {"call": self.transport.abort},
            "statehold.body": {"claim": partial(self._claim, weakref.ref(self.cycle))},
        }

    def on_body(self, body: bytes) -> None:
        """Hand body bytes on, unless the request was refused."""
        if self._refused:
            return
        self._bodiless_bytes = 0
        if self._claimed is not None and not self.cycle.response_complete:
            self._claimed.put(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; what comes next is a header again."""
        if self._asking:
            return
        self._in_header = True
        if self._claimed is not None:
            self._claimed.end()
        if not self._refused:
            super().on_message_complete()

    def _is_plain(self) -> bool:
        """Whether the header can be read in one way only; it is refused otherwise."""
        version = self.parser.get_http_version()
        names = [name for name, _ in self.headers]
        coded = b"transfer-encoding" in names
        if version not in {"1.1", "1.0"} or self.parser.get_method() == b"CONNECT":
            self._refuse(400, "invalid_http", _NO_HTTP)
        elif names.count(b"host") > 1 or (version == "1.1" and b"host" not in names):
            self._refuse(400, "invalid_http", _NO_HTTP, "A request has one Host header.")
        elif coded and (version == "1.0" or self._transfer_coding() != b"chunked"):
            self._refuse(400, "invalid_http", _NO_HTTP, "The only transfer coding is chunked.")
        return not self._refused

    def _transfer_coding(self) -> bytes:
        values = [value for name, value in self.headers if name == b"transfer-encoding"]
        return b",".join(values).strip().lower()

    def _header_without(self, left_out: bytes) -> bytes:
        """The header that the parser has read, in bytes again."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != left_out]
        return b"\r\n".join([*lines, b"", b""])

    def _claim(self, request: weakref.ref[RequestResponseCycle]) -> BodyQueue:
        """Take the rest of the body of a request being served, after its first piece was received."""
        queue = BodyQueue(self.flow)
        cycle = request()
        assert cycle is not None  # its task, which asks, holds it
        if cycle is self.cycle:
            self._claimed = queue
        if cycle.body:
            queue.put(bytes(cycle.body))
            cycle.body = bytearray()
        if not cycle.more_body:
            queue.end()
        if self.transport.is_closing():
            queue.lose()
        # The server may have paused the socket for the sake of its own buffer, which is empty now.
        self.flow.resume_reading()
        return queue

    def _refuse(self, status: int, code: str, title: str, detail: str = "") -> None:
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._stop_clock()
        if self.cycle is not None and not self.cycle.response_complete:
            # The refusal would be read as a part of an earlier request's answer, or as all of it.
            if self._in_header:
                self.cycle.keep_alive = False  # the last of those that were whole
                return
            if self.cycle.response_started or self.pipeline:
                self.transport.close()
                return
            # It answers this very request: what the app says to it must not follow.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # Of its own: the client's may be in what could not be read.
        request_id = str(uuid7())
        _log.info("refused", status=status, code=code, request_id=request_id)
        body = problem_body(status, code, title, detail or f"{title}.", request_id)
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/problem+json\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\nx-request-id: "
            + request_id.encode()
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
