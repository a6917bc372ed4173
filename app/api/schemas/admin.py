"""What operators see and send."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from app.api.schemas.common import EXAMPLE_ID, Component, Mode, Model, Namespace, State, Status


class EvidenceInfo(Model):
    """Why a state is quarantined. Digests are BLAKE3-256 in hex."""

    failure_class: str = Field(examples=["block_damaged"])
    reason: str
    reported_by: Literal["service", "client", "operator"]
    component: str | None
    first_bad_block: int | None = Field(description="Index of the block in its component.")
    expected_digest: str | None
    actual_digest: str | None
    lease_id: str | None
    at_ms: int


class StateInfo(State):
    """A state of any status."""

    namespace: str
    status: Status
    touched_at_ms: int = Field(description="Last use; flushed in batches.")
    hits: int


class StateDetail(StateInfo):
    """A state with what it is made of."""

    components: list[Component]
    kv_descriptor: dict[str, object] | None
    evidence: EvidenceInfo | None


class StateList(Model):
    """A page of states in order of recording."""

    states: list[StateInfo]
    next: str | None = Field(description="Give this as `after` for the next page; null at the end.")


class QuarantineRequest(Model):
    """Why an operator takes a state out of service."""

    reason: str = Field(min_length=1, max_length=500, examples=["suspected driver bug"])


class EvictionRequest(Model):
    """Exactly one of: ids, a whole namespace, or a target for the store or a namespace."""

    state_ids: list[str] | None = Field(
        None, min_length=1, max_length=1000, examples=[[EXAMPLE_ID]]
    )
    namespace: Namespace | None = Field(
        None, description="Alone: all its states. With `target_bytes`: least recently used first."
    )
    target_bytes: int | None = Field(
        None, ge=0, le=1 << 60, description="Evict until at most this many stored bytes are held."
    )

    @model_validator(mode="after")
    def _one_way(self) -> EvictionRequest:
        by_ids = self.state_ids is not None
        by_rest = self.namespace is not None or self.target_bytes is not None
        if by_ids == by_rest:
            raise ValueError("give either state_ids, or namespace and/or target_bytes")
        return self


class EvictionResponse(Model):
    """What went and what was kept because somebody reads it."""

    evicted: list[str]
    kept_leased: list[str]


class ModeRequest(Model):
    """The store's mode; null goes back to the configured one."""

    mode: Mode | None


class ModeResponse(Model):
    """The mode in force."""

    mode: Mode


class CounterInfo(Model):
    """A counter of all workers since the store was made."""

    name: str
    label: str
    value: int


class Stats(Model):
    """Figures of the whole store. Bytes are bytes on disk unless they say logical or raw."""

    live: int
    recording: int
    quarantined: int
    namespaces: int
    leases_held: int
    logical_bytes: int = Field(description="Of live states, as recorded.")
    block_count: int
    block_raw_bytes: int = Field(description="Of distinct blocks, before compression.")
    block_stored_bytes: int = Field(description="Of distinct blocks, with page rounding.")
    stored_bytes: int = Field(description="What counts against the budget.")
    reserved_bytes: int = Field(description="Raw bytes of recordings under way.")
    budget_bytes: int
    max_entries: int
    block_file_bytes: int
    wal_bytes: int
    free_disk_bytes: int
    counters: list[CounterInfo]


class Ready(Model):
    """Whether requests can be served, and what is not as it should be."""

    ready: bool
    degraded: list[str]
    mode: Mode
    sqlite_version: str
    workers: int
    free_disk_bytes: int
    recovered: dict[str, int | bool] = Field(description="What the last start found.")


class Alive(Model):
    """The process answers."""

    status: Literal["alive"] = "alive"
    version: str
