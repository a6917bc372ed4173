"""A query's way through its namespace: the states on it and behind it, and what stands in their way.

What the tree says is compared with the query's own tokens: whoever's digest is not that of the tokens
leading to it has failed its proof. Nothing is read here beyond the snapshot that is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.engine.explained import Obstacle, Reason
from app.engine.identity import GrowingPrefix, prefix_digests
from app.engine.lookup import Candidate, by_nearness
from storage.metadata.surroundings import Surroundings
from storage.rows import Evidence, StateRow


class Way:
    """One query in its surroundings.

    Attributes:
        proofs: token count -> digest of that prefix of the query, for every prefix that matters.
        recorded: recordings of prefixes of the query.
    """

    def __init__(
        self,
        candidate: Candidate,
        around: Surroundings,
        evidence: Mapping[int, Evidence],
        accept: Sequence[str],
        looked_up: bool,
    ) -> None:
        """
        Args:
            evidence: of quarantined states in `around`, by row.
            accept: kinds that the caller can import.
            looked_up: whether the mode allows lookups in this namespace.
        """
        self._candidate = candidate
        self.around = around
        self._evidence = evidence
        self._accept = accept
        self._looked_up = looked_up
        # One pass over the tokens for everything; a row of nonsense length has no proof.
        lengths = sorted(
            {
                length
                for length in (
                    *(state.token_count for state in (*around.on_path, *around.recording)),
                    *around.gone_lengths,
                )
                if 0 < length <= candidate.token_count
            }
        )
        digests = prefix_digests(candidate.namespace, candidate.tokens, lengths)
        self.proofs: dict[int, bytes] = dict(zip(lengths, digests, strict=True))
        self.recorded = [
            state
            for state in around.recording
            if self.proofs.get(state.token_count) == state.token_digest
        ]

    def general(self, kind: str) -> list[Reason]:
        """What keeps every state of a kind from being used."""
        reasons = []
        if not self._looked_up:
            reasons.append(Reason(Obstacle.LOOKUP_DISABLED))
        if kind not in self._accept:
            reasons.append(Reason(Obstacle.KIND_NOT_ACCEPTED))
        return reasons

    def obstacles(self, state: StateRow) -> list[Reason]:
        """What keeps a state on the path from being used, its manifest aside."""
        return self._obstacles(state, self.proofs.get(state.token_count))

    def obstacles_beyond(self, state: StateRow, proof: bytes) -> list[Reason]:
        """As `obstacles`, of a state beyond; that it goes on beyond is not among them."""
        return self._obstacles(state, proof)

    def recording(self, state: StateRow) -> list[Reason]:
        """What keeps a recording from being used."""
        return [
            *self.general(state.kind),
            Reason(Obstacle.RECORDING, at_ms=state.created_at_ms),
        ]

    def going_on(self) -> list[tuple[StateRow, bytes]]:
        """States beyond the parting in order of nearness, with the digest of what leads to them."""
        common = self.around.common_tokens
        shared = memoryview(self._candidate.tokens)[: 4 * common]
        start = GrowingPrefix(self._candidate.namespace).then(shared)
        prefixes: dict[int, GrowingPrefix] = {}
        found = []
        for node, states in self.around.beyond:
            before = start if node.parent_id is None else prefixes.get(node.parent_id, start)
            prefixes[node.node_id] = before.then(node.tokens)
            digest = prefixes[node.node_id].digest
            found += [(state, digest) for state in states if state.token_count > common]
        return sorted(found, key=lambda pair: by_nearness(pair[0]))

    def _obstacles(self, state: StateRow, proof: bytes | None) -> list[Reason]:
        reasons = self.general(state.kind)
        if state.status == "quarantined":
            why = self._evidence.get(state.id)
            reasons.append(
                Reason(
                    Obstacle.QUARANTINED,
                    failure_class=None if why is None else why.failure_class,
                    at_ms=None if why is None else why.at_ms,
                )
            )
        if proof != state.token_digest:
            reasons.append(proof_failed("token_digest_mismatch"))
        return reasons


def proof_failed(failure_class: str) -> Reason:
    """The state, or the way to it, is not as it was recorded."""
    return Reason(Obstacle.PROOF_FAILED, failure_class=failure_class)
