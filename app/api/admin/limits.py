"""/admin/v1/limits: limits of the whole store, changed while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter

from app.api.access import CacheDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.limits import LimitInfo, LimitsChange, LimitsInForce
from app.engine.limits import Limit
from app.settings import Settings
from app.settings_page import unit

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.get(
    "/admin/v1/limits",
    summary="Limits in force",
    response_model=LimitsInForce,
    responses=responses("busy"),
)
async def show(cache: CacheDep) -> LimitsInForce:
    """Each with what the service was started with."""
    return _in_force(cache.limits.show(), await cache.limits.warnings())


@router.patch(
    "/admin/v1/limits",
    summary="Change limits",
    response_model=LimitsInForce,
    responses=responses(*JSON_BODY, "busy", "low_space", "stopped"),
)
async def change(request: LimitsChange, cache: CacheDep) -> LimitsInForce:
    """All or none; null goes back to what the service was started with. In force for all workers from
    the next request on, and after a restart. A limit below what is held removes nothing by itself: the
    next recording evicts, and `warnings` says so.
    """
    changed = await cache.limits.change(request.root)
    return _in_force(changed, await cache.limits.warnings())


def _in_force(limits: Sequence[Limit], warnings: list[str]) -> LimitsInForce:
    return LimitsInForce(
        warnings=warnings,
        limits={
            limit.name: LimitInfo(
                value=limit.value,
                configured=limit.configured,
                unit=unit(limit.name, Settings.model_fields[limit.name]),
            )
            for limit in limits
        },
    )
