"""Reading requests: bounded, strict, and never slower than a client may be.

JSON is read whole up to a limit and parsed without NaN, without unlimited nesting, and in a thread
when it is large. Component bodies are handed on as they arrive, with a bound on silence and a
minimum rate, so that a slow or dead client costs nothing but its own recording.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

import http_sf
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from app.api.problems import ApiProblem
from app.settings import Settings

_PARSE_IN_THREAD_BYTES: Final = 512 << 10
_RATE_GRACE_S: Final = 10.0

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
            announced = self.headers.get("content-length", "")
            if announced.isdigit() and int(announced) > most:
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
        """The parsed body."""
        raw = await self.body()
        try:
            if len(raw) > _PARSE_IN_THREAD_BYTES:
                return await asyncio.to_thread(from_json, raw, allow_inf_nan=False)
            return from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            raise json.JSONDecodeError("not JSON", "", 0) from error


class StrictRoute(APIRoute):
    """Routes whose handlers get a `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind a strict request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


async def parsed(request: Request, model: type[M]) -> M:
    """The JSON body as `model`, straight from its bytes.

    The hot routes' way: FastAPI's own parses into Python objects first, solves dependencies and
    validates then, which costs a lookup a third of its time. Document the body with `documented`.

    Raises:
        RequestValidationError: as FastAPI would.
    """
    raw = await request.body()
    if "json" not in request.headers.get("content-type", ""):
        raise RequestValidationError(
            [{"type": "content_type", "loc": ("body",), "msg": "Content-Type must be JSON"}]
        )
    try:
        if len(raw) > _PARSE_IN_THREAD_BYTES:
            return await asyncio.to_thread(model.model_validate_json, raw)
        return model.model_validate_json(raw)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**item, "loc": ("body", *item["loc"])} for item in found]
        ) from None


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
    while True:
        try:
            chunk = await anext(pieces, None)
        except TimeoutError:
            raise _too_slow("nothing arrived for the idle time") from None
        if chunk is None:
            return
        size += len(chunk)
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
    announced = request.headers.get("content-length")
    return int(announced) if announced is not None and announced.isdigit() else None


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


def wait_preference(request: Request, most_s: float) -> float:
    """Seconds of `Prefer: wait=N` (RFC 7240), capped; 0 where it is not asked for."""
    for preference in request.headers.get("prefer", "").split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait" and value.strip().strip('"').isdigit():
            return min(float(value.strip().strip('"')), most_s)
    return 0.0


def _too_large(most: int) -> ApiProblem:
    return ApiProblem("body_too_large", f"A JSON body may have at most {most} bytes.")


def _too_slow(detail: str) -> ApiProblem:
    return ApiProblem("too_slow", detail, headers={"Connection": "close"})


def _bad_digest(detail: str) -> ApiProblem:
    return ApiProblem("invalid_digest_header", detail, "Content-Digest")
