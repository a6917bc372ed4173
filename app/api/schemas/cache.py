"""Lookup, restore and leases."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from app.api.schemas.blocks import BlocksWanted
from app.api.schemas.common import EXAMPLE_ID, Component, ComponentName, Kind, Model, Prefix, State

FailureClass = Literal[
    "integrity",
    "invalid_data",
    "unsupported",
    "unavailable",
    "io",
    "runtime",
    "timeout",
    "cancelled",
    "internal",
]

ACCEPT_KINDS: Any = Field(
    default=["full_state", "kv_recurrent", "kv"],
    min_length=1,
    max_length=4,
    fail_fast=True,
    description="Kinds the caller can import, in order of preference. `recurrent_only` is "
    "diagnostic and found only when named. A state of another kind is passed over for the next "
    "shorter prefix.",
)


class Query(Model):
    """Candidates in order: the first with a usable state wins."""

    candidates: list[Prefix] = Field(min_length=1, max_length=64, fail_fast=True)
    accept_kinds: list[Kind] = ACCEPT_KINDS
    allow_truncated: bool = Field(
        False,
        description="Also take a `kv` state of a longer prefix, cut to the tokens it shares with the "
        "candidate, where that is longer than any state that fits as it is. Attention KV of a causal "
        "prefix does not depend on what follows.",
    )


class RestoreRequest(Query):
    """What to find, and in which form to give it back."""

    blocks: BlocksWanted | None = Field(
        None,
        description="Give the state back in the native block form (docs/native.md), without the "
        "blocks that the client has.",
    )


class LookupRequest(Query):
    """What a restore asks, and whether to hold what is found."""

    acquire: bool = Field(
        False,
        description="Open a lease, so that the state stays until it is released or runs out. "
        "Without it this is a peek: nothing is held and the state does not count as used.",
    )
    ttl_s: int | None = Field(
        None, ge=1, le=86400, description="Lease time in seconds; capped by `max_lease_ttl_s`."
    )


class LeaseGrant(Model):
    """A lease that was opened."""

    lease_id: str = Field(examples=[EXAMPLE_ID])
    ttl_ms: int = Field(description="Runs out this long after its opening or last heartbeat.")


class Miss(Model):
    """Why a candidate found nothing."""

    reason: Literal[
        "never_seen",
        "evicted_recently",
        "identity_mismatch",
        "quarantined",
        "kind_not_accepted",
        "lookup_disabled",
    ]
    evicted_ago: Literal["under_minute", "under_5m", "under_1h", "over_1h"] | None = None
    held_in_namespace: str | None = Field(
        None, description="For `identity_mismatch`: where the prefix is held."
    )
    differing_fields: list[str] | None = Field(
        None, description="For `identity_mismatch`: which identity fields differ."
    )


class LookupResponse(Model):
    """A hit with its state, or a miss with a reason for each candidate."""

    hit: bool
    candidate: int | None = Field(None, description="Index of the candidate that won.")
    state: State | None = None
    prefix_tokens: int | None = Field(
        None,
        description="With `allow_truncated`: only the rows of so many tokens are the candidate's; "
        "restore gives those, `tokens` of the block form selects them.",
    )
    components: list[Component] | None = Field(None, description="With `acquire`: in wire order.")
    lease: LeaseGrant | None = None
    misses: list[Miss] | None = None
    lookup_ms: float


class HeartbeatRequest(Model):
    """Begin the lease's time anew."""

    ttl_s: int | None = Field(None, ge=1, le=86400, description="Seconds; default: as it was.")


class Failure(Model):
    """An import that failed. `integrity`, `invalid_data` and `unsupported` put the state into quarantine."""

    class_: FailureClass = Field(alias="class")
    reason: str = Field(max_length=500, examples=["llama_state_seq_set_data returned 0"])


class ReleaseRequest(Model):
    """How the use of the state ended."""

    outcome: Literal["restored", "failed", "unused"]
    failure: Failure | None = Field(None, description="Required with `failed`.")
    import_ms: dict[ComponentName, float] | None = Field(
        None, description="How long the runtime took to import each component, in ms."
    )

    @model_validator(mode="after")
    def _failure_fits(self) -> ReleaseRequest:
        if (self.outcome == "failed") != (self.failure is not None):
            raise ValueError("failure goes with outcome failed, and only with it")
        if self.import_ms and any(not 0 <= ms < 1e9 for ms in self.import_ms.values()):
            raise ValueError("import_ms must be between 0 and 1e9")
        return self


class ReleaseResponse(Model):
    """What the release did."""

    state_id: str = Field(examples=[EXAMPLE_ID])
    quarantined: bool = Field(description="Whether this report took the state out of service.")
    lease_expired: bool = Field(description="The lease had run out before; the outcome counts.")
    repeated: bool = Field(description="The same release had been sent before.")
