"""/admin/v1/pins, and the pin of a state: what is to stay whatever is evicted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.access import CacheDep, CallerDep, StateId
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.common import UUID_PATTERN
from app.api.schemas.evictions import PinInfo, PinList, PinRequest
from app.engine.pins import Pinned
from storage.scoped import split

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.put(
    "/admin/v1/states/{state_id}/pin",
    summary="Pin a state",
    response_model=PinInfo,
    responses=responses(
        *JSON_BODY,
        "state_not_found",
        "state_not_live",
        "pin_budget_exceeded",
        "busy",
        "low_space",
        "stopped",
    ),
)
async def pin(
    state_id: StateId, request: PinRequest, cache: CacheDep, caller: CallerDep
) -> PinInfo:
    """It is not evicted any more, whatever for, until the pin ends. Pinning again replaces the pin.

    A pinned state can be quarantined, and purged from there. When its prefix is recorded again with
    `replace`, the new recording takes the pin over. The pin budget counts the bytes of all pinned states as
    recorded, and 10,000 states may be pinned.
    """
    return _info(await cache.pins.put(state_id, request.ttl_s, request.reason, caller.actor))


@router.delete(
    "/admin/v1/states/{state_id}/pin",
    summary="Take a pin away",
    status_code=204,
    response_class=Response,
    responses=responses(
        "invalid_request", "state_not_found", "pin_not_found", "busy", "low_space", "stopped"
    ),
)
async def unpin(state_id: StateId, cache: CacheDep) -> Response:
    """The state stays, and can be evicted like others."""
    await cache.pins.remove(state_id)
    return Response(status_code=204)


@router.get(
    "/admin/v1/pins",
    summary="List pins",
    response_model=PinList,
    responses=responses("invalid_request", "busy"),
)
async def listing(
    cache: CacheDep,
    caller: CallerDep,
    after: Annotated[
        str | None, Query(pattern=UUID_PATTERN, description="Those of states with ids behind this.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PinList:
    """Pins that have run out are not shown, and count for nothing."""
    page = await cache.pins.page(caller, after, limit)
    return PinList(
        pins=[_info(pinned) for pinned in page.pins],
        pinned_bytes=page.pinned_bytes,
        pin_budget_bytes=cache.pins.budget_bytes,
        next=page.after,
    )


def _info(pinned: Pinned) -> PinInfo:
    row = pinned.pin
    tenant, name = split(row.namespace)
    return PinInfo(
        state_id=row.state_id,
        namespace=name,
        tenant=tenant,
        stored_bytes=pinned.stored_bytes,
        logical_bytes=row.logical_bytes,
        expires_at_ms=row.expires_at_ms,
        reason=row.reason,
        actor=row.actor,
        created_at_ms=row.created_at_ms,
    )
