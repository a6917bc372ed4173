"""The block files under churn: free pages are used again, so a full budget bounds the files' size.

Only in `make soak`. `python -m bench.scale --churn` runs it longer and larger.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.scale import churn

pytestmark = pytest.mark.soak


def test_files_stay_within_a_third_more_than_what_they_hold(tmp_path: Path) -> None:
    """Twenty turnovers of windows, frames and fixed cuts; 1.3 x at any moment, and no steady growth."""
    rows = list(churn(tmp_path / "blocks", budget_bytes=512 << 20, turnovers=20))
    assert max(row.ratio for row in rows) <= 1.3
    assert rows[-1].file_bytes <= 1.15 * rows[4].file_bytes
    # What the budget counts is what LMDB uses.
    assert all(0.98 < row.used_bytes / row.held_bytes < 1.02 for row in rows)
