"""POST /admin/v1/evictions: by id, by namespace, or down to a target."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.access import CacheDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.admin import EvictionRequest, EvictionResponse

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.post(
    "/admin/v1/evictions",
    summary="Evict states",
    response_model=EvictionResponse,
    responses=responses(
        *JSON_BODY,
        "state_not_found",
        "namespace_not_found",
        "busy",
        "low_space",
    ),
)
async def evict(request: EvictionRequest, cache: CacheDep) -> EvictionResponse:
    """States that somebody reads under a lease are kept and named.

    By ids it is all or nothing as to existence: if one id is no live state, nothing goes.
    """
    if request.state_ids is not None:
        result = await cache.desk.evict_ids(request.state_ids)
    elif request.target_bytes is not None:
        result = await cache.desk.evict_to(request.target_bytes, request.namespace)
    else:
        assert request.namespace is not None
        result = await cache.desk.evict_namespace(request.namespace)
    return EvictionResponse(evicted=list(result.dropped), kept_leased=list(result.kept_leased))
