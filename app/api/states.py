"""/v1/states: a known state's facts and components, and recording in one call."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Request, Response

from app.api import fields, views
from app.api.access import CacheDep, StateId
from app.api.intake import StrictRoute, takes_zstd
from app.api.outflow import ByteStream
from app.api.problems import ApiProblem, responses
from app.api.schemas.common import UUID_PATTERN, Component, ComponentName, State
from app.engine.cache import Cache
from app.engine.encoded import Encoded
from app.engine.manifest import Part
from app.engine.restoring import Reading

router = APIRouter(tags=["cache"], route_class=StrictRoute)

_RANGE: Final = re.compile(r"^bytes=(?:(\d{1,18})-(\d{1,18})?|-(\d{1,18}))$")

LeaseHeader = Annotated[
    str | None,
    Header(
        alias="Statehold-Lease",
        description="A lease on the state. Without one the response holds the state by itself.",
    ),
]


class StateWithComponents(State):
    """A state and its components in wire order."""

    components: list[Component]
    kv_descriptor: dict[str, object] | None


@router.get(
    "/v1/states/{state_id}",
    summary="Facts of a live state",
    response_model=StateWithComponents,
    responses=responses("invalid_request", "state_not_found", "state_quarantined"),
)
async def show(state_id: StateId, cache: CacheDep) -> StateWithComponents:
    """What a state is made of. Reading it does not count as use and holds nothing."""
    row = cache.restorer.readable(state_id, None)
    _, _, components, *_ = cache.desk.state(state_id)
    return StateWithComponents(
        **views.state(row).model_dump(),
        components=views.components(components),
        kv_descriptor=views.descriptor(row),
    )


_COMPONENT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The whole component.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "ETag": {"description": "BLAKE3-256 of the component.", "schema": {"type": "string"}}
        },
    },
    206: {
        "description": "The range asked for.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The client has these bytes (`If-None-Match`)."},
    **responses(
        "invalid_request",
        "state_not_found",
        "component_not_found",
        "state_quarantined",
        "lease_not_found",
        "lease_expired",
        "lease_released",
        "range_not_satisfiable",
        "quarantine_failed",
        "busy",
    ),
}


async def _component(
    request: Request,
    state_id: StateId,
    name: Annotated[ComponentName, Path(description="The component.")],
    cache: CacheDep,
    lease: LeaseHeader = None,
) -> Response:
    """`Range` takes one range, also a suffix; `If-Range` and `If-None-Match` take the ETag.

    With `Accept-Encoding: zstd` a whole component comes zstd-encoded where it is stored that way; HEAD
    and ranges are of the plain bytes. Every byte is verified before it is sent. Without a lease the
    state is held for the response.
    """
    lease_id = lease_id_of(lease)
    # What decides the status is known from the metadata; no block is read for a 304 or a HEAD.
    row = cache.restorer.readable(state_id, lease_id)
    part = await cache.restorer.part(row, name)
    headers = {
        "ETag": fields.etag(part),
        "Accept-Ranges": "bytes",
        **fields.NO_STORE,
        **fields.VARY,
    }
    if _matches(request.headers.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    start, end, partial = _range(request, part, headers["ETag"])
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{part.raw_bytes}"
    status = 206 if partial else 200
    if request.method == "HEAD":
        return Response(
            status_code=status,
            headers={
                **headers,
                "Content-Length": str(end - start),
                "Content-Type": "application/octet-stream",
            },
        )
    reading = await cache.restorer.read(
        state_id, lease_id, [(name, start, end)], encode=not partial and takes_zstd(request)
    )
    if isinstance(reading.opened, Encoded):
        # Other bytes, so another strong ETag.
        headers["ETag"] = f'{headers["ETag"][:-1]}-zstd"'
        return encoded(cache, reading, headers)
    return _stream(cache, reading, name, start, end, status, headers)


router.get(
    "/v1/states/{state_id}/components/{name}",
    summary="Bytes of a component",
    response_class=Response,
    responses=_COMPONENT_RESPONSES,
)(_component)
router.head(
    "/v1/states/{state_id}/components/{name}",
    summary="Length and ETag of a component",
    response_class=Response,
    responses=_COMPONENT_RESPONSES,
    operation_id="head_component",
)(_component)


def encoded(cache: Cache, reading: Reading, headers: dict[str, str]) -> Response:
    """A reading that goes out zstd-encoded."""
    return ByteStream(
        cache.restorer.stream(reading),
        reading.stream_bytes,
        lambda: cache.restorer.close(reading),
        headers={**headers, **fields.ENCODED},
        idle_timeout_s=cache.settings.idle_timeout_s,
    )


def _stream(
    cache: Cache,
    reading: Reading,
    name: str,
    start: int,
    end: int,
    status: int,
    headers: dict[str, str],
) -> Response:
    return ByteStream(
        cache.restorer.stream(reading, [(name, start, end)]),
        end - start,
        lambda: cache.restorer.close(reading),
        status_code=status,
        headers=headers,
        idle_timeout_s=cache.settings.idle_timeout_s,
    )


def lease_id_of(value: str | None) -> str | None:
    """The lease that the header names.

    Raises:
        ApiProblem: it cannot be one.
    """
    if value is None:
        return None
    lease_id = value.strip().strip('"')
    if not re.match(UUID_PATTERN, lease_id):
        raise ApiProblem("lease_not_found", "No such lease.", "Statehold-Lease")
    return lease_id


def _matches(value: str | None, etag: str) -> bool:
    if value is None:
        return False
    tags = [tag.strip().removeprefix("W/").replace('-zstd"', '"') for tag in value.split(",")]
    return "*" in tags or etag in tags


def _range(request: Request, part: Part, etag: str) -> tuple[int, int, bool]:
    """[start, end) and whether it is a part; a malformed Range is ignored (RFC 9110, 14.2)."""
    whole = (0, part.raw_bytes, False)
    value = request.headers.get("range")
    condition = request.headers.get("if-range")
    if value is None or (condition is not None and condition.strip() != etag):
        return whole
    if value.startswith("bytes=") and "," in value:
        raise _unsatisfiable(part, "One range at a time.")
    match = _RANGE.match(value.strip())
    if match is None:
        return whole
    first, last, suffix = match.groups()
    if suffix is not None:
        length = min(int(suffix), part.raw_bytes)
        start, end = part.raw_bytes - length, part.raw_bytes
    else:
        start = int(first)
        if last is not None and int(last) < start:
            return whole
        end = part.raw_bytes if last is None else min(int(last) + 1, part.raw_bytes)
    if start >= end:
        raise _unsatisfiable(part, "The range lies outside the component.")
    return start, end, True


def _unsatisfiable(part: Part, detail: str) -> ApiProblem:
    return ApiProblem(
        "range_not_satisfiable",
        detail,
        "Range",
        headers={"Content-Range": f"bytes */{part.raw_bytes}"},
    )
