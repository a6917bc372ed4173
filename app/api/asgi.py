"""Around every request: its id, its log line, and the last wall for what nobody expected.

Plain ASGI: it adds no task, no queue and no copy to what passes through.
"""

from __future__ import annotations

import re
import time
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uuid_utils import uuid7

from app.api.intake import ClientGone
from app.api.problem_body import problem_body

_ID: Final = re.compile(rb"^[A-Za-z0-9._-]{1,64}$")
_QUIET_MS: Final = 100.0
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

_log = structlog.get_logger("statehold.http")


class RequestContext:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.perf_counter()
        status = 0

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, with_id)
        except ClientGone:
            status = status or 499
        except Exception:
            _log.exception("unexpected_error", method=scope["method"], route=_route(scope))
            if status:
                raise
            body = problem_body(
                500,
                "internal_error",
                "Something went wrong here",
                "The request could not be answered; the log has the reason under this request id.",
                request_id=request_id,
            )
            await with_id(
                {
                    "type": "http.response.start",
                    "status": 500,
                    "headers": [
                        (b"content-type", b"application/problem+json"),
                        (b"content-length", str(len(body)).encode()),
                    ],
                }
            )
            await send({"type": "http.response.body", "body": body})
        finally:
            elapsed = (time.perf_counter() - started) * 1000
            _count(scope, status)
            say = _log.debug if status < 400 and elapsed < _QUIET_MS else _log.info
            say(
                "request",
                method=scope["method"],
                route=_route(scope),
                status=status,
                ms=round(elapsed, 3),
            )


def _count(scope: Scope, status: int) -> None:
    """By method, route and status: all from fixed sets, whatever a client sends."""
    app = scope.get("app")
    if app is None:  # refused before the app was asked
        return
    method = scope["method"] if scope["method"] in _METHODS else "other"
    app.state.cache.metrics.count("requests", f"{method} {_route(scope)} {status}")


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ID.match(value):
            return str(value.decode("ascii"))
    return str(uuid7())


def _route(scope: Scope) -> str:
    """The route's template, never the path: ids are fine but a path may hold anything."""
    return str(getattr(scope.get("route"), "path", "unmatched"))
