"""Reading the metadata: every question the engine asks, answered in frozen rows.

Nothing here writes and nothing here waits for a lock: WAL readers do not block. Calls that the event
loop makes directly say so; they are single statements of well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select

from storage.clock import boot_ms
from storage.metadata import (
    counters,
    leases,
    namespaces,
    radix,
    recordings,
    settings,
    states,
    tombstones,
    totals,
)
from storage.metadata.database import Database
from storage.metadata.schema import block, quarantine, state
from storage.metadata.schema import namespace as namespace_table
from storage.rows import (
    ComponentRow,
    Evidence,
    LeaseRow,
    NamespaceRow,
    OwnedBlock,
    RecordingRow,
    StateRow,
    TombstoneRow,
    Usage,
)


class Catalog:
    """The read side of one `Database`. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def namespace(self, name: str) -> NamespaceRow | None:
        """The namespace of that name. Fit for the event loop."""
        with self._db.read() as connection:
            return namespaces.find(connection, name)

    def on_path(self, name: str, tokens: bytes) -> tuple[NamespaceRow | None, list[StateRow]]:
        """The namespace and its states on the path of `tokens`, longest first, unproven.

        Fit for the event loop: two statements.
        """
        with self._db.read() as connection:
            row = namespaces.find(connection, name)
            if row is None:
                return None, []
            return row, states.on_path(connection, row.id, tokens)

    def state(self, state_id: str) -> StateRow | None:
        """The state of that name, in any status. Fit for the event loop."""
        with self._db.read() as connection:
            return states.by_state_id(connection, state_id)

    def namespace_by_id(self, namespace_id: int) -> NamespaceRow:
        """The namespace a state row refers to. Fit for the event loop."""
        with self._db.read() as connection:
            return namespaces.by_id(connection, namespace_id)

    def contents(self, row: int) -> tuple[tuple[ComponentRow, ...], list[OwnedBlock]]:
        """Components and blocks of a state, of one moment. One row per block: for a thread."""
        with self._db.snapshot() as connection:
            return states.components(connection, row), states.blocks(connection, row)

    def components(self, row: int) -> tuple[ComponentRow, ...]:
        """Components of a state in wire order. Fit for the event loop."""
        with self._db.read() as connection:
            return states.components(connection, row)

    def recording(self, state_id: str) -> RecordingRow | None:
        """The recording of that name while it is under way."""
        with self._db.snapshot() as connection:
            return recordings.find(connection, state_id)

    def lease(self, lease_id: str) -> LeaseRow | None:
        """The lease of that id."""
        with self._db.read() as connection:
            return leases.find(connection, lease_id)

    def leases_held(self) -> int:
        """Leases held now."""
        with self._db.read() as connection:
            return leases.count_held(connection, boot_ms())

    def evidence(self, row: int) -> Evidence | None:
        """Why a quarantined state is quarantined."""
        columns = quarantine.c
        with self._db.read() as connection:
            found = connection.execute(
                select(
                    columns.failure_class,
                    columns.reason,
                    columns.reported_by,
                    columns.component,
                    columns.seq,
                    columns.expected_digest,
                    columns.actual_digest,
                    columns.lease_id,
                    columns.at_ms,
                ).where(columns.state == row)
            ).first()
        return None if found is None else Evidence(*found)

    def tombstone_lengths(self, namespace_id: int, most_tokens: int, limit: int) -> list[int]:
        """Token counts at which something of this namespace went lately, longest first."""
        with self._db.read() as connection:
            return tombstones.lengths(connection, namespace_id, most_tokens, limit)

    def tombstone(
        self, namespace_id: int, prefixes: Sequence[tuple[int, bytes]]
    ) -> TombstoneRow | None:
        """The first of these (token count, token digest) that has a tombstone."""
        with self._db.read() as connection:
            for token_count, token_digest in prefixes:
                found = tombstones.find(connection, namespace_id, token_count, token_digest)
                if found is not None:
                    return found
        return None

    def namespaces_of_model(self, model: str, besides: str, limit: int) -> list[NamespaceRow]:
        """Other namespaces registered for the same model that hold something."""
        with self._db.read() as connection:
            return namespaces.of_model(connection, model, besides, limit)

    def namespaces(self, after: str | None, limit: int) -> list[NamespaceRow]:
        """Namespaces by name, those behind `after`."""
        with self._db.read() as connection:
            return namespaces.page(connection, after, limit)

    def states(
        self,
        *,
        limit: int,
        after: str | None = None,
        namespace_id: int | None = None,
        status: str | None = None,
        kind: str | None = None,
    ) -> list[tuple[StateRow, str]]:
        """States with their namespace's name, in order of recording."""
        with self._db.read() as connection:
            return states.page(
                connection,
                limit=limit,
                after=after,
                namespace_id=namespace_id,
                status=status,
                kind=kind,
            )

    def least_recent(
        self, namespace_id: int | None, limit: int, status: str = "live"
    ) -> list[StateRow]:
        """Unleased states of a status, least recently used first."""
        with self._db.read() as connection:
            return states.least_recent(connection, namespace_id, status, limit, boot_ms())

    def tree(self, name: str, limit: int) -> list[radix.NodeRow]:
        """Nodes of a namespace's tree, depth first."""
        with self._db.snapshot() as connection:
            row = namespaces.find(connection, name)
            return [] if row is None else radix.listing(connection, row.id, limit)

    def usage(self) -> Usage:
        """What the store holds and has promised."""
        with self._db.snapshot() as connection:
            return totals.usage(connection)

    def commit_counter(self) -> int:
        """Number of the last counted commit."""
        with self._db.read() as connection:
            return totals.commit_counter(connection)

    def counts(self) -> dict[str, int]:
        """Totals that need a scan: for stats, in a thread."""
        with self._db.snapshot() as connection:
            by_status: dict[str, int] = {
                str(status): int(count)
                for status, count in connection.execute(
                    select(state.c.status, func.count()).group_by(state.c.status)
                )
            }
            blocks, raw, stored = connection.execute(
                select(
                    func.count(),
                    func.coalesce(func.sum(block.c.raw_bytes), 0),
                    func.coalesce(func.sum(block.c.stored_bytes), 0),
                ).where(block.c.refs > 0)
            ).one()
            spaces, logical = connection.execute(
                select(func.count(), func.coalesce(func.sum(namespace_table.c.logical_bytes), 0))
            ).one()
        return {
            "live": by_status.get("live", 0),
            "recording": by_status.get("recording", 0),
            "quarantined": by_status.get("quarantined", 0),
            "blocks": blocks,
            "block_raw_bytes": raw,
            "block_stored_bytes": stored,
            "namespaces": spaces,
            "logical_bytes": logical,
        }

    def counters(self) -> dict[tuple[str, str], int]:
        """Counters of all workers since the store was made."""
        with self._db.read() as connection:
            return counters.read(connection)

    def setting(self, key: str) -> str | None:
        """A setting changed at run time. Fit for the event loop."""
        with self._db.read() as connection:
            return settings.read(connection, key)
