"""/v1/records: admission, component uploads, commit, status, abort."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response

from app.api import views
from app.api.access import CacheDep, StateId, cache_of, caller_of
from app.api.intake import (
    StrictRoute,
    arriving,
    content_digests,
    content_length,
    documented,
    parsed,
    wait_preference,
)
from app.api.parsing import LAYOUTS
from app.api.problems import JSON_BODY, responses
from app.api.schemas.common import ComponentName
from app.api.schemas.records import (
    BlockLayout,
    ComponentReceipt,
    RecordRequest,
    RecordResponse,
    RecordStatus,
)
from app.engine.access import Caller
from app.engine.admission import Admission
from app.engine.recordings import AdmissionRequest
from app.engine.recordings import RecordStatus as Standing
from app.settings import Settings
from storage.clock import boot_ms
from storage.scoped import split

router = APIRouter(tags=["records"], route_class=StrictRoute)

MOST_WAIT_S: Final = 60.0

ADMISSION_CODES: Final = (
    "invalid_namespace",
    "invalid_tokens",
    "invalid_payload",
    "invalid_descriptor",
    "invalid_geometry",
    "descriptor_too_large",
    "in_flight",
    "too_short",
    "at_capacity",
    "busy",
    "oversize",
    "low_space",
    "disabled",
    "stopped",
    "over_quota",
)
UPLOAD_CODES: Final = (
    "length_mismatch",
    "digest_mismatch",
    "invalid_digest_header",
    "record_not_found",
    "component_not_announced",
    "record_committed",
    "component_complete",
    "upload_in_progress",
    "spool_damaged",
)


@router.post(
    "/v1/records",
    summary="Ask to record a state",
    status_code=201,
    response_model=RecordResponse,
    response_model_exclude_unset=True,
    openapi_extra=documented(RecordRequest),
    responses={
        200: {"description": "The prefix is held already.", "model": RecordResponse},
        201: {"description": "Admitted: send the components, then commit."},
        **responses(*JSON_BODY, *ADMISSION_CODES),
    },
)
async def admit(http: Request, response: Response) -> RecordResponse:
    """Asked before the export, and answered at once, so that the caller pays only for what is kept.

    Every refusal has its own code; none of them is a fault of the caller's work: serving goes on
    without the recording.
    """
    cache = cache_of(http)
    request = await parsed(http, RecordRequest, LAYOUTS)
    admitted = await cache.recordings.admit(
        await admission_request(request, cache.settings, caller_of(http))
    )
    if admitted.verdict is Admission.ALREADY_RECORDED:
        response.status_code = 200
        return RecordResponse(admission="already_recorded", state_id=admitted.state_id)
    response.headers["Location"] = f"/v1/records/{admitted.state_id}"
    return RecordResponse(
        admission="admitted",
        state_id=admitted.state_id,
        ttl_ms=admitted.ttl_ms,
        layouts=[
            BlockLayout(name=name, window_rows=rows, block_count=count)  # type: ignore[arg-type]
            for name, (rows, count) in admitted.layouts.items()
        ],
    )


@router.put(
    "/v1/records/{state_id}/components/{name}",
    summary="Send a component",
    response_model=ComponentReceipt,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The component's bytes, exactly as many as were announced.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        },
        "parameters": [
            {
                "name": "Content-Digest",
                "in": "header",
                "required": False,
                "description": "RFC 9530; `sha-256` and `sha-512` are verified before the component "
                "counts as arrived.",
                "schema": {"type": "string"},
            }
        ],
    },
    responses=responses(
        "invalid_request", "too_slow", *UPLOAD_CODES, "at_capacity", "busy", "low_space", "stopped"
    ),
)
async def upload(
    request: Request,
    state_id: StateId,
    name: Annotated[ComponentName, Path(description="A component named at admission.")],
    cache: CacheDep,
) -> ComponentReceipt:
    """Streamed: cut, hashed, compressed and written while it arrives.

    A component arrives whole or not at all: one that breaks off or does not have the announced
    length or digest leaves nothing behind, and may be sent again.
    """
    receipt = await cache.recorder.receive(
        state_id,
        name,
        arriving(request, cache.settings),
        content_length(request),
        content_digests(request),
    )
    return ComponentReceipt(name=name, bytes=receipt.raw_bytes, digest=receipt.digest.hex())


@router.post(
    "/v1/records/{state_id}/commit",
    summary="Commit a recording",
    response_model=RecordStatus,
    responses={
        200: {"description": "Live and durable."},
        202: {
            "description": "Accepted; not yet durable. Ask for the status, or commit again with "
            "`Prefer: wait=N`.",
            "model": RecordStatus,
        },
        **responses(
            "invalid_request",
            "record_not_found",
            "components_missing",
            "already_recorded",
            "at_capacity",
            "busy",
            "low_space",
            "stopped",
        ),
    },
    openapi_extra={
        "parameters": [
            {
                "name": "Prefer",
                "in": "header",
                "required": False,
                "description": "RFC 7240: `wait=N` waits up to N seconds (60 at most) for durability.",
                "schema": {"type": "string", "example": "wait=10"},
            }
        ]
    },
)
async def commit(
    request: Request, state_id: StateId, cache: CacheDep, response: Response
) -> RecordStatus:
    """Makes the state visible to lookups once every block is durable. Committing twice is once."""
    wait_s = wait_preference(request, MOST_WAIT_S)
    found = await cache.recordings.commit(state_id, wait_s)
    if wait_s:
        response.headers["Preference-Applied"] = f"wait={wait_s:g}"
    if found.recording is not None:
        response.status_code = 202
        response.headers["Location"] = f"/v1/records/{state_id}"
    return _status(found)


@router.get(
    "/v1/records/{state_id}",
    summary="Where a recording stands",
    response_model=RecordStatus,
    responses=responses("invalid_request", "record_not_found"),
)
async def status(state_id: StateId, cache: CacheDep) -> RecordStatus:
    """`recording`, `committing`, `live` or `quarantined`; 404 once it is gone."""
    return _status(await cache.recordings.status_of(state_id))


@router.delete(
    "/v1/records/{state_id}",
    summary="Abort a recording",
    status_code=204,
    response_class=Response,
    responses=responses("invalid_request", "record_not_found", "record_committed", "stopped"),
)
async def abort(state_id: StateId, cache: CacheDep) -> Response:
    """Gives up the recording and everything it has brought."""
    await cache.recordings.abort(state_id)
    return Response(status_code=204)


async def admission_request(
    request: RecordRequest, settings: Settings, caller: Caller
) -> AdmissionRequest:
    """The engine's form of what the client asks."""
    (candidate,) = await views.candidates([request], settings, caller)
    return AdmissionRequest(
        namespace=candidate.namespace,
        tokens=candidate.tokens,
        kind=request.kind,
        components=views.announced(request.components),
        kv_descriptor=request.kv_descriptor,
        geometry={str(name): layout for name, layout in (request.geometry or {}).items()},
        page_id=request.page_id,
        replace=request.replace,
        ttl_ms=None if request.ttl_s is None else request.ttl_s * 1000,
    )


def _status(found: Standing) -> RecordStatus:
    expires = None
    if found.recording is not None and not found.committing:
        expires = max(0, found.recording.deadline_boot_ms - boot_ms())
    return RecordStatus(
        **views.state(found.state).model_dump(),
        namespace=split(found.namespace)[1],
        status="committing" if found.committing else found.state.status,  # type: ignore[arg-type]
        components=views.components(found.components),
        expires_in_ms=expires,
    )
