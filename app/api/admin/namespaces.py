"""/admin/v1/namespaces: modes and limits; and the tree of one, for debugging."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse

from app.api import views
from app.api.access import CacheDep, CallerDep, TenantQuery
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.namespaces import NamespaceChange, NamespaceInfo

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.patch(
    "/admin/v1/namespaces",
    summary="Change a namespace's mode or limits",
    response_model=NamespaceInfo,
    responses=responses(
        *JSON_BODY,
        "invalid_namespace",
        "namespace_not_found",
        "busy",
    ),
)
async def change(request: NamespaceChange, cache: CacheDep, caller: CallerDep) -> NamespaceInfo:
    """In force for all workers from the next request on. A lower limit evicts at the next recording."""
    held = caller.held(request.namespace, request.tenant)
    values = request.model_dump(include=request.model_fields_set - {"namespace", "tenant"})
    return views.namespace(await cache.registry.change(held, values))


@router.get(
    "/admin/v1/tree",
    summary="The radix tree of a namespace, as text",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "One line a node, indented by level: tokens from the root, tokens of the "
            "edge, and the states that end there.",
            "content": {"text/plain": {"example": "0\n  128 (+128) live kv 01938c0d-…"}},
        },
        **responses("invalid_request", "invalid_namespace", "namespace_not_found"),
    },
)
async def tree(
    cache: CacheDep,
    caller: CallerDep,
    namespace: Annotated[str, Query(description="Whose tree.")],
    tenant: TenantQuery = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Nodes at most.")] = 1000,
) -> PlainTextResponse:
    """For debugging. Token ids are not shown, only how many there are."""
    levels: dict[int | None, int] = {}
    lines = []
    for node in await cache.desk.tree(caller.held(namespace, tenant), limit):
        level = levels.get(node.parent_id, -1) + 1
        levels[node.node_id] = level
        states = "".join(f"  {status} {kind} {state_id}" for state_id, kind, status in node.states)
        edge = f" (+{node.edge_tokens})" if node.edge_tokens else ""
        lines.append(f"{'  ' * level}{node.depth}{edge}{states}")
    return PlainTextResponse("\n".join(lines) + "\n")
