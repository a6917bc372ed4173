"""POST /v1/states: record in one call, for clients that have everything at hand.

`multipart/form-data`: a part `meta` (JSON, the body of POST /v1/records) comes first, then one part
for each component, named after it. Parts are streamed into the recording as they arrive; nothing is
kept in memory or on disk but what a PUT would keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.api.access import CacheDep, caller_of
from app.api.intake import StrictRoute, arriving
from app.api.parsing import LAYOUTS, is_large, validated
from app.api.problems import ApiProblem, responses
from app.api.records import ADMISSION_CODES, MOST_WAIT_S, UPLOAD_CODES, admission_request
from app.api.schemas.records import RecordRequest, RecordResponse
from app.engine.admission import Admission
from app.engine.cache import Cache
from app.engine.errors import Unavailable

router = APIRouter(tags=["records"], route_class=StrictRoute)

_MOST_HEADER_BYTES: Final = 4096
_COMPONENTS: Final = ("full", "kv", "recurrent", "logits")


@router.post(
    "/v1/states",
    summary="Record a state in one call",
    status_code=201,
    response_model=RecordResponse,
    response_model_exclude_unset=True,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "Part `meta` first, then the announced components in any order.",
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["meta"],
                        "properties": {
                            "meta": {"$ref": "#/components/schemas/RecordRequest"},
                            **{
                                name: {"type": "string", "format": "binary"} for name in _COMPONENTS
                            },
                        },
                    }
                }
            },
        }
    },
    responses={
        200: {"description": "The prefix is held already.", "model": RecordResponse},
        201: {"description": "Live and durable."},
        **responses(
            "invalid_multipart",
            "invalid_request",
            "body_too_large",
            "too_slow",
            *ADMISSION_CODES,
            *UPLOAD_CODES,
            "components_missing",
            "already_recorded",
        ),
    },
)
async def record(request: Request, cache: CacheDep, response: Response) -> RecordResponse:
    """Admission, upload and commit; answers when the state is durable. Anything less leaves nothing."""
    parts = _Parts(request, cache)
    first = await parts.next_part()
    if first is None or first[0] != "meta":
        raise ApiProblem("invalid_multipart", "The first part must be named meta.", "meta")
    wanted = await _meta(first[1], cache)
    admitted = await cache.recordings.admit(
        await admission_request(wanted, cache.settings, caller_of(request))
    )
    if admitted.verdict is Admission.ALREADY_RECORDED:
        response.status_code = 200
        return RecordResponse(admission="already_recorded", state_id=admitted.state_id)
    try:
        while (part := await parts.next_part()) is not None:
            name, body = part
            await cache.recorder.receive(admitted.state_id, name, body, None, {})
        committed = await cache.recordings.commit(admitted.state_id, MOST_WAIT_S)
        if committed.recording is not None:
            raise Unavailable("busy", "the commit is taking longer than this call waits", 5)
    except BaseException:
        await cache.recordings.give_up(admitted.state_id)
        raise
    response.headers["Location"] = f"/v1/states/{admitted.state_id}"
    return RecordResponse(admission="admitted", state_id=admitted.state_id)


async def _meta(body: AsyncIterator[bytes], cache: Cache) -> RecordRequest:
    raw = bytearray()
    async for chunk in body:
        raw += chunk
        if len(raw) > cache.settings.max_json_bytes:
            raise ApiProblem("body_too_large", "The part meta is too large.", "meta")
    meta = bytes(raw)
    try:
        if is_large(meta):
            return await asyncio.to_thread(validated, RecordRequest, meta, LAYOUTS)
        return validated(RecordRequest, meta, LAYOUTS)
    except RequestValidationError as error:
        first = error.errors()[0]
        field = ".".join(("meta", *(str(step) for step in first["loc"][1:])))
        raise ApiProblem("invalid_request", f"{field}: {first['msg']}", field) from None


class _Parts:
    """The parts of a multipart body, one after the other, each an iterator of its chunks."""

    def __init__(self, request: Request, cache: Cache) -> None:
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise _invalid("Content-Type must be multipart/form-data with a boundary.")
        self._chunks = arriving(request, cache.settings)
        self._events: list[tuple[str, bytes]] = []
        self._field = bytearray()
        self._value = bytearray()
        self._disposition = b""
        self._ended = False
        self._parser = self._parser_for(boundary)

    def _parser_for(self, boundary: bytes) -> MultipartParser:
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": lambda: self._disposition_reset(),
                    "on_header_field": lambda data, start, end: self._grow(
                        self._field, data, start, end
                    ),
                    "on_header_value": lambda data, start, end: self._grow(
                        self._value, data, start, end
                    ),
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": lambda data, start, end: self._events.append(
                        ("data", bytes(data[start:end]))
                    ),
                    "on_part_end": lambda: self._events.append(("end", b"")),
                    "on_end": self._end,
                },
            )
        except FormParserError:
            raise _invalid("The boundary cannot be used.") from None

    async def next_part(self) -> tuple[str, AsyncIterator[bytes]] | None:
        """The next part's name and body, or None behind the last one."""
        event = await self._next_event()
        if event is None:
            return None
        word, data = event
        if word != "begin":
            raise _invalid("The parts do not follow one another.")
        return data.decode("latin-1"), self._body()

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            event = await self._next_event()
            if event is None:
                raise _invalid("The body ends inside a part.")
            word, data = event
            if word == "end":
                return
            if data:
                yield data

    async def _next_event(self) -> tuple[str, bytes] | None:
        while not self._events:
            if self._ended:
                return None
            chunk = await anext(self._chunks, None)
            if chunk is None:
                raise _invalid("The body ends before its last boundary.")
            try:
                self._parser.write(chunk)
            except FormParserError:
                raise _invalid("The boundaries cannot be read.") from None
            self._events.reverse()
        return self._events.pop()

    def _disposition_reset(self) -> None:
        self._disposition = b""

    def _grow(self, into: bytearray, data: bytes, start: int, end: int) -> None:
        into += data[start:end]
        if len(into) > _MOST_HEADER_BYTES:
            raise _invalid("A part's header is too long.")

    def _header_end(self) -> None:
        if bytes(self._field).lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._events.append(("begin", options.get(b"name", b"")))

    def _end(self) -> None:
        self._ended = True


def _invalid(detail: str) -> ApiProblem:
    return ApiProblem("invalid_multipart", detail)
