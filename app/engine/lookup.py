"""The longest usable prefix: what the tree says, proven.

Invariant: nothing leaves here whose token digest, computed over the query's own tokens, is not the
one stored with the state. SQLite does not check content, so the tree alone is no proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.engine.faults import fault
from app.engine.identity import token_digest
from app.engine.payload import PayloadKind
from app.engine.policy import Policy
from storage.catalog import Catalog
from storage.rows import NamespaceRow, StateRow

# `recurrent_only` is diagnostic: served only when named.
DEFAULT_KINDS: Final = (PayloadKind.FULL_STATE, PayloadKind.KV_RECURRENT, PayloadKind.KV)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A namespace and the tokens of a query (int32 little-endian)."""

    namespace: str
    tokens: bytes

    @property
    def token_count(self) -> int:
        """Tokens of the query."""
        return len(self.tokens) // 4


@dataclass(frozen=True, slots=True)
class Hit:
    """A proven state for a candidate (its place in the request)."""

    candidate: int
    namespace: NamespaceRow
    state: StateRow


@dataclass(frozen=True, slots=True)
class Passed:
    """What stood on the path of a candidate that found nothing usable."""

    namespace: NamespaceRow | None
    looked_up: bool
    unaccepted: bool
    quarantined: bool


def find(
    catalog: Catalog,
    policy: Policy,
    position: int,
    candidate: Candidate,
    accept: Sequence[str],
    skip: frozenset[str],
) -> Hit | Passed:
    """The longest live state of an accepted kind on the candidate's path.

    Args:
        accept: kinds in order of preference; among equally long states the first kind wins.
        skip: state ids found unusable while this request went on.

    Raises:
        StateFault: the best state fails its token proof; it must be quarantined.

    Cost: two SQL statements and one BLAKE3 over the matched tokens, whatever the store holds.
    """
    namespace, states = catalog.on_path(candidate.namespace, candidate.tokens)
    if namespace is None or not policy.may_look_up(namespace):
        return Passed(namespace, namespace is None, False, False)
    usable = [
        state
        for state in states
        if state.status == "live" and state.kind in accept and state.state_id not in skip
    ]
    if not usable:
        return Passed(
            namespace,
            True,
            any(s.status == "live" and s.kind not in accept for s in states),
            any(s.status == "quarantined" for s in states) or bool(skip),
        )
    longest = usable[0].token_count
    state = min((s for s in usable if s.token_count == longest), key=lambda s: accept.index(s.kind))
    prove(state, candidate)
    return Hit(position, namespace, state)


def prove(state: StateRow, candidate: Candidate) -> None:
    """The matched tokens of the query are those the state was recorded for.

    Raises:
        StateFault: they are not.
    """
    matched = memoryview(candidate.tokens)[: 4 * state.token_count]
    digest = token_digest(candidate.namespace, matched)
    if digest != state.token_digest:
        raise fault(
            state.state_id,
            "token_digest_mismatch",
            "the tokens that lead to it in the tree are not those it was recorded for",
            expected=state.token_digest,
            actual=digest,
        )
