"""What really lies in a data folder, read from its files by plain statements.

`look` uses no code of the service: one moment of the database, and the block store just after it, its values
decoded by the second implementation of the stored form. Blocks without an owner may be on their way out
meanwhile; everything else must fit together. `findings` ask the service's own integrity check.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from struct import unpack
from typing import Any

import lmdb
from pysqlite3 import dbapi2

from storage.clock import boot_ms
from storage.integrity import check, check_metadata
from storage.metadata.database import Database
from tests.model.payloads import Tokens
from tests.model.spec import Place
from tests.support import native

_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Row:
    """A state as its rows have it."""

    place: Place
    kind: str
    status: str
    token_count: int
    attached: bool


@dataclass(frozen=True)
class LeaseRow:
    """A lease as its row has it. `open`: neither ended nor run out."""

    state_id: str
    outcome: str | None
    open: bool


@dataclass(frozen=True)
class Inside:
    """One moment of a folder.

    Attributes:
        arrived: components that are whole, by state.
        sending: components that somebody sends at this moment.
        refs: owners as the block's row counts them; `owners`: as they are.
        values: what the block store has under each key, decoded; None where that is damaged.
        nodes: prefixes that the trees have a node for.
    """

    states: dict[str, Row]
    arrived: dict[str, set[str]]
    sending: int
    leases: dict[str, LeaseRow]
    refs: dict[bytes, int]
    owners: Counter[bytes]
    values: dict[bytes, bytes | None]
    nodes: dict[Place, set[Tokens]]
    stored_bytes: int


def place_of(held: str) -> Place:
    """Tenant and namespace of a held name."""
    tenant, separator, name = held.partition("\x1f")
    return (tenant, name) if separator else ("", held)


class Folder:
    """A data folder that is looked into again and again, also beside a server."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._connection = dbapi2.connect(
            f"file:{data / 'metadata.db'}?mode=ro", uri=True, timeout=20, isolation_level=None
        )
        self._database = Database(data / "metadata.db")
        self._environments: list[lmdb.Environment] = []
        # Stored values that were decoded before, by their digest: decoding is slow here.
        self._proven: dict[bytes, bytes] = {}

    def close(self) -> None:
        self._release()
        self._connection.close()
        self._database.close()

    def look(self) -> Inside:
        """One moment."""
        self._connection.execute("BEGIN")
        try:
            return self._look()
        finally:
            self._connection.execute("ROLLBACK")

    def owned_bytes(self) -> int:
        """Stored bytes of blocks that have an owner, and the overhead of all states."""
        ((blocks, overhead),) = self._connection.execute(
            "SELECT (SELECT coalesce(sum(stored_bytes), 0) FROM block WHERE refs > 0), "
            "(SELECT coalesce(sum(overhead_bytes), 0) FROM state)"
        )
        return int(blocks) + int(overhead)

    def findings(self) -> list[str]:
        """What the service's own check finds in the metadata."""
        return check_metadata(self._database)

    def all_findings(self, *, allow_unowned: bool) -> list[str]:
        """What the service's own check finds in both stores."""
        self._release()  # LMDB takes no second environment of a folder in one process
        return sorted(check(self._data, allow_unowned=allow_unowned))

    def _look(self) -> Inside:
        def rows(statement: str) -> list[tuple[Any, ...]]:
            return list(self._connection.execute(statement))

        names = {id_: place_of(name) for id_, name in rows("SELECT id, name FROM namespace")}
        states, ids = {}, {}
        for id_, state_id, namespace, kind, status, token_count, node in rows(
            "SELECT id, state_id, namespace_id, kind, status, token_count, node_id FROM state"
        ):
            ids[id_] = state_id
            states[state_id] = Row(
                names[namespace], kind, status, int(token_count), node is not None
            )
        arrived: dict[str, set[str]] = {state_id: set() for state_id in states}
        sending = 0
        for state, name, whole, upload in rows(
            "SELECT state, name, digest IS NOT NULL, upload IS NOT NULL FROM component"
        ):
            if whole:
                arrived[ids[state]].add(name)
            sending += upload
        now = boot_ms()
        leases = {
            lease_id: LeaseRow(state_id, outcome, outcome is None and expires > now)
            for lease_id, state_id, outcome, expires in rows(
                "SELECT lease_id, state_id, outcome, expires_boot_ms FROM lease"
            )
        }
        refs = dict(rows("SELECT digest, refs FROM block"))
        owners = Counter(
            digest
            for (digest,) in rows(
                "SELECT block.digest FROM state_block JOIN block ON block.id = state_block.block"
            )
        )
        nodes = _nodes(
            {
                id_: (names[namespace], parent, edge)
                for id_, namespace, parent, edge in rows(
                    "SELECT id, namespace_id, parent_id, edge FROM radix_node"
                )
            }
        )
        ((stored_bytes,),) = rows("SELECT stored_bytes FROM store")
        return Inside(
            states, arrived, sending, leases, refs, owners, self._values(), nodes, stored_bytes
        )

    def _values(self) -> dict[bytes, bytes | None]:
        if not self._environments:
            self._environments = [
                lmdb.open(str(self._data / "blocks" / name), readonly=True, map_size=1 << 40)
                for name in ("large", "small")
            ]
        found: dict[bytes, bytes | None] = {}
        for environment in self._environments:
            with environment.begin() as txn:
                for key, value in txn.cursor():
                    if len(key) == _DIGEST_BYTES:
                        found[key] = self._raw(key, value)
        return found

    def _raw(self, key: bytes, value: bytes) -> bytes | None:
        seal = key + native.digest(value)
        if seal not in self._proven:
            try:
                raw = native.decode(value)
            except Exception:  # whatever its decoder says of a damaged value
                return None
            if native.digest(raw) != key:
                return None
            self._proven[seal] = raw
        return self._proven[seal]

    def _release(self) -> None:
        for environment in self._environments:
            environment.close()
        self._environments.clear()


def _nodes(rows: dict[int, tuple[Place, int | None, bytes]]) -> dict[Place, set[Tokens]]:
    found: dict[Place, set[Tokens]] = {}
    for place, parent, edge in rows.values():
        tokens = edge
        while parent is not None:
            _, parent, above = rows[parent]
            tokens = above + tokens
        found.setdefault(place, set()).add(unpack(f"<{len(tokens) // 4}i", tokens))
    return found
