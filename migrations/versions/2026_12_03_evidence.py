"""What the quarantine desk keeps besides: who reported, and how the last verification ended.

Revision: 0004, after 0003. Of evidence found before nobody knows either.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_STATEMENTS = (
    "ALTER TABLE quarantine ADD COLUMN client TEXT",
    "ALTER TABLE quarantine ADD COLUMN verified_at_ms INTEGER",
    "ALTER TABLE quarantine ADD COLUMN intact INTEGER",
    "CREATE INDEX quarantine_at ON quarantine (at_ms)",
)


def upgrade() -> None:
    """Add the columns and the index."""
    for statement in _STATEMENTS:
        op.execute(statement)
