"""What rescued rows say: states with their tokens, components and blocks. Nothing of it is proven yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pysqlite3 import dbapi2

from storage.rows import ComponentRow, OwnedBlock, StateRow


@dataclass(frozen=True, slots=True)
class Rescued:
    """A state as its rows have it; `problem` says what is missing of them, where something is."""

    state: StateRow
    namespace: str
    tokens: bytes
    components: tuple[ComponentRow, ...]
    blocks: tuple[OwnedBlock, ...]
    problem: str = ""


class RescuedRows:
    """Rows in the plain tables that `storage/salvage/tables.py` makes. Memory: the trees' nodes."""

    def __init__(self, path: Path) -> None:
        self._connection = dbapi2.connect(str(path), isolation_level=None)
        for table, column in (("component", "state"), ("state_block", "state"), ("block", "id")):
            self._connection.execute(f'CREATE INDEX "of_{table}" ON "{table}" ("{column}")')
        self.namespaces: dict[Any, tuple[Any, ...]] = {
            row[0]: row[1:]
            for row in self._connection.execute(
                "SELECT id, name, identity, identity_digest FROM namespace"
            )
        }
        self._nodes: dict[Any, tuple[Any, Any]] = {
            row[0]: row[1:]
            for row in self._connection.execute("SELECT id, parent_id, edge FROM radix_node")
        }

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def counts(self) -> dict[str, int]:
        """States by status, as far as their rows were read."""
        found: defaultdict[str, int] = defaultdict(int)
        with closing(self._connection.execute("SELECT status FROM state")) as rows:
            for (status,) in rows:
                found[str(status)] += 1
        return found

    def live(self) -> Iterator[Rescued]:
        """Live states that lookups found, those used longest ago first."""
        names = ", ".join(StateRow.__slots__)
        statement = (
            f"SELECT {names} FROM state WHERE status = 'live' AND node_id IS NOT NULL "
            "ORDER BY touched_at_ms, id"
        )
        for row in self._connection.execute(statement).fetchall():
            yield self._whole(StateRow(*row))

    def _whole(self, state: StateRow) -> Rescued:
        components = tuple(
            ComponentRow(*row)
            for row in self._connection.execute(
                "SELECT ordinal, name, raw_bytes, digest, upload, geometry, coalesce(row_bytes, 0), "
                "coalesce(new_raw_bytes, 0), coalesce(by_blocks, 0) FROM component WHERE state = ? "
                "ORDER BY ordinal",
                (state.id,),
            )
        )
        blocks = tuple(
            OwnedBlock(*row)
            for row in self._connection.execute(
                "SELECT o.ordinal, o.seq, b.digest, b.raw_bytes, b.stored_bytes FROM state_block o "
                "JOIN block b ON b.id = o.block WHERE o.state = ? ORDER BY o.ordinal, o.seq",
                (state.id,),
            )
        )
        namespace = self.namespaces.get(state.namespace_id, (None,))[0]
        tokens = self._tokens(state.node_id)
        problem = ""
        if not isinstance(namespace, str):
            problem = "the name of its namespace cannot be read"
        elif tokens is None:
            problem = "its tokens cannot be read"
        elif not components:
            problem = "its components cannot be read"
        return Rescued(state, str(namespace), tokens or b"", components, blocks, problem)

    def _tokens(self, node: Any) -> bytes | None:
        edges: list[bytes] = []
        seen = set()
        while node is not None:
            if node in seen or node not in self._nodes:
                return None
            seen.add(node)
            node, edge = self._nodes[node]
            if not isinstance(edge, bytes):
                return None
            edges.append(edge)
        return b"".join(reversed(edges))
