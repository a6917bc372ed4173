"""POST /v1/lookup: what would be found, and on request a lease on it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from app.api import views
from app.api.access import cache_of, caller_of
from app.api.intake import StrictRoute, documented, parsed
from app.api.problems import JSON_BODY, responses
from app.api.schemas.cache import LeaseGrant, LookupRequest, LookupResponse
from app.engine.restoring import Missed

router = APIRouter(tags=["cache"], route_class=StrictRoute)


@router.post(
    "/v1/lookup",
    summary="Find the longest usable prefix",
    response_class=Response,
    openapi_extra=documented(LookupRequest),
    responses={
        200: {"description": "A hit or a miss.", "model": LookupResponse},
        **responses(
            *JSON_BODY,
            "invalid_namespace",
            "invalid_tokens",
            "quarantine_failed",
            "busy",
        ),
    },
)
async def lookup(http: Request) -> Response:
    """Candidates are tried in order; the first that has a usable state wins, with its longest one.

    A peek (`acquire` false) costs two index walks. With `acquire` the state is held for `ttl_s`
    seconds: read its components under the lease, then release it with the outcome. While nothing can
    be written (the disk is full, the writer has stopped) the answer is the same without a `lease`.
    A miss says why, for each candidate.
    """
    cache = cache_of(http)
    request = await parsed(http, LookupRequest)
    candidates = await views.candidates(request.candidates, cache.settings, caller_of(http))
    ttl_ms = None
    if request.ttl_s is not None:
        ttl_ms = min(request.ttl_s, cache.settings.max_lease_ttl_s) * 1000
    found = await cache.restorer.lookup(
        candidates,
        request.accept_kinds,
        acquire=request.acquire,
        ttl_ms=ttl_ms,
        truncate=request.allow_truncated,
    )
    if isinstance(found, Missed):
        return _answer(
            hit=False,
            misses=[views.miss(miss) for miss in found.misses],
            lookup_ms=found.lookup_ms,
        )
    lease = None
    if found.lease_id is not None:
        lease = LeaseGrant(lease_id=found.lease_id, ttl_ms=ttl_ms or cache.leases.default_ttl_ms)
    return _answer(
        hit=True,
        candidate=found.hit.candidate,
        state=views.state(found.hit.state),
        prefix_tokens=found.hit.prefix_tokens,
        components=views.components(found.components) if request.acquire else None,
        lease=lease,
        lookup_ms=found.lookup_ms,
    )


def _answer(**values: Any) -> Response:
    body = LookupResponse(**values).model_dump_json(exclude_none=True)
    return Response(body, media_type="application/json")
