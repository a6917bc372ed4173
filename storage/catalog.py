"""Reading the metadata: every question the engine asks, answered in frozen rows.

Nothing here writes and nothing here waits for a lock: WAL readers do not block. Calls that the event
loop makes directly say so; they are single statements of well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import func, select

from storage.clock import boot_ms, wall_ms
from storage.metadata import (
    audit,
    counters,
    evidence,
    history,
    jobs,
    leases,
    listing,
    namespaces,
    neighbours,
    ownership,
    pins,
    radix,
    recordings,
    settings,
    states,
    surroundings,
    tenants,
    tokens,
    tombstones,
    totals,
    victims,
    vitals,
)
from storage.metadata.database import Database
from storage.metadata.schema import block, state
from storage.metadata.schema import namespace as namespace_table
from storage.metadata.scope import Scope
from storage.rows import (
    AuditRow,
    Candidate,
    ComponentRow,
    Evidence,
    JobRow,
    LeaseRow,
    NamespaceCounts,
    NamespaceRow,
    OwnedBlock,
    OwnedRow,
    Pin,
    PinRow,
    RecordingRow,
    ScrubRow,
    StateRow,
    TenantLimits,
    TenantUsage,
    TokenRow,
    TombstoneRow,
    Usage,
    Vitals,
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

    def beyond(
        self, name: str, tokens: bytes, kind: str, *, under: int | None = None, limit: int = 64
    ) -> tuple[int, list[tuple[StateRow, bytes]]]:
        """Live states of a kind that share most of `tokens`, and how many of them: 0 without any.

        Each comes with all its tokens as the tree has them, unproven. Nodes behind the place where
        the tree and `tokens` part are looked at first, then those behind the places before it, up
        to `limit` in all. For a thread.

        Args:
            under: only such as share fewer tokens than this.
        """
        with self._db.snapshot() as connection:
            row = namespaces.find(connection, name)
            if row is None:
                return 0, []
            left = limit
            whole = radix.reach(connection, row.id, tokens)
            for reach, besides in radix.back(connection, whole):
                if under is not None and reach.common_tokens >= under:
                    continue
                assert reach.node_id is not None
                nodes = list(radix.below(connection, reach.node_id, left, besides))
                found = [
                    (state_row, radix.tokens_of(connection, node))
                    # Only of nodes that have a state; the tokens cost a query for each edge.
                    for node in nodes
                    for state_row in states.live_at(connection, node, kind)
                    if state_row.token_count > reach.common_tokens
                ]
                if found:
                    return reach.common_tokens, found
                left -= len(nodes)
                if left <= 0:
                    break
            return 0, []

    def around(
        self, name: str, tokens: bytes
    ) -> tuple[surroundings.Surroundings, dict[int, Evidence]] | None:
        """What lies around the way of `tokens`, with the evidence of its quarantined states by row.

        None without such a namespace. For a thread.
        """
        with self._db.snapshot() as connection:
            row = namespaces.find(connection, name)
            if row is None:
                return None
            found = surroundings.around(connection, row, tokens)
            seen = [*found.on_path, *(state_row for _, rows in found.beyond for state_row in rows)]
            reasons = {
                state_row.id: why
                for state_row in seen
                if state_row.status == "quarantined"
                and (why := self.evidence(state_row.id)) is not None
            }
            return found, reasons

    def common_tokens(self, namespace_id: int, tokens: bytes) -> int:
        """How many of `tokens` a namespace's tree has. For a thread."""
        with self._db.snapshot() as connection:
            return radix.reach(connection, namespace_id, tokens).common_tokens

    def state(self, state_id: str) -> StateRow | None:
        """The state of that name, in any status. Fit for the event loop."""
        with self._db.read() as connection:
            return states.by_state_id(connection, state_id)

    def namespace_by_id(self, namespace_id: int) -> NamespaceRow:
        """The namespace a state row refers to. Fit for the event loop."""
        with self._db.read() as connection:
            return namespaces.by_id(connection, namespace_id)

    def with_tenant(self, namespace_id: int) -> tuple[NamespaceRow, TenantLimits]:
        """The namespace a state row refers to, and what its tenant may hold."""
        with self._db.read() as connection:
            row = namespaces.by_id(connection, namespace_id)
            return row, tenants.limits(connection, row.tenant)

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
        with self._db.read() as connection:
            return evidence.of_state(connection, row)

    def quarantined(
        self,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        sees: Callable[[str], bool] | None = None,
        failure_class: str | None = None,
    ) -> list[tuple[StateRow, str, tuple[ComponentRow, ...], Evidence, Pin | None]]:
        """Quarantined states with their namespace's held name, components, evidence and pin, found last
        first.

        Args:
            after: (`at_ms` of the evidence, state id) of the last one before.
            sees: tells by its held name whether a namespace counts; None: all do.

        Cost: with `sees` a look at every namespace. For a thread.
        """
        with self._db.snapshot() as connection:
            wanted = None if sees is None else namespaces.rows_where(connection, sees)
            found = evidence.page(
                connection,
                limit=limit,
                after=after,
                namespaces=wanted,
                failure_class=failure_class,
            )
            now_ms = wall_ms()
            return [
                (
                    row,
                    name,
                    states.components(connection, row.id),
                    why,
                    listing.pin_of(connection, row.id, now_ms),
                )
                for row, name, why in found
            ]

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

    def tombstones(
        self, namespace_id: int, prefixes: Sequence[tuple[int, bytes]], limit: int
    ) -> list[TombstoneRow]:
        """Tombstones of these (token count, token digest), at most `limit` for each, newest first."""
        with self._db.read() as connection:
            return [
                found
                for token_count, token_digest in prefixes
                for found in tombstones.of_prefix(
                    connection, namespace_id, token_count, token_digest, limit
                )
            ]

    def namespaces_of_model(self, model: str, besides: str, limit: int) -> list[NamespaceRow]:
        """Other namespaces registered for the same model that hold something."""
        with self._db.read() as connection:
            return namespaces.of_model(connection, model, besides, limit)

    def namespaces(
        self,
        after: str | None,
        limit: int,
        tenant: str | None = None,
        model: str | None = None,
    ) -> list[NamespaceRow]:
        """Namespaces of a tenant and a model (None: of all) by name, those behind `after`."""
        with self._db.read() as connection:
            return namespaces.page(connection, after, limit, tenant, model)

    def namespace_names(self, tenant: str) -> list[tuple[int, str]]:
        """(row, held name) of a tenant's namespaces. For a thread."""
        with self._db.read() as connection:
            return namespaces.names(connection, tenant)

    def namespace_counts(self, rows: Sequence[int]) -> dict[int, NamespaceCounts]:
        """States of namespaces that are recorded, quarantined and pinned. For a thread."""
        with self._db.snapshot() as connection:
            return listing.namespace_counts(connection, rows, wall_ms())

    def listed_states(
        self,
        wanted: listing.Filter,
        order: listing.Order,
        after: listing.Position | None,
        limit: int,
    ) -> listing.StatePage:
        """A page of the wanted states. For a thread."""
        with self._db.snapshot() as connection:
            return listing.page(connection, wanted, order, after, limit, wall_ms())

    def pin(self, row: int) -> Pin | None:
        """The pin of a state, unless it has run out. Fit for the event loop."""
        with self._db.read() as connection:
            return listing.pin_of(connection, row, wall_ms())

    def namespace_of_state(self, state_id: str) -> str | None:
        """The held name of the namespace of a state of any status. Fit for the event loop."""
        with self._db.read() as connection:
            return namespaces.name_of_state(connection, state_id)

    def namespace_of_lease(self, lease_id: str) -> str | None:
        """The held name of the namespace that a lease is in. Fit for the event loop."""
        with self._db.read() as connection:
            return namespaces.name_of_lease(connection, lease_id)

    def token(self, token_id: str) -> TokenRow | None:
        """The access token of that id, good or not. Fit for the event loop."""
        with self._db.read() as connection:
            return tokens.find(connection, token_id)

    def any_token(self) -> bool:
        """Whether a token was ever made. Fit for the event loop."""
        with self._db.read() as connection:
            return tokens.any_made(connection)

    def tokens(self, after: str | None, limit: int) -> list[TokenRow]:
        """Access tokens in order of making."""
        with self._db.read() as connection:
            return tokens.page(connection, after, limit)

    def tenants(self) -> list[str]:
        """Every tenant that has limits or a namespace."""
        with self._db.read() as connection:
            return tenants.names(connection)

    def tenant(self, name: str) -> tuple[TenantLimits, TenantUsage]:
        """What a tenant may hold and holds."""
        with self._db.snapshot() as connection:
            return tenants.limits(connection, name), tenants.usage(connection, name)

    def tenant_limits(self, name: str) -> TenantLimits:
        """What a tenant may hold. Fit for the event loop."""
        with self._db.read() as connection:
            return tenants.limits(connection, name)

    def audit(self, before: int | None, limit: int, action: str | None) -> list[AuditRow]:
        """The audit log, newest first."""
        with self._db.read() as connection:
            return audit.page(connection, before, limit, action)

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
        self,
        scope: Scope,
        limit: int,
        status: str = "live",
        after: victims.Place | None = None,
    ) -> list[StateRow]:
        """States of a status that nobody leases or has pinned, least recently used first."""
        with self._db.read() as connection:
            return victims.least_recent(
                connection, scope, status, limit, boot_ms(), wall_ms(), after
            )

    def newest_touch_ms(self) -> int:
        """When a state in service was last used, as far as is known; 0 without any. Fit for the event
        loop.
        """
        with self._db.read() as connection:
            return victims.newest_touch_ms(connection)

    def candidates(
        self,
        scope: Scope,
        limit: int,
        status: str,
        *,
        after: victims.Place | None,
        created_to_ms: int,
        touched_to_ms: int | None,
    ) -> list[Candidate]:
        """States of a status behind a place, least recently used first, leased and pinned ones too.

        Args:
            created_to_ms: made at this moment of the wall clock or before.
            touched_to_ms: last used at this moment or before; None: whenever.
        """
        with self._db.read() as connection:
            return victims.candidates(
                connection,
                scope,
                status,
                limit,
                boot_ms(),
                wall_ms(),
                after=after,
                created_to_ms=created_to_ms,
                touched_to_ms=touched_to_ms,
            )

    def candidate(self, state_id: str) -> Candidate | None:
        """The state of that name, in any status, and whether it is leased or pinned."""
        with self._db.read() as connection:
            return victims.standing(connection, state_id, boot_ms(), wall_ms())

    def owned_rows(self, row: int) -> list[OwnedRow]:
        """Distinct blocks of a state with their owners' number. A row each: for a thread."""
        with self._db.read() as connection:
            return victims.owned(connection, row)

    def owned_bytes(self, row: int) -> int:
        """Stored bytes of a state's blocks, each once. A row each: for a thread."""
        with self._db.read() as connection:
            return victims.owned_bytes(connection, row)

    def owners_within(self, block_row: int, namespace_id: int) -> int:
        """How many of a block's owners a namespace has. For a thread."""
        with self._db.read() as connection:
            return victims.owners_within(connection, block_row, namespace_id)

    def stored_bytes_of(self, namespace_ids: Sequence[int]) -> int:
        """Stored bytes of these namespaces together, as each counts them."""
        with self._db.read() as connection:
            return namespaces.stored_bytes_of(connection, namespace_ids)

    def pins(self, after: str | None, limit: int, tenant: str | None) -> list[PinRow]:
        """Pins of a tenant's states (None: of all) in order of their ids, those behind `after`."""
        with self._db.read() as connection:
            return pins.page(connection, after, limit, tenant, wall_ms())

    def pinned_bytes(self) -> dict[str, int]:
        """Logical bytes of pinned states by the held name of their namespace. For a thread."""
        with self._db.read() as connection:
            return dict(pins.by_namespace(connection, wall_ms()))

    def shown(self, tenant: str, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these blocks the tenant has brought. A point read each: for a thread."""
        with self._db.read() as connection:
            return set(ownership.shown(connection, tenant, digests))

    def several_tenants(self) -> bool:
        """Whether anything belongs to another tenant than the default one. Fit for the event loop."""
        with self._db.read() as connection:
            return namespaces.several_tenants(connection)

    def tree(self, name: str, limit: int) -> list[radix.NodeRow]:
        """Nodes of a namespace's tree, depth first."""
        with self._db.snapshot() as connection:
            row = namespaces.find(connection, name)
            return [] if row is None else radix.listing(connection, row.id, limit)

    def neighbours(
        self, namespace_id: int, node_id: int | None, after: int | None, limit: int
    ) -> neighbours.Neighbours | None:
        """A node of a namespace's tree (None: the root) and children of it. For a thread."""
        with self._db.snapshot() as connection:
            return neighbours.around(connection, namespace_id, node_id, after, limit)

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
            spaces, logical, new_raw, new_rows = connection.execute(
                select(
                    func.count(),
                    *(
                        func.coalesce(func.sum(column), 0)
                        for column in (
                            namespace_table.c.logical_bytes,
                            namespace_table.c.new_raw_bytes,
                            namespace_table.c.new_row_bytes,
                        )
                    ),
                )
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
            "new_raw_bytes": new_raw,
            "new_row_bytes": new_rows,
        }

    def vitals(self) -> Vitals:
        """Figures for monitoring, without a scan of what grows with the states. For a thread."""
        with self._db.snapshot() as connection:
            return vitals.read(connection, boot_ms(), wall_ms())

    def counters(self) -> dict[tuple[str, str], int]:
        """Counters of all workers since the store was made."""
        with self._db.read() as connection:
            return counters.read(connection)

    def history(
        self, first: int, last: int, step: int, names: Sequence[str]
    ) -> list[tuple[int, str, str, int]]:
        """(step, name, label, growth) of minutes `first` to `last` where there was any. For a thread."""
        with self._db.read() as connection:
            return history.gathered(connection, first, last, step, names)

    def setting(self, key: str) -> str | None:
        """A setting changed at run time. Fit for the event loop."""
        with self._db.read() as connection:
            return settings.read(connection, key)

    def job(self, job_id: str) -> JobRow | None:
        """The job of that id. Fit for the event loop."""
        with self._db.read() as connection:
            return jobs.find(connection, job_id)

    def jobs(self, limit: int) -> list[JobRow]:
        """The newest jobs, newest first."""
        with self._db.read() as connection:
            return jobs.page(connection, limit)

    def job_asked_to_stop(self, job_id: str) -> bool:
        """Whether the job should end."""
        with self._db.read() as connection:
            return jobs.asked_to_stop(connection, job_id)

    def owned_after(self, after: int, limit: int) -> list[ScrubRow]:
        """Blocks with an owner behind a row, in order of recording; and whether a live state has them."""
        with self._db.snapshot() as connection:
            return ownership.page(connection, after, limit)

    def live_owners(self, digest: bytes) -> list[tuple[StateRow, int, int]]:
        """Live states that own a block, each with the component and place where it has it first."""
        with self._db.snapshot() as connection:
            return states.live_owners(connection, digest)

    def held_bytes(self, after: int = 0) -> int:
        """Stored bytes of the blocks with an owner, those behind a row. Scans: for a thread."""
        columns = block.c
        with self._db.read() as connection:
            total = connection.execute(
                select(func.coalesce(func.sum(columns.stored_bytes), 0)).where(
                    columns.refs > 0, columns.id > after
                )
            ).scalar_one()
        return int(total)

    def latest_ms(self) -> int | None:
        """The latest wall clock time of a recording or an operator's change; None before there is any."""
        with self._db.read() as connection:
            recorded = connection.execute(
                select(state.c.created_at_ms).order_by(state.c.state_id.desc()).limit(1)
            ).scalar()
            changed = audit.page(connection, None, 1, None)
        return max([*filter(None, (recorded,)), *(row.at_ms for row in changed)], default=None)

    def unowned_bytes(self) -> int:
        """Stored bytes of the blocks that wait to be reclaimed."""
        with self._db.read() as connection:
            found = select(func.coalesce(func.sum(block.c.stored_bytes), 0)).where(
                block.c.refs == 0
            )
            return int(connection.execute(found).scalar_one())

    def unowned_blocks(self) -> int:
        """Blocks that wait to be reclaimed."""
        with self._db.read() as connection:
            found = select(func.count()).where(block.c.refs == 0)
            return int(connection.execute(found).scalar_one())
