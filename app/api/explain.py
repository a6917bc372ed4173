"""POST /v1/explain: why a query is served as far as it is, and no further."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api import views
from app.api.access import cache_of, caller_of
from app.api.intake import StrictRoute, documented, parsed
from app.api.problems import JSON_BODY, responses
from app.api.schemas.explain import (
    ExplainRequest,
    ExplainResponse,
    NearestNamespace,
    ReasonInfo,
    UnusedState,
)
from app.engine.explained import Explanation, OtherNamespace, Reason, Unused
from storage.scoped import split

router = APIRouter(tags=["cache"], route_class=StrictRoute)


@router.post(
    "/v1/explain",
    summary="Explain how far a query is served",
    response_class=Response,
    openapi_extra=documented(ExplainRequest),
    responses={
        200: {"description": "The explanation, of a hit as of a miss.", "model": ExplainResponse},
        **responses(*JSON_BODY, "invalid_namespace", "invalid_tokens", "busy"),
    },
)
async def explain(http: Request) -> Response:
    """The longest common path in the tree, the longest usable state, and for every longer state on the
    path, and those just beyond it, what keeps it from being used.

    For people and for tests of a gateway, not for every request: a lookup answers the same question
    in a fraction of the time. Changes nothing: no state is touched, leased or quarantined, and no
    lookup is counted. An unknown namespace is explained too.
    """
    cache = cache_of(http)
    request = await parsed(http, ExplainRequest)
    caller = caller_of(http)
    (candidate,) = await views.candidates([request], cache.settings, caller)
    found = await cache.explainer.explain(
        candidate,
        request.accept_kinds,
        truncate=request.allow_truncated,
        whole_store=caller.unbounded,
    )
    body = _response(found).model_dump_json(exclude_none=True)
    return Response(body, media_type="application/json")


def _response(found: Explanation) -> ExplainResponse:
    usable = found.usable
    return ExplainResponse(
        token_count=found.token_count,
        namespace_known=found.known,
        mode=found.mode,  # type: ignore[arg-type]  # from a fixed set
        lookup_allowed=found.looked_up,
        common_tokens=found.common_tokens,
        parting=found.parting,  # type: ignore[arg-type]  # from a fixed set
        usable_tokens=0 if usable is None else usable.prefix_tokens,
        usable=None if usable is None else views.state(usable.state),
        unused=[_unused(one) for one in found.unused],
        omitted=found.omitted,
        nearest_namespace=None if found.nearest is None else _nearest(found.nearest),
        misses_last_hour=None if found.misses_last_hour is None else dict(found.misses_last_hour),
    )


def _unused(one: Unused) -> UnusedState:
    return UnusedState(
        state_id=one.state_id,
        kind=one.kind,  # type: ignore[arg-type]  # the table's CHECK allows no other
        status=one.status,  # type: ignore[arg-type]  # the table's CHECK, or "evicted"
        token_count=one.token_count,
        common_tokens=one.common_tokens,
        reasons=[_reason(reason) for reason in one.reasons],
    )


def _reason(reason: Reason) -> ReasonInfo:
    return ReasonInfo(
        reason=reason.obstacle.value,
        failure_class=reason.failure_class,
        cause=reason.cause,
        at_ms=reason.at_ms,
    )


def _nearest(other: OtherNamespace) -> NearestNamespace:
    return NearestNamespace(
        namespace=split(other.name)[1],
        differing_fields=other.differing_fields,
        common_tokens=other.common_tokens,
        usable_tokens=other.usable_tokens,
    )
