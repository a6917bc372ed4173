"""What is to be evicted, and what is to stay."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue, model_validator

from app.api.schemas.access import Tenant
from app.api.schemas.common import EXAMPLE_ID, UUID_PATTERN, Model, Namespace

StateIdText = Annotated[str, Field(pattern=UUID_PATTERN)]
_TEN_YEARS_S = 10 * 366 * 86_400

_EXAMPLES: list[JsonValue] = [
    {"state_ids": [EXAMPLE_ID]},
    {"namespace": "smollm2-135m-instruct-q4_1/llama.cpp-ggsq3/f16", "dry_run": True},
    {"untouched_for_s": 604_800, "tenant": "team-search"},
    {"target_bytes": 34_359_738_368, "dry_run": True},
]


class EvictionRequest(Model):
    """Either `state_ids`, or a choice: at least one of the others, each narrowing it."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={"examples": _EXAMPLES},
    )

    state_ids: list[StateIdText] | None = Field(
        None, min_length=1, max_length=1000, fail_fast=True, description="These live states."
    )
    namespace: Namespace | None = Field(None, description="States of this namespace only.")
    tenant: Tenant | None = Field(
        None,
        description="Whose namespace, or without one whose states. Null: the caller's; of an operator of "
        "the whole store everybody's states, and with `namespace` the default tenant's.",
    )
    target_bytes: int | None = Field(
        None,
        ge=0,
        le=1 << 60,
        description="Only until at most this many stored bytes are held there.",
    )
    untouched_for_s: int | None = Field(
        None,
        ge=0,
        le=_TEN_YEARS_S,
        description="Only states that nobody has used for so many seconds.",
    )
    dry_run: bool = Field(False, description="Say what would go, and change nothing.")

    @model_validator(mode="after")
    def _one_way(self) -> EvictionRequest:
        choice = (self.namespace, self.tenant, self.target_bytes, self.untouched_for_s)
        chosen = any(part is not None for part in choice)
        if (self.state_ids is None) != chosen:
            raise ValueError(
                "give either state_ids, or some of namespace, tenant, target_bytes, untouched_for_s"
            )
        return self


class EvictionResponse(Model):
    """What went, or in a dry run would go, and what was kept. Least recently used first."""

    dry_run: bool
    evicted: list[str] = Field(
        description="The first 10,000 states that went.", examples=[[EXAMPLE_ID]]
    )
    evicted_count: int = Field(description="All that went.", examples=[1])
    kept_leased: list[str] = Field(
        description="The first 10,000 that would have gone, but somebody reads them.", examples=[[]]
    )
    kept_leased_count: int = Field(description="All of those.", examples=[0])
    kept_pinned: list[str] = Field(
        description="The first 10,000 that would have gone, but are pinned.", examples=[[]]
    )
    kept_pinned_count: int = Field(description="All of those.", examples=[0])
    freed_bytes: int = Field(
        description="Stored bytes: blocks that only states that went had, each once, and overhead. "
        "For a token with a tenant or namespaces: what those namespaces hold less.",
        examples=[4_431_872],
    )
    more: bool = Field(
        description="A dry run ended early, because it met more shared blocks than it can keep in mind: "
        "a real one would take more.",
        examples=[False],
    )


class PinRequest(Model):
    """How long a state is to stay, and why."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={"examples": [{"ttl_s": 604_800, "reason": "system prompt of the demo"}]},
    )

    ttl_s: int | None = Field(
        None, ge=1, le=_TEN_YEARS_S, description="Seconds. Null: until it is taken away."
    )
    reason: str = Field(min_length=1, max_length=500)


class PinInfo(Model):
    """A pinned state."""

    state_id: str = Field(examples=[EXAMPLE_ID])
    namespace: str
    tenant: str = Field(description='Whose; "" is the default tenant.')
    stored_bytes: int = Field(
        description="Of its blocks, also of those that it shares, and its overhead.",
        examples=[4_431_872],
    )
    logical_bytes: int = Field(
        description="As recorded: what the pin budget counts.", examples=[4_427_520]
    )
    expires_at_ms: int | None = Field(description="Null: it stays until it is taken away.")
    reason: str = Field(examples=["system prompt of the demo"])
    actor: str = Field(description="Who pinned it: a token id, or `open`.", examples=[EXAMPLE_ID])
    created_at_ms: int


class PinList(Model):
    """A page of pins in order of their states' ids."""

    pins: list[PinInfo]
    pinned_bytes: int = Field(description="Logical bytes of all pinned states that you may see.")
    pin_budget_bytes: int = Field(description="What those of the whole store may have together.")
    next: str | None = Field(description="Give this as `after` for the next page; null at the end.")
