"""/v1/namespaces: registered identities."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.api import views
from app.api.access import CacheDep, CallerDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.namespaces import NamespaceInfo, NamespaceList, RegisterRequest
from app.engine.identity import check_namespace
from storage.scoped import scoped, split

router = APIRouter(tags=["cache"], route_class=StrictRoute)


@router.post(
    "/v1/namespaces",
    summary="Register a namespace with its identity",
    response_model=NamespaceInfo,
    responses=responses(
        *JSON_BODY,
        "invalid_namespace",
        "invalid_identity",
        "weights_digest_missing",
        "identity_conflict",
        "namespace_in_use",
        "busy",
    ),
)
async def register(request: RegisterRequest, cache: CacheDep, caller: CallerDep) -> NamespaceInfo:
    """The canonical JSON of the identity is hashed and kept; registering it again changes nothing.

    A namespace that is only ever used is made on first use, without an identity; a registered one
    lets a miss say which identity fields differ from where the prefix is held.
    """
    check_namespace(request.namespace)
    row = await cache.registry.register(
        caller.held(request.namespace),
        request.identity,
        allow_missing_weights_digest=request.allow_missing_weights_digest,
    )
    return views.namespace(row)


@router.get(
    "/v1/namespaces",
    summary="List namespaces, or find one by name",
    response_model=NamespaceList,
    responses=responses("invalid_request", "invalid_namespace", "namespace_not_found"),
)
async def listing(
    cache: CacheDep,
    caller: CallerDep,
    namespace: Annotated[str | None, Query(description="Exactly this one.")] = None,
    after: Annotated[str | None, Query(description="Those behind this name.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> NamespaceList:
    """Those that the caller may use, in order of name, a page at a time.

    Who operates the whole store sees those of all tenants.
    """
    if namespace is not None:
        row = cache.registry.find(caller.held(namespace))
        return NamespaceList(namespaces=[views.namespace(row)], next=None)
    tenant = None if caller.unbounded else caller.home
    if after is not None and tenant is not None:
        after = scoped(tenant, after)
    rows, following = await cache.registry.listing(after, limit, tenant, caller.sees)
    if following is not None and tenant is not None:
        following = split(following)[1]
    return NamespaceList(namespaces=[views.namespace(row) for row in rows], next=following)
