"""What operators see and send."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.api.schemas.common import (
    EXAMPLE_DIGEST,
    Component,
    Mode,
    Model,
    State,
    Status,
    WriteAmplification,
)


class EvidenceInfo(Model):
    """Why a state is quarantined. Digests are BLAKE3-256 in hex."""

    failure_class: str = Field(examples=["block_damaged"])
    reason: str = Field(examples=["the bytes do not have their digest"])
    reported_by: Literal["service", "client", "operator"]
    component: str | None = Field(examples=["kv"])
    first_bad_block: int | None = Field(
        description="Index of the block in its component.", examples=[118]
    )
    expected_digest: str | None = Field(examples=[EXAMPLE_DIGEST])
    actual_digest: str | None = Field(description="Of what was found, where it could be read.")
    lease_id: str | None = Field(description="Under which a client reported it.")
    client: str | None = Field(
        description="Id of the access token of the client or operator who reported it; null where the "
        "service found it or no token was needed."
    )
    at_ms: int = Field(description="When it went out of service.")
    verified_at_ms: int | None = Field(description="Last verification since; null: none.")
    intact: bool | None = Field(
        description="Whether that one found every byte as recorded. The rest is then as it was before."
    )


class StatePin(Model):
    """What keeps a state from being evicted."""

    expires_at_ms: int | None = Field(description="Null: until it is taken away.")
    reason: str = Field(examples=["system prompt of the launch"])
    actor: str = Field(description="Who pinned it: a token id, or `open`.")
    created_at_ms: int


class StateInfo(State):
    """A state of any status."""

    namespace: str
    tenant: str = Field(description='Whose; "" is the default tenant.')
    status: Status
    touched_at_ms: int = Field(description="Last use; flushed in batches.")
    hits: int
    pin: StatePin | None = Field(description="Null: it is not pinned, or the pin has run out.")


class StateDetail(StateInfo):
    """A state with what it is made of."""

    components: list[Component]
    kv_descriptor: dict[str, object] | None
    evidence: EvidenceInfo | None


class StateList(Model):
    """A page of states."""

    states: list[StateInfo]
    next: str | None = Field(
        description="Give this as `after`, with the same filters and order, for the next page; null "
        "at the end. A page may be shorter than `limit`, or empty, and not be the last."
    )


class QuarantineRequest(Model):
    """Why an operator takes a state out of service."""

    reason: str = Field(min_length=1, max_length=500, examples=["suspected driver bug"])


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
    write_amplification: WriteAmplification
    counters: list[CounterInfo]


class Ready(Model):
    """Whether requests can be served, and what is not as it should be."""

    ready: bool
    degraded: list[str]
    warnings: list[str] = Field(description="What is as it was set, but may not be meant.")
    mode: Mode
    sqlite_version: str
    workers: int
    free_disk_bytes: int
    recovered: dict[str, int | bool] = Field(description="What the last start found.")
    instance: str | None = Field(
        None,
        description="The worker that answers, another one after each start: `statehold doctor` tells by it "
        "whether it serves the data folder of the settings.",
        examples=["9f86d081884c7d659a2feaa0c55ad015"],
    )


class Alive(Model):
    """The process answers."""

    status: Literal["alive"] = "alive"
    version: str
