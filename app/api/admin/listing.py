"""GET /admin/v1/states and /admin/v1/namespaces: what is held, filtered and in order, a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from app.api import views
from app.api.access import CacheDep, CallerDep
from app.api.intake import StrictRoute
from app.api.problems import responses
from app.api.schemas.admin import StateList
from app.api.schemas.common import EXAMPLE_DIGEST, EXAMPLE_ID, Kind, Status
from app.api.schemas.namespaces import NamespaceDetail, NamespaceDetailList
from app.engine.identity import decode_tokens_b64url
from app.engine.listing import ListedNamespace, Namespaces, States, StatesWanted
from storage.metadata.listing import Sort

router = APIRouter(tags=["admin"], route_class=StrictRoute)

_MOST_SECONDS: Final = 100 * 366 * 86_400
_MOST_BYTES: Final = 1 << 60
# States that take over a millisecond to put into JSON.
_MANY: Final = 50

_EXAMPLE_STATE: Final[dict[str, Any]] = {
    "state_id": EXAMPLE_ID,
    "page_id": EXAMPLE_DIGEST,
    "kind": "kv_recurrent",
    "token_count": 192,
    "logical_bytes": 4_427_520,
    "created_at_ms": 1_733_184_000_000,
    "namespace": "smollm2-135m-instruct-q4_1/llama.cpp-ggsq3/f16",
    "tenant": "team-search",
    "status": "live",
    "touched_at_ms": 1_733_187_600_000,
    "hits": 41,
    "pin": {
        "expires_at_ms": 1_733_270_400_000,
        "reason": "system prompt of the launch",
        "actor": "01938c0d-e000-7000-8000-000000000007",
        "created_at_ms": 1_733_184_000_000,
    },
}
_EXAMPLE_NAMESPACE: Final[dict[str, Any]] = {
    "namespace": "smollm2-135m-instruct-q4_1/llama.cpp-ggsq3/f16",
    "tenant": "team-search",
    "model": "SmolLM2-135M-Instruct",
    "identity": {"model_id": "SmolLM2-135M-Instruct", "weights_digest": "sha256:2f1a…"},
    "identity_digest": EXAMPLE_DIGEST,
    "warnings": [],
    "mode": None,
    "effective_mode": "lookup_record",
    "min_tokens": None,
    "max_entries": 100_000,
    "max_stored_bytes": None,
    "entries": 812,
    "recording": 2,
    "quarantined": 1,
    "pinned": 3,
    "stored_bytes": 1_288_490_188,
    "logical_bytes": 3_595_146_240,
    "write_amplification": {"new_bytes": 115, "new_row_bytes": 100, "ratio": 1.15},
    "created_at_ms": 1_733_184_000_000,
}
_EXAMPLE_CURSOR: Final = "WyI3OWJmMmM4ZDkwYTE0NjBlIiwiYSJd"


def _page_of(model: type[BaseModel], description: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": model,
        "description": description,
        "content": {"application/json": {"example": {**example, "next": _EXAMPLE_CURSOR}}},
    }


After = Annotated[
    str | None, Query(max_length=4096, description="The `next` of the page before this one.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Tenant = Annotated[
    str | None,
    Query(
        max_length=64,
        description="Of this tenant only; `default` is the one of those without a tenant. Without it "
        "an operator of the whole store sees all of them, and names a namespace of the default one.",
    ),
]


@router.get(
    "/admin/v1/states",
    summary="List states",
    response_class=Response,
    responses={
        200: _page_of(StateList, "A page of states.", {"states": [_EXAMPLE_STATE]}),
        **responses("invalid_request", "invalid_namespace", "invalid_tokens", "busy"),
    },
)
async def states(
    cache: CacheDep,
    caller: CallerDep,
    namespace: Annotated[str | None, Query(description="Of this namespace only.")] = None,
    tenant: Tenant = None,
    status: Annotated[Status | None, Query(description="In this status only.")] = None,
    kind: Annotated[Kind | None, Query(description="Of this kind only.")] = None,
    min_age_s: Annotated[
        int | None,
        Query(ge=0, le=_MOST_SECONDS, description="Recorded so many seconds ago, or before."),
    ] = None,
    max_age_s: Annotated[
        int | None,
        Query(ge=0, le=_MOST_SECONDS, description="Recorded so many seconds ago, or since."),
    ] = None,
    untouched_for_s: Annotated[
        int | None,
        Query(ge=0, le=_MOST_SECONDS, description="Not used for so many seconds, or longer."),
    ] = None,
    min_bytes: Annotated[
        int | None, Query(ge=0, le=_MOST_BYTES, description="With so many logical bytes, or more.")
    ] = None,
    max_bytes: Annotated[
        int | None, Query(ge=0, le=_MOST_BYTES, description="With so many logical bytes, or fewer.")
    ] = None,
    under_b64: Annotated[
        str | None,
        Query(
            description="Those whose tokens begin with these: base64url (padding may be left out) of "
            "the token ids as little-endian int32. Goes with `namespace`. What is still being "
            "recorded, or was replaced under a lease, is not in the tree and not among them.",
            examples=["ewoAAGcBAAD9AAAA"],
        ),
    ] = None,
    pinned: Annotated[
        bool | None, Query(description="Only those that are pinned now, or only the others.")
    ] = None,
    sort: Annotated[
        Literal["created", "touched", "size", "tokens", "hits"],
        Query(
            description="By time of recording, last use, logical bytes, tokens or hits; equal ones by "
            "state id. The last three within a `namespace` only."
        ),
    ] = "created",
    order: Annotated[
        Literal["asc", "desc"], Query(description="Oldest or smallest first, or last.")
    ] = "asc",
    after: After = None,
    limit: Limit = 100,
) -> Response:
    """Of any status; a caller with a tenant or patterns sees its own. Filters narrow each other.

    States that come and go between two pages shift nothing: what is there all the time comes once. Only
    a use in between can move a state that is sorted by `touched` or `hits`. Ages stay those of the first
    page. Where few of many states fit, a page ends after some tens of thousands of them.
    """
    wanted = StatesWanted(
        namespace=None if namespace is None else caller.held(namespace, tenant),
        tenant=tenant,
        status=status,
        kind=kind,
        min_age_s=min_age_s,
        max_age_s=max_age_s,
        untouched_for_s=untouched_for_s,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        under=None
        if under_b64 is None
        else decode_tokens_b64url(under_b64, cache.settings.max_tokens, "query.under_b64"),
        pinned=pinned,
        sort=Sort(sort),
        descending=order == "desc",
    )
    page = await cache.listing.states(caller, wanted, after, limit)
    return await _json(lambda: _state_list(page), quick=len(page.states) <= _MANY)


@router.get(
    "/admin/v1/namespaces",
    summary="List namespaces with counts, limits and identities",
    response_class=Response,
    responses={
        200: _page_of(
            NamespaceDetailList, "A page of namespaces.", {"namespaces": [_EXAMPLE_NAMESPACE]}
        ),
        **responses("invalid_request", "busy"),
    },
)
async def namespaces(
    cache: CacheDep,
    caller: CallerDep,
    tenant: Tenant = None,
    model: Annotated[
        str | None, Query(description="Only those whose identity has this `model_id`.")
    ] = None,
    after: After = None,
    limit: Limit = 100,
) -> Response:
    """In order of tenant and name; a caller with a tenant or patterns sees its own.

    A page ends early where the identity documents are long.
    """
    page = await cache.listing.namespaces(caller, tenant, model, after, limit)
    return await _json(lambda: _namespace_list(page), quick=False)


async def _json(made: Callable[[], BaseModel], *, quick: bool) -> Response:
    body = _text(made) if quick else await asyncio.to_thread(_text, made)
    return Response(body, media_type="application/json")


def _text(made: Callable[[], BaseModel]) -> str:
    return made().model_dump_json()


def _state_list(page: States) -> StateList:
    return StateList(
        states=[views.state_info(one.state, one.namespace, one.pin) for one in page.states],
        next=page.after,
    )


def _namespace_list(page: Namespaces) -> NamespaceDetailList:
    return NamespaceDetailList(
        namespaces=[_namespace(one) for one in page.namespaces], next=page.after
    )


def _namespace(one: ListedNamespace) -> NamespaceDetail:
    return NamespaceDetail(
        **views.namespace(one.row).model_dump(),
        model=one.row.model,
        effective_mode=one.mode,  # type: ignore[arg-type]  # from a fixed set
        recording=one.counts.recording,
        quarantined=one.counts.quarantined,
        pinned=one.counts.pinned,
    )
