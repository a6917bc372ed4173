"""Long jobs."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import Field

from app.api.schemas.common import BACKUP_PATTERN, EXAMPLE_ID, Model

JobKind = Literal["verify", "reclaim", "checkpoint", "compact", "backup"]


class VerifyRequest(Model):
    """Read and prove every block of every live state."""

    kind: Literal["verify"]
    rate_bytes: int | None = Field(
        None,
        ge=1024,
        le=1 << 40,
        description="Stored bytes read in a second at most; null takes 128 MiB.",
    )
    resume: bool = Field(
        False, description="Go on where the last one was stopped, instead of at the beginning."
    )


class ReclaimRequest(Model):
    """Delete every block without an owner and every value without a row."""

    kind: Literal["reclaim"]


class CheckpointRequest(Model):
    """Copy the database's write-ahead log into the database and cut it to nothing."""

    kind: Literal["checkpoint"]


class CompactRequest(Model):
    """Write the files anew without their free pages, in a pause of the service.

    It finishes what is under way for at most `shutdown_grace_s`, compacts while whoever connects waits, and
    goes on. Leases stay; recordings that are not committed end, as at any stop. Once begun it is not stopped.
    """

    kind: Literal["compact"]


class BackupRequest(Model):
    """Copy everything that is held at this moment while the service goes on."""

    kind: Literal["backup"]
    name: str = Field(
        default_factory=lambda: time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        pattern=BACKUP_PATTERN,
        description="Name of the backup, a new folder in `backup_dir`; by default the time (UTC).",
        examples=["2026-12-03"],
    )


JobRequest = Annotated[
    VerifyRequest | ReclaimRequest | CheckpointRequest | CompactRequest | BackupRequest,
    Field(discriminator="kind"),
]


class Job(Model):
    """A long job of any worker."""

    job_id: str = Field(examples=[EXAMPLE_ID])
    kind: JobKind
    status: Literal["running", "done", "failed", "cancelled"]
    arguments: dict[str, object]
    done: int = Field(description="In `unit`; written about once a second.")
    total: int = Field(description="What `done` will be at the end, as far as is known.")
    unit: str = Field(examples=["bytes"])
    result: dict[str, object] | None = Field(
        description="Figures, once it has ended; of a job that did not end well what it got done."
    )
    error: str | None = Field(
        description="Stable code, once it has failed: interrupted (its process ended), low_space, busy, "
        "stopped, store_damaged, backup_exists, backup_running, backup_dir_unusable (it cannot be made or "
        "written), quarantine_failed, no_supervisor (its process "
        "cannot be paused), internal_error."
    )
    actor: str = Field(description="Token id of who started it, or open.")
    created_at_ms: int
    ended_at_ms: int | None


class JobList(Model):
    """Jobs, newest first."""

    jobs: list[Job]
