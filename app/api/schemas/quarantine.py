"""What the quarantine desk answers."""

from __future__ import annotations

from pydantic import Field

from app.api.schemas.admin import EvidenceInfo, StateDetail
from app.api.schemas.common import EXAMPLE_ID, Model


class QuarantineList(Model):
    """A page of quarantined states, those found last first."""

    states: list[StateDetail]
    next: str | None = Field(description="Give this as `after` for the next page; null at the end.")


class Verification(Model):
    """How proving a state ended."""

    state_id: str = Field(examples=[EXAMPLE_ID])
    intact: bool = Field(description="Whether every byte is as it was recorded.")
    evidence: EvidenceInfo | None = Field(
        description="Of a quarantined state, after this verification; null for one in service."
    )
    verified_bytes: int = Field(
        description="Bytes that are right, before compression: all of them, or those before the first "
        "block that is not.",
        examples=[4427520],
    )
    seconds: float = Field(description="How long it took.", examples=[0.042])
