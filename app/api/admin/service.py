"""/admin/v1/mode and /admin/v1/stats: the store as a whole."""

from __future__ import annotations

from fastapi import APIRouter

from app.api import views
from app.api.access import CacheDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.admin import ModeRequest, ModeResponse, Stats

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.put(
    "/admin/v1/mode",
    summary="Change the store's mode",
    response_model=ModeResponse,
    responses=responses(*JSON_BODY, "busy"),
)
async def set_mode(request: ModeRequest, cache: CacheDep) -> ModeResponse:
    """In force for all workers from the next request on; a namespace's own mode goes before it."""
    return ModeResponse(mode=await cache.desk.set_mode(request.mode))  # type: ignore[arg-type]


@router.get(
    "/admin/v1/stats",
    summary="Figures of the whole store",
    response_model=Stats,
    responses=responses("busy"),
)
async def stats(cache: CacheDep) -> Stats:
    """What is held, what it takes, and what has been counted. Scans the metadata: not for every second."""
    return views.stats(await cache.desk.stats())
