"""/admin/v1/states/{id}: a state of any status, and its way into quarantine and out."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api import views
from app.api.access import CacheDep, CallerDep, StateId
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.admin import QuarantineRequest, StateDetail
from app.engine.cache import Cache

router = APIRouter(tags=["admin"], route_class=StrictRoute)


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
async def quarantine(
    state_id: StateId, request: QuarantineRequest, cache: CacheDep, caller: CallerDep
) -> StateDetail:
    """Lookups pass it over from now on; its bytes stay as evidence."""
    before = _detail(state_id, cache)
    evidence = await cache.quarantine.put_in(state_id, request.reason, caller.token_id)
    return before.model_copy(update={"status": "quarantined", "evidence": views.evidence(evidence)})


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
        "at_capacity",
        "busy",
        "low_space",
        "stopped",
    ),
)
async def release(state_id: StateId, cache: CacheDep) -> StateDetail:
    """Every byte is read and verified first. A state that still fails stays where it is, and its evidence
    says what was found. Limits on live states hold here too: others are evicted for it, as for a
    recording.
    """
    before = _detail(state_id, cache)
    await cache.quarantine.release(state_id)
    return before.model_copy(update={"status": "live", "evidence": None})


@router.delete(
    "/admin/v1/states/{state_id}",
    summary="Purge a quarantined state",
    status_code=204,
    response_class=Response,
    responses=responses(
        "invalid_request", "state_not_found", "state_not_quarantined", "state_leased", "busy"
    ),
)
async def purge(state_id: StateId, cache: CacheDep) -> Response:
    """Its evidence goes with it. A live state is evicted instead (`/admin/v1/evictions`)."""
    await cache.quarantine.purge(state_id)
    return Response(status_code=204)


def _detail(state_id: str, cache: Cache) -> StateDetail:
    return views.state_detail(*cache.desk.state(state_id))
