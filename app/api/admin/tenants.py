"""/admin/v1/tenants: what each may hold and do, and holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path

from app.api.access import CacheDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.access import TenantInfo, TenantLimitsChange, TenantList
from app.scopes import tenant_named
from storage.rows import TenantLimits, TenantUsage

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.get(
    "/admin/v1/tenants",
    summary="List tenants",
    response_model=TenantList,
    responses=responses("busy"),
)
async def listing(cache: CacheDep) -> TenantList:
    """Every tenant that has limits or a namespace, with its usage."""
    return TenantList(tenants=[_info(*found) for found in await cache.tenants.listing()])


@router.put(
    "/admin/v1/tenants/{name}",
    summary="Set a tenant's limits",
    response_model=TenantInfo,
    responses=responses(*JSON_BODY, "invalid_tenant", "busy", "low_space"),
)
async def change(
    name: Annotated[
        str, Path(description="The tenant; `default` is the one of those without a tenant.")
    ],
    request: TenantLimitsChange,
    cache: CacheDep,
) -> TenantInfo:
    """In force for all workers within a second. A lower limit evicts at the next recording."""
    tenant = tenant_named(name)
    limits = request.model_dump(include=request.model_fields_set)
    return _info(tenant, *await cache.tenants.change(tenant, limits))


def _info(name: str, limits: TenantLimits, usage: TenantUsage) -> TenantInfo:
    return TenantInfo(tenant=name, **asdict(limits), **asdict(usage))
