"""/v1/leases: heartbeat, and release with the outcome."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.access import CacheDep, CallerDep, LeaseId
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.cache import HeartbeatRequest, LeaseGrant, ReleaseRequest, ReleaseResponse
from app.engine.holds import Failure, Outcome

router = APIRouter(tags=["leases"], route_class=StrictRoute)

_COMMON = (
    *JSON_BODY,
    "lease_not_found",
    "busy",
)


@router.post(
    "/v1/leases/{lease_id}/heartbeat",
    summary="Renew a lease",
    response_model=LeaseGrant,
    responses=responses(*_COMMON, "lease_expired", "lease_released"),
)
async def heartbeat(lease_id: LeaseId, cache: CacheDep, request: HeartbeatRequest) -> LeaseGrant:
    """The lease's time begins anew. One that has run out or was released stays so."""
    ttl_ms = None
    if request.ttl_s is not None:
        ttl_ms = min(request.ttl_s, cache.settings.max_lease_ttl_s) * 1000
    return LeaseGrant(lease_id=lease_id, ttl_ms=await cache.leases.heartbeat(lease_id, ttl_ms))


@router.post(
    "/v1/leases/{lease_id}/release",
    summary="End a lease and say how it went",
    response_model=ReleaseResponse,
    responses=responses(*_COMMON, "lease_released", "quarantine_failed"),
)
async def release(
    lease_id: LeaseId, cache: CacheDep, caller: CallerDep, request: ReleaseRequest
) -> ReleaseResponse:
    """`restored` takes import times; `failed` takes a class and a reason.

    The classes `integrity`, `invalid_data` and `unsupported` will fail again with the same bytes:
    they put exactly this recording into quarantine, never a newer one of the same prefix. The others
    cost the state nothing. The same release sent again changes nothing more.
    """
    failure = None
    if request.failure is not None:
        failure = Failure(request.failure.class_, request.failure.reason)
    outcome = Outcome(
        request.outcome, failure, {str(name): ms for name, ms in (request.import_ms or {}).items()}
    )
    quarantined = False
    if failure is not None:
        # Before the lease ends: if this is cut off in between, the release sent again reports again.
        state_id, repeated = cache.leases.released_before(lease_id, outcome)
        if repeated:
            quarantined = cache.quarantine.taken_by(state_id, lease_id)
        else:
            quarantined = await cache.quarantine.report(
                state_id, lease_id, failure, caller.token_id
            )
    released = await cache.leases.release(lease_id, outcome)
    return ReleaseResponse(
        state_id=released.state_id,
        quarantined=quarantined,
        lease_expired=released.expired,
        repeated=released.repeated,
    )
