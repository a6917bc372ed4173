"""/admin/v1/jobs: work that takes long, its progress, and its end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app.api.access import CacheDep, CallerDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.common import EXAMPLE_ID, UUID_PATTERN
from app.api.schemas.jobs import Job, JobList, JobRequest
from storage.documents import document
from storage.rows import JobRow

router = APIRouter(tags=["admin"], route_class=StrictRoute)

JobId = Annotated[
    str, Path(pattern=UUID_PATTERN, description="A job id (UUID).", examples=[EXAMPLE_ID])
]


@router.post(
    "/admin/v1/jobs",
    summary="Start a job",
    status_code=202,
    response_model=Job,
    responses={
        202: {
            "description": "The job runs; `Location` says where to look after it.",
            "headers": {"Location": {"schema": {"type": "string"}}},
        },
        **responses(*JSON_BODY, "job_running", "backup_exists", "busy", "low_space", "stopped"),
    },
)
async def start(request: JobRequest, response: Response, caller: CallerDep, cache: CacheDep) -> Job:
    """One job of a kind at a time, whichever worker runs it.

    A job of a process that ends is `failed` with `interrupted`; start it again.
    """
    arguments = request.model_dump(exclude={"kind"})
    row = await cache.jobs.start(request.kind, arguments, caller.actor)
    response.headers["Location"] = f"/admin/v1/jobs/{row.job_id}"
    return _job(row)


@router.get(
    "/admin/v1/jobs",
    summary="List jobs",
    response_model=JobList,
    responses=responses("invalid_request", "busy"),
)
async def listing(cache: CacheDep, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> JobList:
    """Newest first. Those that have ended are remembered up to the last 200."""
    return JobList(jobs=[_job(row) for row in await cache.jobs.page(limit)])


@router.get(
    "/admin/v1/jobs/{job_id}",
    summary="Show a job",
    response_model=Job,
    responses=responses("invalid_request", "job_not_found"),
)
async def show(job_id: JobId, cache: CacheDep) -> Job:
    """How far it is, or how it ended. Every worker knows the jobs of all."""
    return _job(cache.jobs.show(job_id))


@router.post(
    "/admin/v1/jobs/{job_id}/cancel",
    summary="Stop a job",
    response_model=Job,
    responses=responses("invalid_request", "job_not_found", "job_ended", "busy", "low_space"),
)
async def cancel(job_id: JobId, cache: CacheDep) -> Job:
    """It ends within about a second, at whichever worker it runs. What it has done stays done."""
    return _job(await cache.jobs.cancel(job_id))


def _job(row: JobRow) -> Job:
    return Job(
        job_id=row.job_id,
        kind=row.kind,  # type: ignore[arg-type]  # only made through the schema
        status=row.status,  # type: ignore[arg-type]
        arguments=document(row.arguments),
        done=row.done,
        total=row.total,
        unit=row.unit,
        result=None if row.result is None else document(row.result),
        error=row.error,
        actor=row.actor,
        created_at_ms=row.created_at_ms,
        ended_at_ms=row.ended_at_ms,
    )
