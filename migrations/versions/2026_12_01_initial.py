"""The first schema: namespaces, the radix tree, states and what they own.

Revision: 0001, the first.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, not taken from the schema module: a revision says what was, for ever.
_STATEMENTS = (
    """
    CREATE TABLE block (
        id INTEGER NOT NULL,
        digest BLOB NOT NULL,
        raw_bytes INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (digest)
    )
     STRICT
    """,
    "CREATE INDEX block_unowned ON block (id) WHERE refs = 0",
    """
    CREATE TABLE counter (
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (name, label)
    )
     WITHOUT ROWID,
     STRICT
    """,
    """
    CREATE TABLE lease (
        lease_id TEXT NOT NULL,
        state_id TEXT NOT NULL,
        ttl_ms INTEGER NOT NULL,
        expires_boot_ms INTEGER NOT NULL,
        outcome TEXT,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (lease_id)
    )
     STRICT
    """,
    "CREATE INDEX lease_expiry ON lease (expires_boot_ms)",
    """
    CREATE INDEX lease_held ON lease (state_id, expires_boot_ms) WHERE outcome IS NULL
    """,
    """
    CREATE TABLE namespace (
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        identity TEXT,
        identity_digest BLOB,
        model TEXT,
        mode TEXT,
        min_tokens INTEGER,
        max_entries INTEGER,
        max_stored_bytes INTEGER,
        entries INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        logical_bytes INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (name)
    )
     STRICT
    """,
    "CREATE INDEX namespace_model ON namespace (model)",
    """
    CREATE TABLE setting (
        "key" TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY ("key")
    )
     STRICT
    """,
    """
    CREATE TABLE store (
        id INTEGER NOT NULL CHECK (id = 1),
        commit_counter INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        entries INTEGER NOT NULL,
        boot_id TEXT NOT NULL,
        clean INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id)
    )
     STRICT
    """,
    """
    CREATE TABLE radix_node (
        id INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        parent_id INTEGER,
        first_token BLOB NOT NULL,
        edge BLOB NOT NULL,
        depth INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (parent_id, first_token),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id),
        FOREIGN KEY(parent_id) REFERENCES radix_node (id)
    )
     STRICT
    """,
    """
    CREATE UNIQUE INDEX radix_node_root ON radix_node (namespace_id) WHERE parent_id IS NULL
    """,
    """
    CREATE TABLE tombstone (
        id INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        token_digest BLOB NOT NULL,
        token_count INTEGER NOT NULL,
        kind TEXT NOT NULL,
        state_id TEXT NOT NULL,
        cause TEXT NOT NULL,
        evicted_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id)
    )
     STRICT
    """,
    """
    CREATE INDEX tombstone_prefix ON tombstone (namespace_id, token_count, token_digest)
    """,
    """
    CREATE TABLE state (
        id INTEGER NOT NULL,
        state_id TEXT NOT NULL,
        namespace_id INTEGER NOT NULL,
        page_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        node_id INTEGER,
        token_count INTEGER NOT NULL,
        token_digest BLOB NOT NULL,
        manifest_digest BLOB,
        kv_descriptor TEXT,
        logical_bytes INTEGER NOT NULL,
        overhead_bytes INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        touched_at_ms INTEGER NOT NULL,
        hits INTEGER NOT NULL,
        PRIMARY KEY (id),
        CONSTRAINT state_status CHECK (status IN ('recording', 'live', 'quarantined')),
        CONSTRAINT state_kind CHECK (kind IN ('full_state', 'kv_recurrent', 'recurrent_only', 'kv')),
        UNIQUE (state_id),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id),
        FOREIGN KEY(node_id) REFERENCES radix_node (id)
    )
     STRICT
    """,
    """
    CREATE UNIQUE INDEX state_in_flight ON state (namespace_id, token_digest, kind) WHERE status = 'recording'
    """,
    """
    CREATE UNIQUE INDEX state_live_prefix ON state (node_id, kind) WHERE status = 'live' AND node_id IS NOT NULL
    """,
    "CREATE INDEX state_lru ON state (status, touched_at_ms)",
    "CREATE INDEX state_namespace_lru ON state (namespace_id, status, touched_at_ms)",
    "CREATE INDEX state_node ON state (node_id)",
    "CREATE INDEX state_prefix ON state (namespace_id, token_digest)",
    """
    CREATE TABLE component (
        state INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        name TEXT NOT NULL,
        raw_bytes INTEGER NOT NULL,
        digest BLOB,
        upload TEXT,
        PRIMARY KEY (state, ordinal),
        UNIQUE (state, name),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    """,
    """
    CREATE TABLE quarantine (
        state INTEGER NOT NULL,
        class TEXT NOT NULL,
        reason TEXT NOT NULL,
        reported_by TEXT NOT NULL,
        component TEXT,
        seq INTEGER,
        expected_digest BLOB,
        actual_digest BLOB,
        lease_id TEXT,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    """,
    """
    CREATE TABLE recording (
        state INTEGER NOT NULL,
        tokens BLOB NOT NULL,
        owner TEXT NOT NULL,
        reserved_bytes INTEGER NOT NULL,
        "replace" INTEGER NOT NULL,
        ttl_ms INTEGER NOT NULL,
        deadline_boot_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    """,
    """
    CREATE TABLE state_block (
        state INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        block INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        PRIMARY KEY (state, ordinal, seq),
        FOREIGN KEY(state) REFERENCES state (id),
        FOREIGN KEY(block) REFERENCES block (id)
    )
     WITHOUT ROWID,
     STRICT
    """,
    "CREATE INDEX state_block_owner ON state_block (block, namespace_id)",
)


def upgrade() -> None:
    """Make every table and the one row of totals."""
    for statement in _STATEMENTS:
        op.execute(statement)
    op.execute(
        "INSERT INTO store (id, commit_counter, stored_bytes, entries, boot_id, clean, created_at_ms) "
        "VALUES (1, 0, 0, 0, '', 1, CAST(unixepoch('subsec') * 1000 AS INTEGER))"
    )
