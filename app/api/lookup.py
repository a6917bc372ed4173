"""POST /v1/lookup: what would be found, and on request a lease on it."""

from __future__ import annotations

from fastapi import APIRouter, Request

from app.api import views
from app.api.access import cache_of
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.cache import LeaseGrant, LookupRequest, LookupResponse
from app.engine.restoring import Missed

router = APIRouter(tags=["cache"], route_class=StrictRoute)


@router.post(
    "/v1/lookup",
    summary="Find the longest usable prefix",
    response_model=LookupResponse,
    response_model_exclude_none=True,
    responses=responses(
        *JSON_BODY,
        "invalid_namespace",
        "invalid_tokens",
        "quarantine_failed",
        "busy",
    ),
)
async def lookup(request: LookupRequest, http: Request) -> LookupResponse:
    """Candidates are tried in order; the first that has a usable state wins, with its longest one.

    A peek (`acquire` false) costs two index walks. With `acquire` the state is held for `ttl_s`
    seconds: read its components under the lease, then release it with the outcome.
    A miss says why, for each candidate.
    """
    cache = cache_of(http)
    candidates = await views.candidates(request.candidates, cache.settings)
    ttl_ms = None
    if request.ttl_s is not None:
        ttl_ms = min(request.ttl_s, cache.settings.max_lease_ttl_s) * 1000
    found = await cache.restorer.lookup(
        candidates, request.accept_kinds, acquire=request.acquire, ttl_ms=ttl_ms
    )
    if isinstance(found, Missed):
        return LookupResponse(
            hit=False,
            misses=[views.miss(miss) for miss in found.misses],
            lookup_ms=found.lookup_ms,
        )
    lease = None
    if found.lease_id is not None:
        lease = LeaseGrant(lease_id=found.lease_id, ttl_ms=ttl_ms or cache.leases.default_ttl_ms)
    return LookupResponse(
        hit=True,
        candidate=found.hit.candidate,
        state=views.state(found.hit.state),
        components=views.components(found.components) if lease else None,
        lease=lease,
        lookup_ms=found.lookup_ms,
    )
