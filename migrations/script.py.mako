"""${message}

Revision: ${up_revision}, after ${down_revision}. ${create_date}
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Describe what changes and what happens to the rows that are there."""
