"""Why nothing was found. Only asked on a miss; bounded work, and none of it can make a hit."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from app.engine.identity import differing_fields, prefix_digests
from app.engine.lookup import Candidate, Passed
from storage.catalog import Catalog
from storage.clock import wall_ms
from storage.documents import document
from storage.rows import NamespaceRow

# One probe of some microseconds each: together about a millisecond of the event loop.
_TOMBSTONE_LENGTHS: Final = 100
_OTHER_NAMESPACES: Final = 8
EVICTED_AGO: Final = ("under_minute", "under_5m", "under_1h", "over_1h")


class MissReason(enum.Enum):
    """Ordered by how much they tell: the first that applies is given."""

    LOOKUP_DISABLED = "lookup_disabled"
    KIND_NOT_ACCEPTED = "kind_not_accepted"
    QUARANTINED = "quarantined"
    EVICTED_RECENTLY = "evicted_recently"
    IDENTITY_MISMATCH = "identity_mismatch"
    NEVER_SEEN = "never_seen"


@dataclass(frozen=True, slots=True)
class Miss:
    """Why one candidate found nothing.

    Attributes:
        evicted_ago: under_minute, under_5m, under_1h or over_1h.
        other_namespace: where the prefix is held under another identity of the same model.
        differing_fields: dotted paths of the identity document that differ from it.
    """

    reason: MissReason
    evicted_ago: str | None = None
    other_namespace: str | None = None
    differing_fields: list[str] = field(default_factory=list)


def explain(catalog: Catalog, candidate: Candidate, passed: Passed) -> Miss:
    """The most telling reason for a miss."""
    if not passed.looked_up:
        return Miss(MissReason.LOOKUP_DISABLED)
    if passed.unaccepted:
        return Miss(MissReason.KIND_NOT_ACCEPTED)
    if passed.quarantined:
        return Miss(MissReason.QUARANTINED)
    if passed.namespace is None:
        return Miss(MissReason.NEVER_SEEN)
    ago = _evicted_ago(catalog, candidate, passed.namespace)
    if ago is not None:
        return Miss(MissReason.EVICTED_RECENTLY, evicted_ago=ago)
    return _other_identity(catalog, candidate, passed.namespace) or Miss(MissReason.NEVER_SEEN)


def _evicted_ago(catalog: Catalog, candidate: Candidate, namespace: NamespaceRow) -> str | None:
    lengths = catalog.tombstone_lengths(namespace.id, candidate.token_count, _TOMBSTONE_LENGTHS)
    if not lengths:
        return None
    lengths.sort()
    digests = prefix_digests(candidate.namespace, candidate.tokens, lengths)
    prefixes = list(zip(lengths, digests, strict=True))[::-1]
    tombstone = catalog.tombstone(namespace.id, prefixes)
    if tombstone is None:
        return None
    seconds = (wall_ms() - tombstone.evicted_at_ms) / 1000
    for bound, word in zip((60, 300, 3600), EVICTED_AGO, strict=False):
        if seconds < bound:
            return word
    return EVICTED_AGO[-1]


def _other_identity(catalog: Catalog, candidate: Candidate, namespace: NamespaceRow) -> Miss | None:
    if namespace.model is None or namespace.identity is None:
        return None
    for other in catalog.namespaces_of_model(namespace.model, namespace.name, _OTHER_NAMESPACES):
        _, states = catalog.on_path(other.name, candidate.tokens)
        if states and other.identity is not None and candidate.sees(other.name):
            return Miss(
                MissReason.IDENTITY_MISMATCH,
                other_namespace=other.name,
                differing_fields=differing_fields(
                    document(namespace.identity), document(other.identity)
                ),
            )
    return None
