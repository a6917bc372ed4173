"""The one-call form: any body in any pieces, and parts that come out as they went in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.types import Message

from app.api.multipart import _Parts
from app.api.problems import ApiProblem
from app.settings import Settings

_BOUNDARY: Final = b"b0undary"
_ANY, _WELL_FORMED = range(2)
T = TypeVar("T")
_loop: Final = asyncio.new_event_loop()
_settings: Final = Settings()


class _Cache:
    settings = _settings


def _form(parts: list[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (_BOUNDARY, name, data)
        for name, data in parts
    )
    return body + b"--%b--\r\n" % _BOUNDARY


def seeds() -> Iterator[bytes]:
    yield bytes([_ANY, 255]) + _form([(b"meta", b"{}"), (b"full", b"x" * 40)])
    yield bytes([_ANY, 3]) + _form([(b"meta", b'{"kind": "kv"}')])
    yield bytes([_ANY, 50]) + b"preamble\r\n" + _form([(b"kv", b"--b0undar\r\n--")]) + b"epilogue"
    yield bytes([_ANY, 9]) + b"--b0undary\r\nContent-Disposition: form-data; name*=utf-8''x\r\n\r\n"
    yield bytes([_ANY, 9]) + b"--b0undary\r\n" + b"X: y\r\n" * 30 + b"\r\n"
    yield bytes([_WELL_FORMED, 7]) + b"meta\r\n--b0undar\0second\r\n\r\n--"


def target(data: bytes) -> None:
    if len(data) < 2:
        return
    form, step, rest = data[0] % 2, 1 + data[1], data[2:]
    if form == _WELL_FORMED:
        parts = [(b"p%d" % index, piece) for index, piece in enumerate(rest.split(b"\0")[:8])]
        if any(b"\r\n--" + _BOUNDARY in b"\r\n" + piece for _, piece in parts):
            return
        found = _loop.run_until_complete(_closing(_read(_form(parts), step)))
        assert found == [(name.decode(), piece) for name, piece in parts]
        return
    try:
        found = _loop.run_until_complete(_closing(_read(rest, step)))
    except ApiProblem as problem:
        assert problem.code == "invalid_multipart"
        return
    assert sum(len(piece) for _, piece in found) <= len(rest)


async def _read(body: bytes, step: int) -> list[tuple[str, bytes]]:
    at = 0

    async def receive() -> Message:
        nonlocal at
        piece, at = body[at : at + step], at + step
        return {"type": "http.request", "body": piece, "more_body": at < len(body)}

    kind = b"multipart/form-data; boundary=" + _BOUNDARY
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind)]}
    cache: Any = _Cache()
    parts = _Parts(Request(scope, receive), cache)
    found = []
    while (part := await parts.next_part()) is not None:
        name, chunks = part
        found.append((name, b"".join([chunk async for chunk in chunks])))
    return found


async def _closing(read: Coroutine[Any, Any, T]) -> T:
    """With the generators that it leaves behind, as a server's loop closes them."""
    try:
        return await read
    finally:
        await asyncio.sleep(0)
