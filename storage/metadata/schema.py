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
    Index("namespace_model", "model"),
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
    Column("digest", BLOB),  # BLAKE3-256 of the whole component; NULL until it has arrived
    Column("upload", Text),  # instance/attempt that is sending it now, NULL when nobody is
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
