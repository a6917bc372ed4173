"""/healthz and /readyz: does it live, can it serve."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app import VERSION
from app.api.access import CacheDep
from app.api.problems import responses
from app.api.schemas.admin import Alive, Ready

router = APIRouter(tags=["system"])


@router.get(
    "/healthz",
    summary="Is the process alive",
    response_model=Alive,
    responses=responses(public=True),
)
async def healthz() -> Alive:
    """Asks nothing of the store. Restart the process if this does not answer."""
    return Alive(version=VERSION)


@router.get(
    "/readyz",
    summary="Can requests be served, and what is degraded",
    response_model=Ready,
    responses={503: {"description": "Shutting down.", "model": Ready}, **responses(public=True)},
)
async def readyz(cache: CacheDep, response: Response) -> Ready:
    """Ready means that lookups and restores are answered. `degraded` lists what is not as it should
    be, for example a stopped writer or little free disk: recording is refused then, with its code.
    """
    health = cache.desk.health()
    warnings = []
    if cache.gate.open:
        warnings.append(
            "access is open: whoever reaches this address may do everything (no token was ever made)"
            if cache.settings.access == "auto"
            else "access is open: STATEHOLD_ACCESS is open"
        )
    closing = cache.recordings.closing
    degraded = list(health["degraded"])
    if cache.sweeping:
        degraded.append("sweeping for values without a row after an unclean stop")
    if cache.recovery.lost_commits:
        degraded.append(
            f"{cache.recovery.lost_commits} acknowledged commits were lost before this start"
        )
    if closing:
        degraded.append("shutting down")
        response.status_code = 503
    return Ready(
        ready=not closing,
        degraded=degraded,
        warnings=warnings,
        mode=health["mode"],
        instance=health["instance"],
        sqlite_version=health["sqlite_version"],
        workers=cache.settings.workers,
        free_disk_bytes=health["free_disk_bytes"],
        recovered={
            "was_clean": cache.recovery.was_clean,
            "expired_recordings": cache.recovery.expired_recordings,
            "lost_commits": cache.recovery.lost_commits,
            "quarantined": cache.recovery.quarantined,
        },
    )
