"""What an explanation says: values only. Never token ids; counts and depths stand for them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.rows import StateRow


class Obstacle(enum.Enum):
    """Why a state does not serve a query; each of them alone is enough."""

    LOOKUP_DISABLED = "lookup_disabled"
    KIND_NOT_ACCEPTED = "kind_not_accepted"
    QUARANTINED = "quarantined"
    RECORDING = "recording"
    EVICTED = "evicted"
    PROOF_FAILED = "proof_failed"
    # Of states that go on beyond where the query parts from the tree:
    TRUNCATION_NOT_ALLOWED = "truncation_not_allowed"
    PARTS_FROM_QUERY = "parts_from_query"


@dataclass(frozen=True, slots=True)
class Reason:
    """One obstacle with what is known of it.

    Attributes:
        failure_class: of a quarantine or a failed proof.
        cause: of an eviction.
        at_ms: when it was quarantined or evicted, or when its recording began (wall clock).
    """

    obstacle: Obstacle
    failure_class: str | None = None
    cause: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Unused:
    """A state that would have gone further than what is usable. `reasons` has at least one.

    `status` is "evicted" for one that is not there any more. `common_tokens` of its tokens are the query's.
    """

    state_id: str
    kind: str
    status: str
    token_count: int
    common_tokens: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Usable:
    """What a restore would give. `prefix_tokens`: how many tokens it serves."""

    state: StateRow
    prefix_tokens: int


@dataclass(frozen=True, slots=True)
class OtherNamespace:
    """The nearest namespace of the same model, and how far the query would get there."""

    name: str
    differing_fields: list[str]
    common_tokens: int
    usable_tokens: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a query goes in its namespace, how far it is served, and why not further.

    Attributes:
        parting: where query and tree part (`storage.metadata.surroundings.Parting`).
        unused: longest first.
        omitted: states that were seen and are not in `unused`, which is bounded.
        misses_last_hour: misses of the whole store by reason; None for who may not see all of it.
    """

    token_count: int
    known: bool
    mode: str
    looked_up: bool
    common_tokens: int
    parting: str
    usable: Usable | None = None
    unused: Sequence[Unused] = ()
    omitted: int = 0
    nearest: OtherNamespace | None = None
    misses_last_hour: Mapping[str, int] | None = None
