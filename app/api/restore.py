"""POST /v1/restore: find and give back in one round trip."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from app.api import blocks, fields, views
from app.api.access import cache_of, caller_of
from app.api.intake import StrictRoute, documented, parsed, takes_zstd
from app.api.outflow import ByteStream
from app.api.problems import JSON_BODY, responses
from app.api.schemas.cache import RestoreRequest
from app.api.states import encoded
from app.engine.encoded import Encoded
from app.engine.restoring import Missed

router = APIRouter(tags=["cache"], route_class=StrictRoute)

_HEADERS: dict[str, Any] = {
    "Statehold-State": {
        "description": "Structured field item: the state id, with `page-id`, `kind`, "
        "`token-count`, `logical-bytes`, `entries` (components), `blocks` and `candidate` (index); "
        "`truncated-from` where only the first `token-count` of so many tokens are given.",
        "schema": {"type": "string"},
    },
    "Statehold-Components": {
        "description": "Structured field list: component names in the order of the body, each with "
        "`bytes` and `digest` (BLAKE3-256).",
        "schema": {"type": "string"},
    },
    "Statehold-Kv-Descriptor": {
        "description": "Structured field byte sequence: the KV descriptor's JSON, where there is one.",
        "schema": {"type": "string"},
    },
    "Statehold-Lease": {
        "description": "Structured field string: the lease that held the state for this response. "
        "It ends with the response; its outcome can still be reported.",
        "schema": {"type": "string"},
    },
    "Server-Timing": {
        "description": "`lookup` and `reconstruct` in milliseconds.",
        "schema": {"type": "string"},
    },
    "Cache-Status": {"description": "RFC 9211.", "schema": {"type": "string"}},
}


@router.post(
    "/v1/restore",
    summary="Find the longest usable prefix and get its state",
    response_class=Response,
    openapi_extra=documented(RestoreRequest),
    responses={
        200: {
            "description": "The components in order, one directly after the other.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                **blocks.STREAM,
            },
            "headers": _HEADERS,
        },
        204: {
            "description": "Nothing usable is held; the reasons are in a header.",
            "headers": {
                "Statehold-Miss": {
                    "description": "Structured field list: a reason for each candidate "
                    "(`never_seen`, `evicted_recently` with `evicted-ago`, `identity_mismatch` with "
                    "`differing-fields`, `quarantined`, `kind_not_accepted`, `lookup_disabled`).",
                    "schema": {"type": "string"},
                }
            },
        },
        **responses(
            *JSON_BODY,
            "invalid_namespace",
            "invalid_tokens",
            "quarantine_failed",
            "busy",
        ),
    },
)
async def restore(http: Request) -> Response:
    """The body is the components in wire order (`full`, `kv`, `recurrent`, `logits`), or with
    `blocks` their blocks as they are stored.

    With `Accept-Encoding: zstd` the body comes zstd-encoded where it is stored that way. Every byte is
    verified before it is sent. A state that fails is quarantined, and the same call
    goes on to the next shorter prefix, then to the next candidate. If a fault shows only while a
    large state is being sent, the connection is closed before the announced length: ask again.
    """
    cache = cache_of(http)
    request = await parsed(http, RestoreRequest)
    candidates = await views.candidates(request.candidates, cache.settings, caller_of(http))
    found = await cache.restorer.restore(
        candidates,
        request.accept_kinds,
        truncate=request.allow_truncated,
        selection=None if request.blocks is None else await views.selection(request.blocks),
        encode=request.blocks is None and takes_zstd(http),
    )
    if isinstance(found, Missed):
        return Response(status_code=204, headers=fields.of_miss(found.misses, found.lookup_ms))
    if request.blocks is not None:
        return blocks.stream(cache, found)
    if isinstance(found.opened, Encoded):
        return encoded(cache, found, fields.of_state(found))
    parts = found.opened.manifest.parts
    return ByteStream(
        cache.restorer.stream(found, [(part.name, 0, part.raw_bytes) for part in parts]),
        sum(part.raw_bytes for part in parts),
        lambda: cache.restorer.close(found),
        headers={**fields.of_state(found), **fields.VARY},
        idle_timeout_s=cache.settings.idle_timeout_s,
    )
