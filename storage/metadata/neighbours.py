"""One node of the tree with the nodes right below it, for people who walk the tree step by step.

Every answer is bounded whatever the tree's shape: a page of children, the first states of each node,
and counts that stop at `COUNTED`. Edges are never read, only their lengths: token ids do not leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, case, func, literal, select

from storage.metadata.schema import radix_node as t
from storage.metadata.schema import state
from storage.metadata.statements import HotStatement

COUNTED: Final = 1000
STATES_SHOWN: Final = 16
_TOKEN_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class StateAt:
    """A state that ends at a node."""

    state_id: str
    kind: str
    status: str
    logical_bytes: int


@dataclass(frozen=True, slots=True)
class WalkedNode:
    """A node; `children` and `state_count` stop counting at `COUNTED`, `states` at `STATES_SHOWN`."""

    node_id: int
    parent_id: int | None
    depth: int
    edge_tokens: int
    children: int
    state_count: int
    states: tuple[StateAt, ...]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A node and a page of its children by first token; `more`: others lie behind them."""

    node: WalkedNode
    children: tuple[WalkedNode, ...]
    more: bool


_COLUMNS = (t.c.id, t.c.parent_id, t.c.depth, func.length(t.c.edge))
_ROOT = HotStatement(
    select(*_COLUMNS).where(t.c.namespace_id == bindparam("namespace_id"), t.c.parent_id.is_(None))
)
_NODE = HotStatement(
    select(*_COLUMNS).where(
        t.c.namespace_id == bindparam("namespace_id"), t.c.id == bindparam("node")
    )
)
_FIRST_TOKEN = HotStatement(
    select(t.c.first_token).where(t.c.id == bindparam("node"), t.c.parent_id == bindparam("parent"))
)
_BEHIND = HotStatement(
    select(*_COLUMNS)
    .where(t.c.parent_id == bindparam("parent"), t.c.first_token > bindparam("behind"))
    .order_by(t.c.first_token)
    .limit(bindparam("most"))
)
_CHILD_COUNT = HotStatement(
    select(func.count()).select_from(
        select(literal(1).label("one"))
        .where(t.c.parent_id == bindparam("node"))
        .limit(COUNTED)
        .subquery()
    )
)
_STATE_COUNT = HotStatement(
    select(func.count()).select_from(
        select(literal(1).label("one"))
        .where(state.c.node_id == bindparam("node"))
        .limit(COUNTED)
        .subquery()
    )
)
# What serves comes first; of the others the newest.
_STATES = HotStatement(
    select(state.c.state_id, state.c.kind, state.c.status, state.c.logical_bytes)
    .where(state.c.node_id == bindparam("node"))
    .order_by(case((state.c.status == "live", 0), else_=1), state.c.id.desc())
    .limit(STATES_SHOWN)
)


def around(
    connection: Connection, namespace_id: int, node_id: int | None, after: int | None, limit: int
) -> Neighbours | None:
    """A node (None: the root) and its children behind the child `after`, at most `limit`.

    None where the namespace has no such node; a child `after` that has gone begins at the first.
    """
    if node_id is None:
        found = _ROOT.first(connection, namespace_id=namespace_id)
    else:
        found = _NODE.first(connection, namespace_id=namespace_id, node=node_id)
    if found is None:
        return None
    # Nothing is smaller than an empty blob, and no child begins with one.
    behind = b""
    if after is not None:
        behind = _FIRST_TOKEN.scalar(connection, node=after, parent=found[0]) or b""
    rows = _BEHIND.all(connection, parent=found[0], behind=behind, most=limit + 1)
    return Neighbours(
        _walked(connection, found),
        tuple(_walked(connection, row) for row in rows[:limit]),
        len(rows) > limit,
    )


def _walked(connection: Connection, row: tuple[int, int | None, int, int]) -> WalkedNode:
    node_id, parent_id, depth, edge_bytes = row
    return WalkedNode(
        node_id,
        parent_id,
        depth,
        edge_bytes // _TOKEN_BYTES,
        _CHILD_COUNT.scalar(connection, node=node_id),
        _STATE_COUNT.scalar(connection, node=node_id),
        tuple(StateAt(*found) for found in _STATES.all(connection, node=node_id)),
    )
