"""/admin/v1/states: every state of any status, and its way into quarantine and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api import views
from app.api.access import CacheDep, StateId
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.admin import QuarantineRequest, StateDetail, StateList
from app.api.schemas.common import UUID_PATTERN, Kind, Status
from app.engine.cache import Cache

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.get(
    "/admin/v1/states",
    summary="List states",
    response_model=StateList,
    responses=responses("invalid_request"),
)
async def listing(
    cache: CacheDep,
    namespace: Annotated[str | None, Query(description="Of this namespace only.")] = None,
    status: Annotated[Status | None, Query(description="In this status only.")] = None,
    kind: Annotated[Kind | None, Query(description="Of this kind only.")] = None,
    after: Annotated[
        str | None, Query(pattern=UUID_PATTERN, description="Those recorded behind this one.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> StateList:
    """In order of recording, a page at a time."""
    rows = await cache.desk.states(
        limit=limit, after=after, namespace=namespace, status=status, kind=kind
    )
    return StateList(
        states=[views.state_info(row, name) for row, name in rows],
        next=rows[-1][0].state_id if len(rows) == limit else None,
    )


@router.get(
    "/admin/v1/states/{state_id}",
    summary="Show a state with its evidence",
    response_model=StateDetail,
    responses=responses("invalid_request", "state_not_found"),
)
async def show(state_id: StateId, cache: CacheDep) -> StateDetail:
    """Components with digests, and for a quarantined state why it is out of service."""
    return _detail(state_id, cache)


@router.post(
    "/admin/v1/states/{state_id}/quarantine",
    summary="Take a state out of service",
    response_model=StateDetail,
    responses=responses(
        *JSON_BODY,
        "state_not_found",
        "state_not_live",
        "quarantine_failed",
    ),
)
async def quarantine(state_id: StateId, request: QuarantineRequest, cache: CacheDep) -> StateDetail:
    """Lookups pass it over from now on; its bytes stay as evidence."""
    await cache.quarantine.put_in(state_id, request.reason)
    return _detail(state_id, cache)


@router.post(
    "/admin/v1/states/{state_id}/release",
    summary="Verify a quarantined state and put it back into service",
    response_model=StateDetail,
    responses=responses(
        "invalid_request",
        "state_not_found",
        "state_not_quarantined",
        "still_failing",
        "newer_recording",
        "busy",
    ),
)
async def release(state_id: StateId, cache: CacheDep) -> StateDetail:
    """Every byte is read and verified first; a state that still fails stays where it is."""
    await cache.quarantine.release(state_id)
    return _detail(state_id, cache)


@router.delete(
    "/admin/v1/states/{state_id}",
    summary="Purge a quarantined state",
    status_code=204,
    response_class=Response,
    responses=responses("invalid_request", "state_not_found", "state_not_quarantined", "busy"),
)
async def purge(state_id: StateId, cache: CacheDep) -> Response:
    """Its evidence goes with it. A live state is evicted instead (`/admin/v1/evictions`)."""
    await cache.quarantine.purge(state_id)
    return Response(status_code=204)


def _detail(state_id: str, cache: Cache) -> StateDetail:
    row, namespace, components, evidence = cache.desk.state(state_id)
    return StateDetail(
        **views.state_info(row, namespace).model_dump(),
        components=views.components(components),
        kv_descriptor=views.descriptor(row),
        evidence=None if evidence is None else views.evidence(evidence),
    )
