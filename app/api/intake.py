"""Reading requests: bounded, strict, and never slower than a client may be.

JSON is read whole up to a limit and parsed without NaN, without unlimited nesting or parts, and in a
thread when it is large. Component bodies are handed on as they arrive, with a bound on silence and a
minimum rate, so that a slow or dead client costs nothing but its own recording.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

import http_sf
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.api.access import admit
from app.api.auditing import audited, is_audited
from app.api.parsing import LISTS, SMALL, Shape, is_large, validated, values
from app.api.problems import ApiProblem
from app.settings import Settings

_RATE_GRACE_S: Final = 10.0
_MOST_DIGITS: Final = 18

M = TypeVar("M", bound=BaseModel)


class ClientGone(Exception):
    """The client closed the connection before its request was whole. There is nobody to answer."""


class StrictRequest(Request):
    """A request whose JSON body is bounded and strictly parsed."""

    async def body(self) -> bytes:
        """The body, up to `max_json_bytes`."""
        if not hasattr(self, "_body"):
            settings: Settings = self.app.state.settings
            most = settings.max_json_bytes
            if (content_length(self) or 0) > most:
                raise _too_large(most)
            parts, size = [], 0
            async for chunk in arriving(self, settings):
                size += len(chunk)
                if size > most:
                    raise _too_large(most)
                parts.append(chunk)
            self._body = b"".join(parts)
        return self._body

    async def json(self) -> Any:
        """The parsed body of a route that takes neither tokens nor digests nor a geometry."""
        raw = await self.body()
        try:
            if is_large(raw):
                return await asyncio.to_thread(values, raw, SMALL)
            return values(raw, SMALL)
        except RequestValidationError as error:
            # The framework lets an HTTPException through, and takes all else for bad JSON.
            first = error.errors()[0]
            if first["type"] == "json_invalid":
                raise
            raise ApiProblem("invalid_request", first["msg"], "body") from error


class StrictRoute(APIRoute):
    """Routes whose callers are known and allowed, and whose handlers get a `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind access control and a strict request."""
        handler = super().get_route_handler()
        path = self.path

        async def strict(request: Request) -> Response:
            admit(request, path)
            checked = StrictRequest(request.scope, request.receive)
            if is_audited(request.method, path):
                return await audited(checked, path, handler)
            return await handler(checked)

        return strict


async def parsed(request: Request, model: type[M], shape: Shape = LISTS) -> M:
    """The JSON body as `model`, straight from its bytes.

    The way of hot routes and of large bodies: FastAPI's own parses into Python objects first, solves
    dependencies and validates then, which costs a lookup a third of its time, and a large body that of
    the event loop. Document the body with `documented`.

    Raises:
        RequestValidationError: as FastAPI would.
    """
    raw = await request.body()
    if "json" not in request.headers.get("content-type", ""):
        raise RequestValidationError(
            [{"type": "content_type", "loc": ("body",), "msg": "Content-Type must be JSON"}]
        )
    if is_large(raw):
        return await asyncio.to_thread(validated, model, raw, shape)
    return validated(model, raw, shape)


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route that reads its body with `parsed`."""
    reference = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}
    }


async def arriving(request: Request, settings: Settings) -> AsyncIterator[bytes]:
    """The body's chunks, none of them empty.

    Raises:
        ClientGone: the connection was closed.
        ApiProblem: `too_slow`; nothing came for the idle time, or less than the minimum rate.
    """
    started = time.monotonic()
    size = 0
    pieces = _pieces(request, settings.idle_timeout_s)
    passed = getattr(request.state, "passed", None)
    while True:
        try:
            chunk = await anext(pieces, None)
        except TimeoutError:
            raise _too_slow("nothing arrived for the idle time") from None
        if chunk is None:
            return
        size += len(chunk)
        if passed is not None:
            passed(len(chunk))
        yield chunk
        elapsed = time.monotonic() - started
        if elapsed > _RATE_GRACE_S and size < settings.min_rate_bytes * (elapsed - _RATE_GRACE_S):
            raise _too_slow("the body arrived below the minimum rate")


async def _pieces(request: Request, idle_s: float) -> AsyncIterator[bytes]:
    """The body as it comes; claimed from the connection where it goes on after the first piece."""
    claim = request.scope.get("extensions", {}).get("statehold.body")
    while True:
        async with asyncio.timeout(idle_s):
            message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            return
        if claim is not None:
            break
    queue = claim["claim"]()
    try:
        while piece := await queue.get(idle_s):
            yield piece
    except ConnectionError:
        raise ClientGone from None


def content_length(request: Request) -> int | None:
    """What the client says it will send; None for a chunked body."""
    return _number(request.headers.get("content-length", ""))


def content_digests(request: Request) -> dict[str, bytes]:
    """`Content-Digest` (RFC 9530): the digests we can verify, by algorithm name.

    Raises:
        ApiProblem: the field cannot be read, or names no algorithm that we know.
    """
    value = request.headers.get("content-digest")
    if value is None:
        return {}
    try:
        fields: Any = http_sf.parse(value.encode("ascii"), tltype="dictionary")
    except (ValueError, UnicodeEncodeError) as error:
        raise _bad_digest("it is not a structured field dictionary") from error
    digests = {}
    for name, length in (("sha-256", 32), ("sha-512", 64)):
        item = fields.get(name)
        if item is None:
            continue
        if not isinstance(item[0], bytes) or len(item[0]) != length:
            raise _bad_digest(f"{name} must be a byte sequence of {length} bytes")
        digests[name] = item[0]
    if not digests:
        raise _bad_digest("use sha-256 or sha-512")
    return digests


def takes_zstd(request: Request) -> bool:
    """Whether the client names zstd in `Accept-Encoding`; `*` alone does not ask for it."""
    for coding in request.headers.get("accept-encoding", "").split(","):
        name, _, parameters = coding.partition(";")
        if name.strip().lower() == "zstd":
            return not re.fullmatch(r"\s*q=0(\.0*)?\s*", parameters)
    return False


def wait_preference(request: Request, most_s: float) -> float:
    """Seconds of `Prefer: wait=N` (RFC 7240), capped; 0 where it is not asked for."""
    for preference in request.headers.get("prefer", "").split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        seconds = _number(value.strip().strip('"'))
        if name.strip().lower() == "wait" and seconds is not None:
            return min(float(seconds), most_s)
    return 0.0


def _number(text: str) -> int | None:
    """Digits as a number, 10**18 where there are more than 18 of them.

    Python calls ² a digit and takes it for no number, and no text of more than 4,300 digits.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text) <= _MOST_DIGITS else 10**_MOST_DIGITS


def _too_large(most: int) -> ApiProblem:
    return ApiProblem("body_too_large", f"A JSON body may have at most {most} bytes.")


def _too_slow(detail: str) -> ApiProblem:
    return ApiProblem("too_slow", detail, headers={"Connection": "close"})


def _bad_digest(detail: str) -> ApiProblem:
    return ApiProblem("invalid_digest_header", detail, "Content-Digest")
