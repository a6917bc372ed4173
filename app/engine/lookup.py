"""The longest usable prefix: what the tree says, proven.

Invariant: nothing leaves here whose token digest, computed over the query's own tokens, is not the
one stored with the state. SQLite does not check content, so the tree alone is no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.engine.faults import fault
from app.engine.identity import token_digest
from app.engine.payload import PayloadKind
from app.engine.policy import Policy
from storage.catalog import Catalog
from storage.rows import NamespaceRow, StateRow

# `recurrent_only` is diagnostic: served only when named.
DEFAULT_KINDS: Final = (PayloadKind.FULL_STATE, PayloadKind.KV_RECURRENT, PayloadKind.KV)

# Places before the longest one at which a state is looked for that can be cut.
_MOST_PARTINGS: Final = 8


def _everything(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Candidate:
    """A namespace and the tokens of a query (int32 little-endian).

    `sees` tells which other namespaces the caller may hear of.
    """

    namespace: str
    tokens: bytes
    sees: Callable[[str], bool] = field(default=_everything, compare=False)

    @property
    def token_count(self) -> int:
        """Tokens of the query."""
        return len(self.tokens) // 4


@dataclass(frozen=True, slots=True)
class Hit:
    """A proven state for a candidate (its place in the request).

    `prefix_tokens`: only so many of its tokens are the query's, and only their rows may be served.
    """

    candidate: int
    namespace: NamespaceRow
    state: StateRow
    prefix_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """What stood on the path of a candidate that found nothing usable.

    `longest_tokens`: of the longest state on it, usable or not; 0 where there is none.
    """

    namespace: NamespaceRow | None
    looked_up: bool
    unaccepted: bool
    quarantined: bool
    longest_tokens: int = 0


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
            max((s.token_count for s in states), default=0),
        )
    state = preferred(usable, accept)
    prove(state, candidate)
    return Hit(position, namespace, state)


def preferred(usable: Sequence[StateRow], accept: Sequence[str]) -> StateRow:
    """Of usable states (longest first) the longest, and of several of those the first accepted kind."""
    longest = usable[0].token_count
    return min((s for s in usable if s.token_count == longest), key=lambda s: accept.index(s.kind))


def by_nearness(state: StateRow) -> tuple[int, int]:
    """Sort key of states that go on beyond a query: the shortest first, of those the newest."""
    return state.token_count, -state.id


def find_longer(
    catalog: Catalog,
    shortens: Callable[[StateRow, int], bool],
    found: Hit | Passed,
    candidate: Candidate,
    position: int,
    skip: frozenset[str],
) -> Hit | None:
    """The dense `kv` state that goes furthest along the query, further than `found`, before it parts from it.

    The state's own tokens are longer than what matches, so the proof is over all of them: the tree
    says which they are, the digest stored with the state must be theirs, and the query must begin
    with the part that is served.

    Args:
        shortens: whether a state can be cut to so many tokens; loads its manifest.

    Raises:
        StateFault: a state's tokens are not those it was recorded for, or its manifest fails.

    Cost: a walk, and for each of a few states its tokens and its manifest. For a thread.
    """
    if found.namespace is None or (isinstance(found, Passed) and not found.looked_up):
        return None
    enough = found.state.token_count if isinstance(found, Hit) else 0
    under: int | None = None
    for _ in range(_MOST_PARTINGS):
        under, states = catalog.beyond(
            candidate.namespace, candidate.tokens, PayloadKind.KV, under=under
        )
        if under <= enough:
            return None
        for state, tokens in sorted(states, key=lambda pair: by_nearness(pair[0])):
            if state.state_id in skip:
                continue
            prove(state, Candidate(candidate.namespace, tokens))
            if tokens[: 4 * under] == candidate.tokens[: 4 * under] and shortens(state, under):
                return Hit(position, found.namespace, state, under)
    return None


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
