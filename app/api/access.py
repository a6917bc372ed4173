"""Who may call which route: one table, asked before any handler runs.

A route that is not in the table does not start (`check_rights`), so that a new one cannot be forgotten. The
id in a path is looked up first for callers that may not see everything: what they may not see is
answered exactly like what is not there, before a handler could tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.routing import APIRoute

from app.api.schemas.common import EXAMPLE_ID, UUID_PATTERN
from app.engine.access import Caller
from app.engine.cache import Cache
from app.engine.errors import Forbidden, NotFound, Unauthorized


@dataclass(frozen=True, slots=True)
class Right:
    """What a route needs. `operator`: a caller that is bound to no tenant and no namespaces."""

    scope: str
    operator: bool = False


PUBLIC: Final = None
_LOOKUP: Final = Right("lookup")
_RECORD: Final = Right("record")
_SEE: Final = Right("admin:read")
_CHANGE: Final = Right("admin:write")
_FORENSICS: Final = Right("forensics")
_SEE_ALL: Final = Right("admin:read", operator=True)
_CHANGE_ALL: Final = Right("admin:write", operator=True)

RIGHTS: Final[dict[tuple[str, str], Right | None]] = {
    ("GET", "/healthz"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
    ("GET", "/metrics"): _SEE_ALL,
    ("POST", "/v1/lookup"): _LOOKUP,
    ("POST", "/v1/restore"): _LOOKUP,
    ("POST", "/v1/explain"): _LOOKUP,
    ("GET", "/v1/states/{state_id}"): _LOOKUP,
    ("GET", "/v1/states/{state_id}/components/{name}"): _LOOKUP,
    ("HEAD", "/v1/states/{state_id}/components/{name}"): _LOOKUP,
    ("POST", "/v1/states/{state_id}/blocks"): _LOOKUP,
    ("POST", "/v1/leases/{lease_id}/heartbeat"): _LOOKUP,
    ("POST", "/v1/leases/{lease_id}/release"): _LOOKUP,
    ("GET", "/v1/namespaces"): _LOOKUP,
    ("POST", "/v1/namespaces"): _RECORD,
    ("POST", "/v1/records"): _RECORD,
    ("GET", "/v1/records/{state_id}"): _RECORD,
    ("DELETE", "/v1/records/{state_id}"): _RECORD,
    ("PUT", "/v1/records/{state_id}/components/{name}"): _RECORD,
    ("POST", "/v1/records/{state_id}/components/{name}/need"): _RECORD,
    ("PUT", "/v1/records/{state_id}/components/{name}/blocks"): _RECORD,
    ("POST", "/v1/records/{state_id}/commit"): _RECORD,
    ("POST", "/v1/states"): _RECORD,
    ("GET", "/admin/v1/whoami"): Right(""),
    ("GET", "/admin/v1/states"): _SEE,
    ("GET", "/admin/v1/states/{state_id}"): _SEE,
    ("GET", "/admin/v1/states/{state_id}/components/{name}/raw"): _FORENSICS,
    ("POST", "/admin/v1/states/{state_id}/quarantine"): _CHANGE,
    ("POST", "/admin/v1/states/{state_id}/verify"): _CHANGE,
    ("POST", "/admin/v1/states/{state_id}/release"): _CHANGE,
    ("DELETE", "/admin/v1/states/{state_id}"): _CHANGE,
    ("GET", "/admin/v1/quarantine"): _SEE,
    ("PUT", "/admin/v1/states/{state_id}/pin"): _CHANGE,
    ("DELETE", "/admin/v1/states/{state_id}/pin"): _CHANGE,
    ("GET", "/admin/v1/pins"): _SEE,
    ("POST", "/admin/v1/evictions"): _CHANGE,
    ("GET", "/admin/v1/namespaces"): _SEE,
    ("PATCH", "/admin/v1/namespaces"): _CHANGE,
    ("GET", "/admin/v1/tree"): _SEE,
    ("GET", "/admin/v1/tree/nodes"): _SEE,
    ("PUT", "/admin/v1/mode"): _CHANGE_ALL,
    ("GET", "/admin/v1/limits"): _SEE_ALL,
    ("PATCH", "/admin/v1/limits"): _CHANGE_ALL,
    ("GET", "/admin/v1/stats"): _SEE_ALL,
    ("GET", "/admin/v1/history"): _SEE_ALL,
    ("GET", "/admin/v1/audit"): _SEE_ALL,
    ("GET", "/admin/v1/jobs"): _SEE_ALL,
    ("POST", "/admin/v1/jobs"): _CHANGE_ALL,
    ("GET", "/admin/v1/jobs/{job_id}"): _SEE_ALL,
    ("POST", "/admin/v1/jobs/{job_id}/cancel"): _CHANGE_ALL,
    ("GET", "/admin/v1/tokens"): _SEE_ALL,
    ("POST", "/admin/v1/tokens"): _CHANGE_ALL,
    ("DELETE", "/admin/v1/tokens/{token_id}"): _CHANGE_ALL,
    ("GET", "/admin/v1/tenants"): _SEE_ALL,
    ("PUT", "/admin/v1/tenants/{name}"): _CHANGE_ALL,
}

_METERED: Final = frozenset({"lookup", "record"})

# The body of a path's answer where there is nothing of that id.
_ABSENT: Final = {
    "/v1/records/": ("record_not_found", "there is no such recording"),
    "/v1/states/": ("state_not_found", "there is no such state"),
    "/v1/leases/": ("lease_not_found", "there is no such lease"),
    "/admin/v1/states/": ("state_not_found", "there is no such state"),
}


def admit(request: Request, path: str) -> Caller:
    """Tell who is asking, and refuse what they may not. Fit for the event loop.

    The caller is found in `request.state.caller` afterwards.

    Args:
        path: template of the route.

    Raises:
        Unauthorized, Forbidden, Refused: no good token, not for this, or too much in a second.
        NotFound: the id in the path is of nothing that the caller may see.
    """
    right = RIGHTS[request.method, path]
    cache = cache_of(request)
    fields = request.headers.getlist("authorization")
    if len(fields) > 1:  # a proxy in front may have looked at the other one
        raise Unauthorized("unauthorized", "send one Authorization field")
    caller = cache.gate.caller(fields[0] if fields else None)
    request.state.caller = caller
    if right is None:
        return caller
    if right.scope and right.scope not in caller.scopes:
        raise Forbidden("forbidden", f"the token lacks the scope {right.scope}")
    if right.operator and not caller.unbounded:
        raise Forbidden("forbidden", "only a token without tenant and namespaces is good for this")
    # What an operator does about a tenant must not wait for that tenant.
    metered = right.scope in _METERED or not caller.unbounded
    if metered and cache.quotas.request(caller.home):
        request.state.passed = partial(cache.quotas.passed, caller.home)
    if not caller.unbounded:
        _look_at_ids(request, path, cache, caller)
    return caller


def caller_of(request: Request) -> Caller:
    """Whom `admit` has found."""
    caller: Caller = request.state.caller
    return caller


def cache_of(request: Request) -> Cache:
    """The cache that serves this request. Called by the hot routes, which cannot afford the 50 us
    that FastAPI takes to solve a dependency."""
    cache: Cache = request.app.state.cache
    return cache


def check_rights(routers: Iterable[APIRouter]) -> None:
    """Refuse to start with a route that nobody has thought about, or a line about none."""
    found = {
        (method, route.path)
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    for method, path in sorted(found ^ RIGHTS.keys()):
        raise RuntimeError(f"{method} {path} is in the routes or in RIGHTS, but not in both")


def _look_at_ids(request: Request, path: str, cache: Cache, caller: Caller) -> None:
    ids = request.path_params
    if (state_id := ids.get("state_id")) is not None:
        held = cache.namespace_of_state(state_id)
    elif (lease_id := ids.get("lease_id")) is not None:
        held = cache.namespace_of_lease(lease_id)
    else:
        return
    if not caller.sees(held):
        code, detail = next(words for start, words in _ABSENT.items() if path.startswith(start))
        raise NotFound(code, detail)


async def _cache(request: Request) -> Cache:
    return cache_of(request)


async def _caller(request: Request) -> Caller:
    return caller_of(request)


CacheDep = Annotated[Cache, Depends(_cache)]
CallerDep = Annotated[Caller, Depends(_caller)]
TenantQuery = Annotated[
    str | None,
    Query(max_length=64, description="Whose namespace; without it the caller's tenant's."),
]
StateId = Annotated[
    str, Path(pattern=UUID_PATTERN, description="A state id (UUID).", examples=[EXAMPLE_ID])
]
LeaseId = Annotated[
    str, Path(pattern=UUID_PATTERN, description="A lease id (UUID).", examples=[EXAMPLE_ID])
]
