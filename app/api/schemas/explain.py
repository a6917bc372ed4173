"""Explanations of queries."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from app.api.schemas.cache import ACCEPT_KINDS
from app.api.schemas.common import EXAMPLE_ID, Kind, Mode, Model, Prefix, State

_EXAMPLE_REQUEST: Any = {
    "namespace": "smollm2-135m-instruct-q4_1/llama.cpp-ggsq3/f16",
    "tokens": [2683, 359, 253, 4052, 28],
    "accept_kinds": ["full_state"],
}
_EXAMPLE_ANSWER: Any = {
    "token_count": 5,
    "namespace_known": True,
    "mode": "lookup_record",
    "lookup_allowed": True,
    "common_tokens": 4,
    "parting": "tokens_differ",
    "usable_tokens": 2,
    "usable": {
        "state_id": EXAMPLE_ID,
        "page_id": "chat-17",
        "kind": "full_state",
        "token_count": 2,
        "logical_bytes": 46080,
        "created_at_ms": 1_796_169_600_000,
    },
    "unused": [
        {
            "state_id": "01938c0d-e003-7000-8000-000000000003",
            "kind": "kv",
            "status": "live",
            "token_count": 9,
            "common_tokens": 4,
            "reasons": [{"reason": "kind_not_accepted"}, {"reason": "truncation_not_allowed"}],
        },
        {
            "state_id": "01938c0d-e002-7000-8000-000000000002",
            "kind": "full_state",
            "status": "quarantined",
            "token_count": 4,
            "common_tokens": 4,
            "reasons": [
                {
                    "reason": "quarantined",
                    "failure_class": "block_damaged",
                    "at_ms": 1_796_169_660_000,
                }
            ],
        },
        {
            "state_id": "01938c0d-e001-7000-8000-000000000001",
            "kind": "full_state",
            "status": "evicted",
            "token_count": 3,
            "common_tokens": 3,
            "reasons": [{"reason": "evicted", "cause": "budget", "at_ms": 1_796_169_630_000}],
        },
    ],
    "omitted": 0,
    "nearest_namespace": {
        "namespace": "smollm2-135m-instruct-q4_1/llama.cpp-ggsq3/q8_0",
        "differing_fields": ["kv.k_dtype", "kv.v_dtype"],
        "common_tokens": 5,
        "usable_tokens": 5,
    },
    "misses_last_hour": {"never_seen": 12, "identity_mismatch": 3},
}


class ExplainRequest(Prefix):
    """A query as a lookup or restore would ask it, of one candidate."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_REQUEST]})

    accept_kinds: list[Kind] = ACCEPT_KINDS
    allow_truncated: bool = Field(
        False, description="As in a lookup: whether a longer `kv` state cut to the query would do."
    )


class ReasonInfo(Model):
    """Why a state does not serve the query; each reason alone is enough.

    - `lookup_disabled`: the mode allows no lookups.
    - `kind_not_accepted`: `accept_kinds` does not name its kind.
    - `quarantined`: out of service since `at_ms`, for `failure_class`.
    - `recording`: being recorded since `at_ms`; it serves once it is committed.
    - `evicted`: gone at `at_ms`, by `cause`.
    - `proof_failed`: the tokens that lead to it, or its manifest, are not those it was recorded with
      (`failure_class`); a restore that meets it puts it into quarantine.
    - `truncation_not_allowed`: it goes on beyond the query, but cut to `common_tokens` it would serve;
      ask with `allow_truncated`.
    - `parts_from_query`: it goes on with other tokens and cannot be cut, or a cut would gain nothing.
    """

    reason: Literal[
        "lookup_disabled",
        "kind_not_accepted",
        "quarantined",
        "recording",
        "evicted",
        "proof_failed",
        "truncation_not_allowed",
        "parts_from_query",
    ]
    failure_class: str | None = Field(None, examples=["block_damaged"])
    cause: str | None = Field(
        None,
        description="`budget` or `entries` (a limit was reached), `admin`, `purged`.",
        examples=["budget"],
    )
    at_ms: int | None = Field(None, description="Wall clock, ms since the Unix epoch.")


class UnusedState(Model):
    """A state that would serve more of the query if it could."""

    state_id: str = Field(examples=[EXAMPLE_ID])
    kind: Kind
    status: Literal["live", "quarantined", "recording", "evicted"]
    token_count: int
    common_tokens: int = Field(description="How many of its leading tokens are the query's.")
    reasons: list[ReasonInfo] = Field(min_length=1)


class NearestNamespace(Model):
    """The registered namespace of the same model that would serve the query farthest."""

    namespace: str
    differing_fields: list[str] = Field(
        description="Dotted paths at which the two identity documents differ."
    )
    common_tokens: int = Field(description="Tokens of the query that its tree has.")
    usable_tokens: int = Field(description="Tokens that a lookup there would find; 0: none.")


class ExplainResponse(Model):
    """How far a query is served, and why not further. Counts and depths only, never token ids."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_ANSWER]})

    token_count: int = Field(description="Tokens of the query.")
    namespace_known: bool = Field(
        description="Whether anything was ever recorded or registered under this name."
    )
    mode: Mode = Field(description="The mode in force for the namespace.")
    lookup_allowed: bool
    common_tokens: int = Field(
        description="Longest common path: tokens of the query that the namespace's tree has."
    )
    parting: Literal["query_ends", "tokens_differ", "tree_ends", "tree_is_empty"] = Field(
        description="What is there: the query's end; a tree that goes on with other tokens; the end of "
        "everything recorded along it; or no token in common and nothing recorded at all."
    )
    usable_tokens: int = Field(description="Tokens that a restore would serve; 0: none.")
    usable: State | None = Field(
        None,
        description="The state that a restore would open; cut to `usable_tokens` where it has more. "
        "Its manifest is proven, its blocks are not read.",
    )
    unused: list[UnusedState] = Field(
        description="States that have more tokens of the query than `usable_tokens`, or go on beyond "
        "the parting; the longest first."
    )
    omitted: int = Field(description="Such states that were seen and are not listed.")
    nearest_namespace: NearestNamespace | None = Field(
        None, description="Only for a registered namespace whose identity names a `model_id`."
    )
    misses_last_hour: dict[str, int] | None = Field(
        None,
        description="Misses of the whole store by reason, up to about a second ago; only for callers "
        "that are bound to no tenant and no namespaces.",
    )
