"""The radix tree of a namespace, a node at a time."""

from __future__ import annotations

from pydantic import Field

from app.api.schemas.common import EXAMPLE_ID, Kind, Model, Status


class NodeState(Model):
    """A state whose prefix ends at the node."""

    state_id: str = Field(examples=[EXAMPLE_ID])
    kind: Kind
    status: Status
    logical_bytes: int


class NodeInfo(Model):
    """A node: a prefix that states end at, or where prefixes part."""

    node_id: int
    parent_id: int | None = Field(description="Null: the root.")
    depth: int = Field(description="Tokens from the root to here.")
    edge_tokens: int = Field(description="Tokens from the parent to here.")
    states: list[NodeState] = Field(description="The live ones first; at most 16.")
    state_count: int = Field(description="States that end here; counted up to 1000.")
    children: int = Field(description="Nodes right below; counted up to 1000.")


class NodeStep(Model):
    """A node and a page of its children."""

    node: NodeInfo | None = Field(
        description="Null where nothing has been recorded into the namespace."
    )
    children: list[NodeInfo] = Field(description="In order of their first token.")
    more: bool = Field(description="Others lie behind them: give the last one's id as `after`.")
