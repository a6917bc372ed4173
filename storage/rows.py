"""The values that leave this package: frozen rows, without connections behind them. A leaf but for errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints

from storage.errors import StoreDamaged

_kinds_of: dict[type, tuple[tuple[str, Any], ...]] = {}


def _kinds(row: type) -> tuple[tuple[str, Any], ...]:
    found = _kinds_of.get(row)
    if found is None:
        found = _kinds_of[row] = tuple(get_type_hints(row).items())
    return found


class Typed:
    """A row whose columns hold what they were declared to hold, or it is none.

    SQLite looks at types when it writes. A flipped bit in a row's header makes text of a number, or NULL of
    either, and SQLite gives that back without a word. (1 us for 16 columns.)
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, kind in _kinds(type(self)):
            if not isinstance(getattr(self, name), kind):
                raise StoreDamaged(f"column {name} of the database holds what never was put there")


@dataclass(frozen=True, slots=True)
class NamespaceRow(Typed):
    """A namespace and its counts. `identity` is canonical JSON, None where never registered.

    `new_raw_bytes` / `new_row_bytes` is its write amplification (components with geometry).

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
    new_raw_bytes: int
    new_row_bytes: int
    tenant: str
    effective_mode: str | None


@dataclass(frozen=True, slots=True)
class NamespaceCounts(Typed):
    """How many states of a namespace are being recorded, are out of service, and are pinned."""

    recording: int
    quarantined: int
    pinned: int


@dataclass(frozen=True, slots=True)
class StateRow(Typed):
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
    """One component. `digest` is BLAKE3-256 of its bytes, None until it has arrived whole.

    Of a component that arrived as blocks (`by_blocks` is 1) it is the digest of the list of its blocks.
    `geometry` is its packed layout, None where its blocks lie in wire order.
    """

    ordinal: int
    name: str
    raw_bytes: int
    digest: bytes | None
    upload: str | None
    geometry: bytes | None
    row_bytes: int
    new_raw_bytes: int
    by_blocks: int


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
class LeaseRow(Typed):
    """A lease, held (`outcome` None) or released. `namespace_id` is its state's, None in old ones."""

    lease_id: str
    state_id: str
    ttl_ms: int
    expires_boot_ms: int
    outcome: str | None
    created_at_ms: int
    namespace_id: int | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a state was taken out of service. Digests are BLAKE3-256; `seq` counts the component's blocks.

    `client`: id of the access token whose holder reported it. `verified_at_ms` and `intact`: when it was
    verified last since, and whether every byte was as recorded then.
    """

    failure_class: str
    reason: str
    reported_by: str
    component: str | None = None
    seq: int | None = None
    expected_digest: bytes | None = None
    actual_digest: bytes | None = None
    lease_id: str | None = None
    at_ms: int = 0
    client: str | None = None
    verified_at_ms: int | None = None
    intact: bool | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """What keeps a state from being evicted, and who wanted that. `expires_at_ms` None: for ever."""

    expires_at_ms: int | None
    reason: str
    actor: str
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Usage(Typed):
    """What the store holds and has promised."""

    stored_bytes: int
    entries: int
    recordings: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Vitals(Typed):
    """Figures of the metadata for monitoring; `database_bytes` and `free_page_bytes` are of its file.

    `quarantined` is counted up to a bound, `mode` is None where none was set at run time.
    """

    usage: Usage
    commit_counter: int
    quarantined: int
    leases_held: int
    namespaces: int
    logical_bytes: int
    new_raw_bytes: int
    new_row_bytes: int
    mode: str | None
    database_bytes: int
    free_page_bytes: int
    pins: int
    pinned_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """What of some blocks had to be written: how many, their raw bytes, and their stored values' bytes."""

    blocks: int
    raw_bytes: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits that a write must keep; None: none of that kind."""

    budget_bytes: int
    max_entries: int
    namespace_bytes: int | None = None
    namespace_entries: int | None = None
    tenant: str = ""
    tenant_bytes: int | None = None
    tenant_logical_bytes: int | None = None
    tenant_entries: int | None = None


@dataclass(frozen=True, slots=True)
class NewComponent:
    """A component announced at admission, with its packed geometry and the bytes of one row."""

    name: str
    raw_bytes: int
    geometry: bytes | None = None
    row_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A component that is whole: what it is known by, and what became known of it on the way.

    `overhead_bytes` is what its metadata takes beyond what admission was charged for.
    """

    digest: bytes
    by_blocks: bool = False
    geometry: bytes | None = None
    row_bytes: int = 0
    overhead_bytes: int = 0


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
    tenant_limits: TenantLimits
    tenant_usage: TenantUsage | None  # only where there are limits


@dataclass(frozen=True, slots=True)
class TombstoneRow(Typed):
    """What remains of a prefix that went."""

    token_count: int
    kind: str
    state_id: str
    cause: str
    evicted_at_ms: int


@dataclass(frozen=True, slots=True)
class DropResult:
    """What an eviction did, and whom it spared because someone reads them or they are pinned.

    `freed_bytes` are stored bytes: of the blocks that are left without an owner, and the overhead; `left_bytes`
    are what the states' namespaces then hold less, whoever else owns their blocks.
    """

    dropped: tuple[str, ...]
    kept_leased: tuple[str, ...]
    kept_pinned: tuple[str, ...]
    freed_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A state that an eviction may meet, and what speaks against its going at this moment."""

    state: StateRow
    leased: bool
    pinned: bool


@dataclass(frozen=True, slots=True)
class OwnedRow:
    """A block of a state by its row: how often the state owns it, and how many owners it has at all."""

    block: int
    times: int
    stored_bytes: int
    refs: int


@dataclass(frozen=True, slots=True)
class PinRow:
    """A pin that has not run out, with its state; `namespace` is the held name.

    `expires_at_ms` None: until it is taken away.
    """

    row: int
    state_id: str
    namespace: str
    logical_bytes: int
    overhead_bytes: int
    expires_at_ms: int | None
    reason: str
    actor: str
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """An access token as it is kept. `tenant` None: an operator of the whole store.

    `namespaces`: patterns of the names it may use, None for all of its tenant's.
    """

    token_id: str
    secret_digest: bytes
    label: str
    tenant: str | None
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...] | None
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None
    used_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What a tenant may hold and do at most; None: no limit of its own."""

    max_stored_bytes: int | None = None
    max_logical_bytes: int | None = None
    max_entries: int | None = None
    max_in_flight_records: int | None = None
    max_requests_per_second: int | None = None
    max_bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class TenantUsage(Typed):
    """What a tenant's namespaces hold together, and what its recordings have promised (raw bytes)."""

    namespaces: int
    entries: int
    stored_bytes: int
    logical_bytes: int
    recordings: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class AuditRow(Typed):
    """One change and how it ended. `details` is JSON."""

    id: int
    at_ms: int
    actor: str
    action: str
    target: str
    outcome: str
    details: str


@dataclass(frozen=True, slots=True)
class JobRow(Typed):
    """A long job. `done` of `total` is in `unit`; `arguments` and `result` are JSON; `error` is a code.

    `status` is running, done, failed or cancelled; `cancel` is 1 once it was asked to stop.
    """

    job_id: str
    kind: str
    status: str
    owner: str
    actor: str
    arguments: str
    done: int
    total: int
    unit: str
    cancel: int
    result: str | None
    error: str | None
    created_at_ms: int
    ended_at_ms: int | None


@dataclass(frozen=True, slots=True)
class ScrubRow:
    """A block as a scrub meets it: its row, key and sizes, and whether a live state owns it."""

    id: int
    digest: bytes
    raw_bytes: int
    stored_bytes: int
    live: bool
