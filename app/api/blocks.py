"""The native block form: have and need in both directions (docs/native.md)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from app.api import fields, views
from app.api.access import CacheDep, StateId, cache_of
from app.api.intake import StrictRoute, arriving, documented, parsed
from app.api.outflow import ByteStream
from app.api.problems import JSON_BODY, responses
from app.api.records import UPLOAD_CODES
from app.api.schemas.blocks import BlocksReceipt, BlocksWanted, NeedRequest, NeedResponse
from app.api.schemas.common import ComponentName
from app.api.states import LeaseHeader, lease_id_of
from app.engine.cache import Cache
from app.engine.framing import MEDIA_TYPE
from app.engine.restoring import Reading

router = APIRouter(tags=["blocks"], route_class=StrictRoute)

STREAM: dict[str, Any] = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
_Announced = Annotated[ComponentName, Path(description="A component named at admission.")]
# A block upload announces no length of the component and no digest of its bytes.
_CODES = tuple(
    code
    for code in UPLOAD_CODES
    if code not in ("length_mismatch", "digest_mismatch", "invalid_digest_header", "spool_damaged")
)


@router.post(
    "/v1/records/{state_id}/components/{name}/need",
    summary="Say which blocks a component has, hear which are needed",
    response_class=Response,
    openapi_extra=documented(NeedRequest),
    responses={
        200: {"description": "What has to be sent.", "model": NeedResponse},
        **responses(
            *JSON_BODY, *_CODES, "invalid_blocks", "at_capacity", "busy", "low_space", "stopped"
        ),
    },
)
async def need(http: Request, state_id: StateId, name: _Announced) -> Response:
    """Blocks that the tenant has brought before become the recording's without being sent.

    A block that is held for other tenants only is asked for all the same: knowing a digest is not
    having the bytes. If nothing is needed the component has arrived with this call.
    """
    cache = cache_of(http)
    wanted = await parsed(http, NeedRequest)
    found = await cache.exchange.need(state_id, name, wanted.digests)
    body = NeedResponse(
        need=list(found.seqs), blocks_digest=None if found.digest is None else found.digest.hex()
    )
    return Response(body.model_dump_json(), media_type="application/json")


@router.put(
    "/v1/records/{state_id}/components/{name}/blocks",
    summary="Send the blocks that are needed",
    response_model=BlocksReceipt,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A block stream without a manifest, blocks in ascending order of seq.",
            "content": STREAM,
        }
    },
    responses=responses(
        "invalid_request",
        "too_slow",
        *_CODES,
        "invalid_framing",
        "invalid_blocks",
        "blocks_missing",
        "at_capacity",
        "busy",
        "low_space",
        "stopped",
    ),
)
async def send(
    request: Request, state_id: StateId, name: _Announced, cache: CacheDep
) -> BlocksReceipt:
    """Every block is decoded and must have the digest it claims before anything trusts it.

    The component arrives whole or not at all: after a failure nothing that was sent is kept; ask
    again what is needed.
    """
    digest = await cache.exchange.receive(state_id, name, arriving(request, cache.settings))
    return BlocksReceipt(name=name, blocks_digest=digest.hex())


@router.post(
    "/v1/states/{state_id}/blocks",
    summary="Blocks of a state as they are stored",
    response_class=Response,
    openapi_extra=documented(BlocksWanted),
    responses={
        200: {"description": "A block stream: manifest, blocks, end.", "content": STREAM},
        **responses(
            *JSON_BODY,
            "state_not_found",
            "state_quarantined",
            "lease_not_found",
            "lease_expired",
            "lease_released",
            "quarantine_failed",
            "busy",
        ),
    },
)
async def blocks(http: Request, state_id: StateId, lease: LeaseHeader = None) -> Response:
    """All blocks but those in `have`, and of token windows only those with `tokens`.

    Values are sent as stored, compressed where they are; each carries what proves it.
    """
    cache = cache_of(http)
    wanted = await parsed(http, BlocksWanted)
    selection = await views.selection(wanted)
    reading = await cache.restorer.read(state_id, lease_id_of(lease), selection)
    return stream(cache, reading)


def stream(cache: Cache, reading: Reading) -> Response:
    """The block stream of a reading that was opened for blocks."""
    return ByteStream(
        cache.restorer.stream(reading),
        reading.stream_bytes,
        lambda: cache.restorer.close(reading),
        headers={"Content-Type": MEDIA_TYPE, **fields.of_state(reading)},
        idle_timeout_s=cache.settings.idle_timeout_s,
    )
