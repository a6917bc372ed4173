"""/admin/v1/tree/nodes: the tree of a namespace as JSON, to be walked from node to node."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Query

from app.api.access import CacheDep, CallerDep, TenantQuery
from app.api.intake import StrictRoute
from app.api.problems import responses
from app.api.schemas.tree import NodeInfo, NodeStep
from storage.metadata.neighbours import WalkedNode

router = APIRouter(tags=["admin"], route_class=StrictRoute)

_MOST_ID: Final = (1 << 63) - 1


@router.get(
    "/admin/v1/tree/nodes",
    summary="A node of the radix tree and its children",
    response_model=NodeStep,
    responses=responses(
        "invalid_request", "invalid_namespace", "namespace_not_found", "node_not_found"
    ),
)
async def step(
    cache: CacheDep,
    caller: CallerDep,
    namespace: Annotated[str, Query(description="Whose tree.")],
    tenant: TenantQuery = None,
    node_id: Annotated[
        int | None, Query(ge=1, le=_MOST_ID, description="Which node; without it the root.")
    ] = None,
    after: Annotated[
        int | None, Query(ge=1, le=_MOST_ID, description="Children behind this one of them.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Children at most.")] = 50,
) -> NodeStep:
    """Begin without `node_id` at the root and go on with the ids of children. Token ids are not shown,
    only how many there are. A node can go while one walks: begin again then.
    """
    found = await cache.walk.step(caller.held(namespace, tenant), node_id, after, limit)
    if found is None:
        return NodeStep(node=None, children=[], more=False)
    return NodeStep(
        node=_info(found.node), children=[_info(child) for child in found.children], more=found.more
    )


def _info(node: WalkedNode) -> NodeInfo:
    return NodeInfo(**(asdict(node) | {"states": [asdict(held) for held in node.states]}))
