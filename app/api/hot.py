"""The one route that gateways ask before every prefill, answered without the framework's routing.

Matching, dependency solving and two exit stacks cost a lookup as much as its work. The route stays in
the app for its description; a request that matches it exactly goes straight to its handler, and its
errors to the app's own handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.access import admit
from app.api.intake import StrictRequest

Handler = Callable[[Request], Awaitable[Response]]


class HotRoutes:
    """Innermost of the app's own layers; everything else passes through."""

    def __init__(self, app: ASGIApp, *, of: FastAPI, posts: Mapping[str, Handler]) -> None:
        """
        Args:
            of: the app, for its error handlers.
            posts: handlers by path, POST only.
        """
        self._app = app
        self._of = of
        self._posts = posts
        self._routes = {path: SimpleNamespace(path=path) for path in posts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        handler = self._posts.get(scope["path"]) if scope["type"] == "http" else None
        if handler is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = self._routes[scope["path"]]
        request = StrictRequest(scope, receive)
        try:
            admit(request, scope["path"])
            response = await handler(request)
        except Exception as error:
            found = self._error_handler(error)
            if found is None:
                raise
            response = await found(request, error)
        await response(scope, receive, send)

    def _error_handler(self, error: Exception) -> Any:
        handlers: Mapping[Any, Any] = self._of.exception_handlers
        return next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
