"""What operators need: tenants, access tokens, pins, an audit log, jobs, and counters over time.

Revision: 0003, after 0002. Namespaces made before belong to the default tenant "".
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_STATEMENTS = (
    "ALTER TABLE namespace ADD COLUMN tenant TEXT DEFAULT '' NOT NULL",
    "CREATE INDEX namespace_tenant ON namespace (tenant)",
    "ALTER TABLE lease ADD COLUMN namespace_id INTEGER",
    """
    CREATE TABLE tenant (
        name TEXT NOT NULL,
        max_stored_bytes INTEGER,
        max_logical_bytes INTEGER,
        max_entries INTEGER,
        max_in_flight_records INTEGER,
        max_requests_per_second INTEGER,
        max_bytes_per_second INTEGER,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (name)
    ) STRICT
    """,
    """
    CREATE TABLE access_token (
        token_id TEXT NOT NULL,
        secret_digest BLOB NOT NULL,
        label TEXT NOT NULL,
        tenant TEXT,
        scopes TEXT NOT NULL,
        namespaces TEXT,
        created_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER,
        revoked_at_ms INTEGER,
        used_at_ms INTEGER,
        PRIMARY KEY (token_id)
    ) STRICT
    """,
    """
    CREATE TABLE pin (
        state INTEGER NOT NULL,
        expires_at_ms INTEGER,
        reason TEXT NOT NULL,
        actor TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    ) STRICT
    """,
    """
    CREATE TABLE audit (
        id INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        target TEXT NOT NULL,
        outcome TEXT NOT NULL,
        details TEXT NOT NULL,
        PRIMARY KEY (id)
    ) STRICT
    """,
    """
    CREATE TABLE job (
        job_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        owner TEXT NOT NULL,
        actor TEXT NOT NULL,
        arguments TEXT NOT NULL,
        done INTEGER NOT NULL,
        total INTEGER NOT NULL,
        unit TEXT NOT NULL,
        cancel INTEGER NOT NULL,
        result TEXT,
        error TEXT,
        created_at_ms INTEGER NOT NULL,
        ended_at_ms INTEGER,
        PRIMARY KEY (job_id),
        CONSTRAINT job_status CHECK (status IN ('running', 'done', 'failed', 'cancelled'))
    ) STRICT
    """,
    "CREATE UNIQUE INDEX job_running ON job (kind) WHERE status = 'running'",
    "CREATE INDEX job_created ON job (created_at_ms)",
    """
    CREATE TABLE history (
        minute INTEGER NOT NULL,
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (minute, name, label)
    ) WITHOUT ROWID, STRICT
    """,
)


def upgrade() -> None:
    """Add the columns and the tables."""
    for statement in _STATEMENTS:
        op.execute(statement)
