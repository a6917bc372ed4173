"""Explaining one query: how far it is served, and what keeps every longer state from serving it.

It answers from the same facts and by the same rules as a lookup (`lookup`), and changes nothing: no
state is touched, leased, quarantined or counted. A state that fails its proof here is named, and is
left for the next restore to take out of service. Blocks are not read; verifying does that.

Bounded work whatever is asked: one pass of BLAKE3 over the query for each namespace looked at, a bounded
number of states, and manifests (a row for each block) only of what could be served. On a thread of
its own with a bounded queue, so that nobody's lookup waits for an explanation.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.engine.errors import Unavailable
from app.engine.explained import (
    Explanation,
    Obstacle,
    OtherNamespace,
    Reason,
    Unused,
    Usable,
)
from app.engine.faults import StateFault
from app.engine.history import grown
from app.engine.identity import differing_fields
from app.engine.lookup import Candidate, Hit, Passed, find, find_longer, preferred
from app.engine.manifest import Manifest, can_shorten
from app.engine.payload import PayloadKind
from app.engine.policy import Policy
from app.engine.reader import Reader
from app.engine.threads import in_thread
from app.engine.way import Way, proof_failed
from storage.documents import document
from storage.rows import NamespaceRow, StateRow, TombstoneRow
from storage.store import Store

_MOST_WAITING: Final = 8
_MOST_LISTED_ON_PATH: Final = 64
_MOST_LISTED_BEYOND: Final = 16
_OTHER_NAMESPACES: Final = 8
_MOST_FAULTS_ELSEWHERE: Final = 8
# At a prefix there may be one of each kind, several times over.
_TOMBSTONES_OF_A_PREFIX: Final = 8
_HOUR_MINUTES: Final = 60


class Explainer:
    """Explains queries against one store."""

    def __init__(self, store: Store, policy: Policy, reader: Reader) -> None:
        self._store = store
        self._policy = policy
        self._reader = reader
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self._waiting = 0  # only touched by the event loop

    async def explain(
        self, candidate: Candidate, accept: Sequence[str], *, truncate: bool, whole_store: bool
    ) -> Explanation:
        """How far `candidate` is served and why not further.

        Args:
            accept: kinds in order of preference.
            truncate: the caller takes a shorter prefix of a dense `kv` state.
            whole_store: the caller may know of misses that are not its own.

        Raises:
            Unavailable: too many explanations are waiting.
        """
        if self._waiting >= _MOST_WAITING:
            raise Unavailable("busy", "too many explanations are under way", 1)
        self._waiting += 1
        try:
            return await in_thread(
                self._thread, self._explain, candidate, accept, truncate, whole_store
            )
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Stop after the explanation under way."""
        self._thread.shutdown(cancel_futures=True)

    def _explain(
        self, candidate: Candidate, accept: Sequence[str], truncate: bool, whole_store: bool
    ) -> Explanation:
        catalog = self._store.catalog
        misses = grown(catalog, "misses", _HOUR_MINUTES) if whole_store else None
        found = catalog.around(candidate.namespace, candidate.tokens)
        if found is None:
            mode = self._policy.mode(None, catalog.setting("mode"))
            return Explanation(
                token_count=candidate.token_count,
                known=False,
                mode=mode,
                looked_up=mode in ("lookup", "lookup_record"),
                common_tokens=0,
                parting="tree_is_empty",
                misses_last_hour=misses,
            )
        around, evidence = found
        looked_up = self._policy.may_look_up(around.namespace)
        way = Way(candidate, around, evidence, accept, looked_up)
        on_path = [(state, way.obstacles(state)) for state in around.on_path]
        usable = self._longest(on_path, accept)
        beyond = [(state, way.obstacles_beyond(state, proof)) for state, proof in way.going_on()]
        cut = self._truncated(beyond, usable, around.common_tokens, truncate=truncate)
        if cut is None and truncate and looked_up and PayloadKind.KV in accept:
            cut = self._parting_before(candidate, around.namespace, usable)
        usable = cut or usable
        served = usable.prefix_tokens if usable is not None else 0

        here = [_unused(state, state.token_count, reasons) for state, reasons in on_path]
        here += [_unused(state, state.token_count, way.recording(state)) for state in way.recorded]
        here += self._gone(way)
        here = sorted(
            (one for one in here if one.token_count > served),
            key=lambda one: (-one.token_count, one.state_id),
        )
        there = [
            _unused(state, around.common_tokens, reasons)
            for state, reasons in beyond
            if usable is None or state.state_id != usable.state.state_id
        ]
        listed = there[:_MOST_LISTED_BEYOND][::-1] + here[:_MOST_LISTED_ON_PATH]
        return Explanation(
            token_count=candidate.token_count,
            known=True,
            mode=self._policy.mode(around.namespace),
            looked_up=looked_up,
            common_tokens=around.common_tokens,
            parting=around.parting,
            usable=usable,
            unused=listed,
            omitted=len(here) + len(there) - len(listed),
            nearest=self._nearest(candidate, around.namespace, accept),
            misses_last_hour=misses,
        )

    def _longest(
        self, on_path: Sequence[tuple[StateRow, list[Reason]]], accept: Sequence[str]
    ) -> Usable | None:
        """The state that a restore would open; those whose manifest fails get that as a reason."""
        reasons_of = {state.state_id: reasons for state, reasons in on_path}
        while clear := [state for state, reasons in on_path if not reasons]:
            state = preferred(clear, accept)
            manifest = self._manifest(state)
            if isinstance(manifest, Manifest):
                return Usable(state, state.token_count)
            reasons_of[state.state_id].append(manifest)
        return None

    def _truncated(
        self,
        beyond: Sequence[tuple[StateRow, list[Reason]]],
        usable: Usable | None,
        common_tokens: int,
        *,
        truncate: bool,
    ) -> Usable | None:
        """A state beyond that can be cut to what it shares, if that is longer than `usable`.

        Every other state gets the reason why it does not serve.
        """
        found = None
        gains = usable is None or common_tokens > usable.prefix_tokens
        for place, (state, reasons) in enumerate(beyond):
            if not gains or state.kind != PayloadKind.KV or found is not None:
                reasons.append(Reason(Obstacle.PARTS_FROM_QUERY))
                continue
            if any(reason.obstacle is Obstacle.PROOF_FAILED for reason in reasons):
                continue
            if not truncate and place >= _MOST_LISTED_BEYOND:
                break  # neither listed nor served
            manifest = self._manifest(state)
            if isinstance(manifest, Reason):
                reasons.append(manifest)
            elif not can_shorten(manifest, common_tokens):
                reasons.append(Reason(Obstacle.PARTS_FROM_QUERY))
            elif not truncate:
                reasons.append(Reason(Obstacle.TRUNCATION_NOT_ALLOWED))
            elif not reasons:
                found = Usable(state, common_tokens)
        return found

    def _parting_before(
        self, candidate: Candidate, namespace: NamespaceRow, usable: Usable | None
    ) -> Usable | None:
        """A state that can be cut and parts from the query earlier than the tree does."""
        found: Hit | Passed = Passed(namespace, True, False, False)
        if usable is not None:
            found = Hit(0, namespace, usable.state)
        failed: set[str] = set()
        for _ in range(_MOST_FAULTS_ELSEWHERE):
            try:
                hit = find_longer(
                    self._store.catalog,
                    lambda state, tokens: can_shorten(self._reader.load(state), tokens),
                    found,
                    candidate,
                    0,
                    frozenset(failed),
                )
            except StateFault as error:
                failed.add(error.state_id)
            else:
                return None if hit is None else Usable(hit.state, hit.prefix_tokens or 0)
        return None

    def _manifest(self, state: StateRow) -> Manifest | Reason:
        try:
            return self._reader.load(state)
        except StateFault as error:
            # A state that went since the snapshot has no rows left, which is no fault of it.
            if self._store.catalog.state(state.state_id) is None:
                return Reason(Obstacle.EVICTED)
            return proof_failed(error.evidence.failure_class)

    def _gone(self, way: Way) -> list[Unused]:
        """Prefixes of the query that went lately, unless one of that kind is there again."""
        prefixes = [
            (length, way.proofs[length]) for length in way.around.gone_lengths if length > 0
        ]
        there = {(state.token_count, state.kind) for state in (*way.around.on_path, *way.recorded)}
        newest: dict[tuple[int, str], TombstoneRow] = {}
        for row in self._store.catalog.tombstones(
            way.around.namespace.id, prefixes, _TOMBSTONES_OF_A_PREFIX
        ):
            if (row.token_count, row.kind) not in there:
                newest.setdefault((row.token_count, row.kind), row)
        return [
            Unused(
                row.state_id,
                row.kind,
                "evicted",
                row.token_count,
                row.token_count,
                (
                    *way.general(row.kind),
                    Reason(Obstacle.EVICTED, cause=row.cause, at_ms=row.evicted_at_ms),
                ),
            )
            for row in newest.values()
        ]

    def _nearest(
        self, candidate: Candidate, namespace: NamespaceRow, accept: Sequence[str]
    ) -> OtherNamespace | None:
        """Of other namespaces of the model, the one that serves the query farthest.

        Where none does better than another: the one whose tree has more of it, then the one that
        differs in fewer fields.
        """
        if namespace.model is None or namespace.identity is None:
            return None
        identity = document(namespace.identity)
        others = self._store.catalog.namespaces_of_model(
            namespace.model, namespace.name, _OTHER_NAMESPACES
        )
        found = [
            OtherNamespace(
                other.name,
                differing_fields(identity, document(other.identity)),
                self._store.catalog.common_tokens(other.id, candidate.tokens),
                self._usable_in(other, candidate, accept),
            )
            for other in others
            if other.identity is not None and candidate.sees(other.name)
        ]
        return min(
            found,
            key=lambda o: (-o.usable_tokens, -o.common_tokens, len(o.differing_fields), o.name),
            default=None,
        )

    def _usable_in(self, other: NamespaceRow, candidate: Candidate, accept: Sequence[str]) -> int:
        there = Candidate(other.name, candidate.tokens)
        failed: frozenset[str] = frozenset()
        for _ in range(_MOST_FAULTS_ELSEWHERE):
            try:
                found = find(self._store.catalog, self._policy, 0, there, accept, failed)
            except StateFault as error:
                failed |= {error.state_id}
                continue
            return found.state.token_count if isinstance(found, Hit) else 0
        return 0


def _unused(state: StateRow, common_tokens: int, reasons: Sequence[Reason]) -> Unused:
    return Unused(
        state.state_id,
        state.kind,
        state.status,
        state.token_count,
        common_tokens,
        tuple(reasons),
    )
