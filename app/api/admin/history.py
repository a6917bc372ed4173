"""GET /admin/v1/history: counters over time, for charts without a metrics server."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.access import CacheDep
from app.api.intake import StrictRoute
from app.api.problems import ApiProblem, responses
from app.api.schemas.history import HistoryResponse, Series
from app.engine.history import KEPT_MINUTES, MOST_STEPS, REMEMBERED

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.get(
    "/admin/v1/history",
    summary="Counters over time",
    response_model=HistoryResponse,
    responses=responses("invalid_request"),
)
async def history(
    cache: CacheDep,
    minutes: Annotated[
        int,
        Query(
            ge=1,
            le=KEPT_MINUTES,
            description="How far back, the current minute included; 48 hours are kept.",
        ),
    ] = 60,
    step_minutes: Annotated[
        int,
        Query(
            ge=1,
            le=KEPT_MINUTES,
            description="Minutes gathered into one value; not more than `minutes`, and at most "
            f"{MOST_STEPS} values.",
        ),
    ] = 1,
    names: Annotated[
        str | None,
        Query(
            max_length=1000,
            description="Counters, separated by commas; all of them without it. There are "
            + ", ".join(f"`{name}`" for name in sorted(REMEMBERED))
            + ".",
            examples=["lookups,misses"],
        ),
    ] = None,
) -> HistoryResponse:
    """What each counter grew by in each step, oldest first, of all workers together.

    Steps lie on whole multiples of their length since 1970 (UTC), so the first may begin up to one
    step before the time asked for. Growth counts to the minute in which it was flushed, about a
    second after it happened.
    """
    if step_minutes > minutes:
        raise ApiProblem(
            "invalid_request", "A step is not longer than the whole.", "query.step_minutes"
        )
    if minutes > step_minutes * MOST_STEPS:
        raise ApiProblem(
            "invalid_request",
            f"At most {MOST_STEPS} steps: take longer ones.",
            "query.step_minutes",
        )
    found = await cache.history.course(minutes, step_minutes, _wanted(names))
    return HistoryResponse(
        from_ms=found.from_ms,
        step_ms=found.step_ms,
        steps=found.steps,
        series=[
            Series(name=series.name, label=series.label, values=series.values)
            for series in found.series
        ],
    )


def _wanted(names: str | None) -> frozenset[str]:
    if names is None:
        return REMEMBERED
    wanted = frozenset(name.strip() for name in names.split(","))
    if not wanted <= REMEMBERED:
        raise ApiProblem(
            "invalid_request", "There is no history of one of these counters.", "query.names"
        )
    return wanted
