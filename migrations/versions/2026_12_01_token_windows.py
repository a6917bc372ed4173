"""Components with geometry, components known by their blocks alone, and write amplification.

Revision: 0002, after 0001. Rows of 0001 keep their meaning: no geometry, a digest over the bytes.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_STATEMENTS = (
    "ALTER TABLE component ADD COLUMN geometry BLOB",
    "ALTER TABLE component ADD COLUMN row_bytes INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE component ADD COLUMN new_raw_bytes INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE component ADD COLUMN by_blocks INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE namespace ADD COLUMN new_raw_bytes INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE namespace ADD COLUMN new_row_bytes INTEGER DEFAULT 0 NOT NULL",
)


def upgrade() -> None:
    """Add the columns."""
    for statement in _STATEMENTS:
        op.execute(statement)
