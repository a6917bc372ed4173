"""The tables, and the invariants they keep. What a row means is said here; queries live elsewhere.

State machine (`state.status`), DESIGN section 3:

    recording -> live -> (gone)         live -> quarantined -> live | (gone)
    recording -> (gone)                 "gone" is the absence of the row

- recording: admitted, its components are arriving. Owns what has arrived. Has no node, so no
  lookup can see it. One `recording` row beside it carries deadline and owner.
- live: whole and durable. Has a node, except when a replacement took its place while it was
  leased: then it has none, can be read by its holders only, and goes when they are done.
- quarantined: out of service, kept as evidence; keeps its node so that a miss can say why.

Ownership rule: a state of any status owns its blocks through `state_block`;
`block.refs` is the number of its `state_block` rows, always. A block with no owner
(`refs = 0`) waits to be reclaimed: its value may or may not be in LMDB still.

Accounting: `store.stored_bytes` = sum of `block.stored_bytes` (owned or not) + sum of
`state.overhead_bytes`. `namespace.stored_bytes` counts each block once if any of the
namespace's states owns it, plus the overhead of those states. `entries` counts live states.

Pins: a state with a row in `pin` that has not run out is not evicted, be it live or quarantined. A
replacement takes the row over, so a live state without a node has none.

Tenants: a namespace's `name` is unique over all tenants, because that of a tenant other than the default
one begins with the tenant's name and U+001F, which no name given by a client may hold (`storage.scoped`).
`tenant` repeats the first part; "" is the default tenant. The counts of a tenant are the sums of those
of its namespaces.

Times: `*_at_ms` are wall clock (for people and LRU order), `*_boot_ms` are the boot clock (deadlines).
"""

from __future__ import annotations

from sqlalchemy import (
    BLOB,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

STATUSES = ("recording", "live", "quarantined")
KINDS = ("full_state", "kv_recurrent", "recurrent_only", "kv")

store = Table(
    "store",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True),
    Column("commit_counter", Integer, nullable=False),
    Column("stored_bytes", Integer, nullable=False),
    Column("entries", Integer, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("clean", Integer, nullable=False),  # 1 only between a clean stop and the next start
    Column("created_at_ms", Integer, nullable=False),
    sqlite_strict=True,
)

setting = Table(
    "setting",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_strict=True,
)

namespace = Table(
    "namespace",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("identity", Text),  # canonical JSON, or NULL where it was only used and never registered
    Column("identity_digest", BLOB),  # BLAKE3-256 of `identity`
    Column("model", Text),  # identity's model_id, to find the nearest other namespace of a model
    Column("mode", Text),  # NULL: the store's
    Column("min_tokens", Integer),  # NULL: the store's
    Column("max_entries", Integer),  # NULL: the store's
    Column("max_stored_bytes", Integer),  # NULL: no limit of its own
    Column("entries", Integer, nullable=False),
    Column("stored_bytes", Integer, nullable=False),
    Column("logical_bytes", Integer, nullable=False),  # of live states
    Column("created_at_ms", Integer, nullable=False),
    # Write amplification of components with geometry, since the namespace was made: raw bytes of
    # the blocks that were new to the store, and bytes of the rows that were new to the tree.
    Column("new_raw_bytes", Integer, nullable=False, server_default=text("0")),
    Column("new_row_bytes", Integer, nullable=False, server_default=text("0")),
    Column("tenant", Text, nullable=False, server_default=text("''")),
    Index("namespace_model", "model"),
    Index("namespace_tenant", "tenant"),
    sqlite_strict=True,
)

radix_node = Table(
    "radix_node",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("namespace_id", ForeignKey("namespace.id"), nullable=False),
    Column("parent_id", ForeignKey("radix_node.id")),  # NULL: the root of its namespace
    Column("first_token", BLOB, nullable=False),  # int32 little-endian; empty at the root
    Column("edge", BLOB, nullable=False),  # int32 little-endian tokens from the parent to here
    Column("depth", Integer, nullable=False),  # tokens from the root to the end of the edge
    UniqueConstraint("parent_id", "first_token"),
    Index("radix_node_root", "namespace_id", unique=True, sqlite_where=text("parent_id IS NULL")),
    sqlite_strict=True,
)

state = Table(
    "state",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("state_id", Text, nullable=False, unique=True),
    Column("namespace_id", ForeignKey("namespace.id"), nullable=False),
    Column("page_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("node_id", ForeignKey("radix_node.id")),
    Column("token_count", Integer, nullable=False),
    Column("token_digest", BLOB, nullable=False),  # BLAKE3 of namespace and tokens: proof of a hit
    Column("manifest_digest", BLOB),  # NULL while recording
    Column("kv_descriptor", Text),  # JSON as the client gave it, unknown keys kept
    Column("logical_bytes", Integer, nullable=False),
    Column("overhead_bytes", Integer, nullable=False),  # charge for its metadata rows
    Column("created_at_ms", Integer, nullable=False),
    Column("touched_at_ms", Integer, nullable=False),
    Column("hits", Integer, nullable=False),
    CheckConstraint(f"status IN {STATUSES}", name="state_status"),
    CheckConstraint(f"kind IN {KINDS}", name="state_kind"),
    Index(
        "state_live_prefix",
        "node_id",
        "kind",
        unique=True,
        sqlite_where=text("status = 'live' AND node_id IS NOT NULL"),
    ),
    Index(
        "state_in_flight",
        "namespace_id",
        "token_digest",
        "kind",
        unique=True,
        sqlite_where=text("status = 'recording'"),
    ),
    Index("state_node", "node_id"),
    Index("state_prefix", "namespace_id", "token_digest"),
    Index("state_lru", "status", "touched_at_ms"),
    Index("state_namespace_lru", "namespace_id", "status", "touched_at_ms"),
    sqlite_strict=True,
)

recording = Table(
    "recording",
    metadata,
    Column("state", ForeignKey("state.id", ondelete="CASCADE"), primary_key=True),
    Column("tokens", BLOB, nullable=False),
    Column("owner", Text, nullable=False),  # the instance that admitted it
    Column("reserved_bytes", Integer, nullable=False),  # what its components will hold, raw
    Column("replace", Integer, nullable=False),
    Column("ttl_ms", Integer, nullable=False),
    Column("deadline_boot_ms", Integer, nullable=False),
    sqlite_strict=True,
)

component = Table(
    "component",
    metadata,
    Column("state", ForeignKey("state.id", ondelete="CASCADE"), nullable=False),
    Column("ordinal", Integer, nullable=False),  # order on the wire
    Column("name", Text, nullable=False),
    Column("raw_bytes", Integer, nullable=False),
    # BLAKE3-256 of the whole component, or of the list of its blocks if `by_blocks`; NULL until it
    # has arrived.
    Column("digest", BLOB),
    Column("upload", Text),  # instance/attempt that is sending it now, NULL when nobody is
    Column("geometry", BLOB),  # packed runs (app.engine.geometry); NULL: blocks lie in wire order
    Column("row_bytes", Integer, nullable=False, server_default=text("0")),  # of one token
    Column("new_raw_bytes", Integer, nullable=False, server_default=text("0")),
    Column("by_blocks", Integer, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("state", "ordinal"),
    UniqueConstraint("state", "name"),
    sqlite_strict=True,
)

block = Table(
    "block",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", BLOB, nullable=False, unique=True),
    Column("raw_bytes", Integer, nullable=False),
    Column(
        "stored_bytes", Integer, nullable=False
    ),  # LMDB footprint, page rounding and key included
    Column("refs", Integer, nullable=False),
    Index("block_unowned", "id", sqlite_where=text("refs = 0")),
    sqlite_strict=True,
)

state_block = Table(
    "state_block",
    metadata,
    Column("state", ForeignKey("state.id"), nullable=False),
    Column("ordinal", Integer, nullable=False),  # which component
    Column("seq", Integer, nullable=False),  # which block of it, from 0
    Column("block", ForeignKey("block.id"), nullable=False),
    Column("namespace_id", Integer, nullable=False),  # the state's; for accounting by index alone
    PrimaryKeyConstraint("state", "ordinal", "seq"),
    Index("state_block_owner", "block", "namespace_id"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

lease = Table(
    "lease",
    metadata,
    Column("lease_id", Text, primary_key=True),
    Column("state_id", Text, nullable=False),  # by name: a released lease outlives its state
    Column("ttl_ms", Integer, nullable=False),
    Column("expires_boot_ms", Integer, nullable=False),
    Column("outcome", Text),  # NULL while held; then what the holder said
    Column("created_at_ms", Integer, nullable=False),
    Column("namespace_id", Integer),  # the state's; NULL in leases older than this column
    Index("lease_held", "state_id", "expires_boot_ms", sqlite_where=text("outcome IS NULL")),
    Index("lease_expiry", "expires_boot_ms"),
    sqlite_strict=True,
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("state", ForeignKey("state.id", ondelete="CASCADE"), primary_key=True),
    Column("class", Text, key="failure_class", nullable=False),
    Column("reason", Text, nullable=False),
    Column("reported_by", Text, nullable=False),  # service or client
    Column("component", Text),
    Column("seq", Integer),  # first bad block of the component
    Column("expected_digest", BLOB),
    Column("actual_digest", BLOB),
    Column("lease_id", Text),
    Column("at_ms", Integer, nullable=False),
    Column("client", Text),  # id of the access token that reported it
    Column("verified_at_ms", Integer),  # last verification since; NULL: none
    Column("intact", Integer),  # 1: that one found every byte as recorded; the rest stays as it was
    Index("quarantine_at", "at_ms"),
    sqlite_strict=True,
)

tombstone = Table(
    "tombstone",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("namespace_id", ForeignKey("namespace.id"), nullable=False),
    Column("token_digest", BLOB, nullable=False),
    Column("token_count", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state_id", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("evicted_at_ms", Integer, nullable=False),
    Index("tombstone_prefix", "namespace_id", "token_count", "token_digest"),
    sqlite_strict=True,
)

counter = Table(
    "counter",
    metadata,
    Column("name", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("value", Integer, nullable=False),
    PrimaryKeyConstraint("name", "label"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

tenant = Table(
    "tenant",
    metadata,
    Column("name", Text, primary_key=True),  # "": whoever has none
    Column("max_stored_bytes", Integer),  # NULL: no limit of its own, here and below
    Column("max_logical_bytes", Integer),
    Column("max_entries", Integer),
    Column("max_in_flight_records", Integer),
    Column("max_requests_per_second", Integer),
    Column("max_bytes_per_second", Integer),
    Column("created_at_ms", Integer, nullable=False),
    sqlite_strict=True,
)

access_token = Table(
    "access_token",
    metadata,
    Column("token_id", Text, primary_key=True),  # the public half of the secret
    Column("secret_digest", BLOB, nullable=False),  # BLAKE3-256 of the whole secret
    Column("label", Text, nullable=False),
    Column("tenant", Text),  # NULL: an operator of the whole store
    Column("scopes", Text, nullable=False),  # JSON array
    Column("namespaces", Text),  # JSON array of patterns; NULL: all of the tenant's
    Column("created_at_ms", Integer, nullable=False),
    Column("expires_at_ms", Integer),
    Column("revoked_at_ms", Integer),
    Column("used_at_ms", Integer),
    sqlite_strict=True,
)

pin = Table(
    "pin",
    metadata,
    Column("state", ForeignKey("state.id", ondelete="CASCADE"), primary_key=True),
    Column("expires_at_ms", Integer),  # NULL: until it is taken away
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("created_at_ms", Integer, nullable=False),
    sqlite_strict=True,
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at_ms", Integer, nullable=False),
    Column("actor", Text, nullable=False),  # token id, "open" or "command line"
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),  # "done", or the code of the refusal
    Column("details", Text, nullable=False),  # JSON
    sqlite_strict=True,
)

job = Table(
    "job",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("owner", Text, nullable=False),  # the instance that runs it
    Column("actor", Text, nullable=False),
    Column("arguments", Text, nullable=False),  # JSON
    Column("done", Integer, nullable=False),  # of `total`, in `unit`
    Column("total", Integer, nullable=False),
    Column("unit", Text, nullable=False),
    Column("cancel", Integer, nullable=False),  # 1: it was asked to stop
    Column("result", Text),  # JSON, once it has ended well
    Column("error", Text),  # code, once it has failed
    Column("created_at_ms", Integer, nullable=False),
    Column("ended_at_ms", Integer),
    CheckConstraint("status IN ('running', 'done', 'failed', 'cancelled')", name="job_status"),
    Index("job_running", "kind", unique=True, sqlite_where=text("status = 'running'")),
    Index("job_created", "created_at_ms"),
    sqlite_strict=True,
)

history = Table(
    "history",
    metadata,
    Column("minute", Integer, nullable=False),  # of the wall clock, since 1970
    Column("name", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("value", Integer, nullable=False),  # what the counter grew by in that minute
    PrimaryKeyConstraint("minute", "name", "label"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
