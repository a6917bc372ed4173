"""GET /admin/v1/audit: what was changed by whom."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.access import CacheDep
from app.api.intake import StrictRoute
from app.api.problems import responses
from app.api.schemas.access import AuditEntry, AuditLog
from storage.documents import document

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.get(
    "/admin/v1/audit",
    summary="The audit log",
    response_model=AuditLog,
    responses=responses("invalid_request", "busy"),
)
async def listing(
    cache: CacheDep,
    after: Annotated[
        int | None, Query(ge=1, le=1 << 62, description="Entries older than this one.")
    ] = None,
    action: Annotated[
        str | None,
        Query(max_length=200, description="Of this action only, as `POST /admin/v1/evictions`."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditLog:
    """Newest first, a page at a time. The last 100,000 entries are kept."""
    rows = await cache.audit_log(after, limit, action)
    return AuditLog(
        entries=[
            AuditEntry(
                id=row.id,
                at_ms=row.at_ms,
                actor=row.actor,
                action=row.action,
                target=row.target,
                outcome=row.outcome,
                details=document(row.details),
            )
            for row in rows
        ],
        next=rows[-1].id if len(rows) == limit else None,
    )
