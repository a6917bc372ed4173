"""/admin/v1/mode and /admin/v1/stats: the store as a whole."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.access import CacheDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.admin import CounterInfo, ModeRequest, ModeResponse, Stats

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
    figures = await cache.desk.stats()
    counts, usage = figures["counts"], figures["usage"]
    return Stats(
        live=counts["live"],
        recording=counts["recording"],
        quarantined=counts["quarantined"],
        namespaces=counts["namespaces"],
        leases_held=figures["leases_held"],
        logical_bytes=counts["logical_bytes"],
        block_count=counts["blocks"],
        block_raw_bytes=counts["block_raw_bytes"],
        block_stored_bytes=counts["block_stored_bytes"],
        stored_bytes=usage.stored_bytes,
        reserved_bytes=usage.reserved_bytes,
        budget_bytes=figures["budget_bytes"],
        max_entries=figures["max_entries"],
        block_file_bytes=figures["block_store"].file_bytes,
        wal_bytes=figures["wal_bytes"],
        free_disk_bytes=figures["free_disk_bytes"],
        counters=[
            CounterInfo(name=name, label=label, value=value)
            for (name, label), value in sorted(figures["counters"].items())
        ],
    )
