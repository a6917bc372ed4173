"""POST /admin/v1/evictions: of named states, or by a choice; for real, or to see what would go."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from app.api.access import CacheDep, CallerDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.evictions import EvictionRequest, EvictionResponse
from app.engine.evicting import Choice, Evicted

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.post(
    "/admin/v1/evictions",
    summary="Evict states",
    response_model=EvictionResponse,
    responses=responses(
        *JSON_BODY,
        "invalid_namespace",
        "state_not_found",
        "namespace_not_found",
        "busy",
        "low_space",
        "stopped",
    ),
)
async def evict(request: EvictionRequest, cache: CacheDep, caller: CallerDep) -> Response:
    """States that somebody reads under a lease, and those that are pinned, are kept and named.

    By ids it is all or nothing as to existence: if one id is no live state, nothing goes. Otherwise the
    least recently used go first. With `target_bytes` quarantined states go too, when nothing in service is
    left to. A token that is bound to a tenant or to namespaces means its own in all of this.

    It goes in small rounds, so that requests of others go between, and on to its end whether or not
    anybody waits for the answer. The same request as a dry run says beforehand what would go and how many
    bytes that frees.
    """
    if request.state_ids is not None:
        found = await cache.evictions.of_states(request.state_ids, caller, dry_run=request.dry_run)
    else:
        choice = Choice(
            request.namespace, request.tenant, request.target_bytes, request.untouched_for_s
        )
        found = await cache.evictions.of(choice, caller, dry_run=request.dry_run)
    # Up to 30,000 ids.
    body = await asyncio.to_thread(_body, found, dry_run=request.dry_run)
    return Response(body, media_type="application/json")


def _body(found: Evicted, *, dry_run: bool) -> str:
    return EvictionResponse(
        dry_run=dry_run,
        evicted=list(found.evicted),
        evicted_count=found.evicted_count,
        kept_leased=list(found.kept_leased),
        kept_leased_count=found.kept_leased_count,
        kept_pinned=list(found.kept_pinned),
        kept_pinned_count=found.kept_pinned_count,
        freed_bytes=found.freed_bytes,
        more=found.more,
    ).model_dump_json()
