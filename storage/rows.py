"""The values that leave this package: frozen rows, without connections behind them. A leaf."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace and its counts. `identity` is canonical JSON, None where never registered.

    `mode` is its own; `effective_mode` falls back to the store's run-time setting, None if unset too.
    """

    id: int
    name: str
    identity: str | None
    identity_digest: bytes | None
    model: str | None
    mode: str | None
    min_tokens: int | None
    max_entries: int | None
    max_stored_bytes: int | None
    entries: int
    stored_bytes: int
    logical_bytes: int
    created_at_ms: int
    effective_mode: str | None


@dataclass(frozen=True, slots=True)
class StateRow:
    """A state of any status. `id` is the row, `state_id` the name the world knows."""

    id: int
    state_id: str
    namespace_id: int
    page_id: str
    kind: str
    status: str
    node_id: int | None
    token_count: int
    token_digest: bytes
    manifest_digest: bytes | None
    kv_descriptor: str | None
    logical_bytes: int
    overhead_bytes: int
    created_at_ms: int
    touched_at_ms: int
    hits: int


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """One component. `digest` is BLAKE3-256 of its bytes, None until it has arrived whole."""

    ordinal: int
    name: str
    raw_bytes: int
    digest: bytes | None
    upload: str | None


@dataclass(frozen=True, slots=True)
class OwnedBlock:
    """One block of a component, in its place."""

    ordinal: int
    seq: int
    digest: bytes
    raw_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class RecordingRow:
    """What a recording holds besides its state row."""

    state: StateRow
    namespace: str
    tokens: bytes
    owner: str
    reserved_bytes: int
    replace: bool
    ttl_ms: int
    deadline_boot_ms: int
    components: tuple[ComponentRow, ...]


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease, held (`outcome` None) or released."""

    lease_id: str
    state_id: str
    ttl_ms: int
    expires_boot_ms: int
    outcome: str | None
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a state was taken out of service. Digests are BLAKE3-256; `seq` counts the component's blocks."""

    failure_class: str
    reason: str
    reported_by: str
    component: str | None = None
    seq: int | None = None
    expected_digest: bytes | None = None
    actual_digest: bytes | None = None
    lease_id: str | None = None
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What the store holds and has promised."""

    stored_bytes: int
    entries: int
    recordings: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits that a write must keep; None: none of that kind."""

    budget_bytes: int
    max_entries: int
    namespace_bytes: int | None = None
    namespace_entries: int | None = None


@dataclass(frozen=True, slots=True)
class NewComponent:
    """A component announced at admission."""

    name: str
    raw_bytes: int


@dataclass(frozen=True, slots=True)
class NewRecording:
    """What admission asks the store to open."""

    state_id: str
    namespace: str
    page_id: str
    kind: str
    tokens: bytes
    token_digest: bytes
    components: tuple[NewComponent, ...]
    kv_descriptor: str | None
    overhead_bytes: int
    replace: bool
    ttl_ms: int

    @property
    def logical_bytes(self) -> int:
        """Raw bytes of all components."""
        return sum(component.raw_bytes for component in self.components)


@dataclass(frozen=True, slots=True)
class AdmissionFacts:
    """What the store knows at the moment of admission, under the write lock."""

    namespace: NamespaceRow | None
    store_mode: str | None
    held_state_id: str | None
    in_flight_state_id: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class TombstoneRow:
    """What remains of a prefix that went."""

    token_count: int
    kind: str
    state_id: str
    cause: str
    evicted_at_ms: int


@dataclass(frozen=True, slots=True)
class DropResult:
    """What an eviction did. `kept_leased` names states that were spared because someone reads them."""

    dropped: tuple[str, ...]
    kept_leased: tuple[str, ...]
    unowned_bytes: int
