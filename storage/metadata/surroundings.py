"""Everything around the way of one query through its namespace's tree, for an explanation.

Nothing here is proven: the tree is unchecked storage (`radix`), and whoever explains must say so
where a proof fails. Bounded whatever the tree holds; what is left out at a bound is the farthest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sqlalchemy import Connection

from storage.metadata import radix, recordings, states, tombstones
from storage.metadata.radix import Continuation, Reach
from storage.rows import NamespaceRow, StateRow

# As many nodes as a lookup with `allow_truncated` looks at.
_MOST_BEYOND: Final = 64
_MOST_BEYOND_BYTES: Final = 32 << 20
_MOST_RECORDINGS: Final = 256
_MOST_LENGTHS: Final = 256

# The query ends on the way; nothing was recorded; nothing goes on; what goes on does so otherwise.
Parting: TypeAlias = Literal["query_ends", "tree_is_empty", "tree_ends", "tokens_differ"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One moment of a namespace around a query.

    Attributes:
        common_tokens: tokens of the query that the tree has.
        on_path: states that the walk passes, longest first.
        beyond: where the tree goes on from there, each with its states; none without common tokens.
        recording: recordings of the namespace that are not longer than the query, of any prefix.
        gone_lengths: token counts at which something of the namespace went lately, longest first.
    """

    namespace: NamespaceRow
    common_tokens: int
    parting: Parting
    on_path: list[StateRow]
    beyond: list[tuple[Continuation, list[StateRow]]]
    recording: list[StateRow]
    gone_lengths: list[int]


def around(connection: Connection, namespace: NamespaceRow, tokens: bytes) -> Surroundings:
    """The surroundings of `tokens` (int32 little-endian), in a snapshot of the caller's."""
    token_count = len(tokens) // 4
    reach = radix.reach(connection, namespace.id, tokens)
    return Surroundings(
        namespace=namespace,
        common_tokens=reach.common_tokens,
        parting=_parting(connection, reach, token_count),
        on_path=states.on_path(connection, namespace.id, tokens),
        beyond=[
            (continuation, states.at_node(connection, continuation.node_id))
            for continuation in radix.going_on(
                connection, reach, _MOST_BEYOND if reach.common_tokens else 0, _MOST_BEYOND_BYTES
            )
        ],
        recording=recordings.under_way(connection, namespace.id, token_count, _MOST_RECORDINGS),
        gone_lengths=tombstones.lengths(connection, namespace.id, token_count, _MOST_LENGTHS),
    )


def _parting(connection: Connection, reach: Reach, token_count: int) -> Parting:
    if reach.common_tokens == token_count:
        return "query_ends"
    if reach.node_id is None:
        return "tree_is_empty"
    if reach.common_tokens < radix.depth_of(connection, reach.node_id):
        return "tokens_differ"
    if radix.has_children(connection, reach.node_id):
        return "tokens_differ"
    return "tree_ends" if reach.common_tokens else "tree_is_empty"
