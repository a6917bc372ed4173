"""The figures for monitoring are found by index, however many states there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pysqlite3 import dbapi2
from sqlalchemy.dialects import sqlite

from migrations import upgrade
from storage.layout import DataFolder
from storage.metadata import leases, vitals
from storage.metadata.database import Database
from storage.rows import StateRow


@pytest.fixture
def database(tmp_path: Path) -> Database:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    upgrade(folder.database)
    return Database(folder.database)


def _plan(database: Database, statement: str) -> str:
    connection = dbapi2.connect(str(database.path))
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    finally:
        connection.close()
    return "; ".join(row[3] for row in rows)


def test_quarantined_states_are_counted_in_an_index_and_up_to_a_bound(database: Database) -> None:
    text = str(
        vitals._QUARANTINED.compile(
            dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
        )
    )
    assert f"LIMIT {vitals.MOST_QUARANTINED_COUNTED}" in text
    assert "SEARCH state USING COVERING INDEX" in _plan(database, text)


_STATE = StateRow(1, "state", 1, "", "kv", "live", None, 1, b"", None, None, 0, 0, 0, 0, 0)


def test_only_leases_that_nobody_released_are_looked_at(database: Database) -> None:
    with database.write(durable=False) as connection:
        for n in range(200):
            leases.add(connection, f"lease-{n}", _STATE, 60_000, n)
            if n % 4:
                leases.finish(connection, f"lease-{n}", "sent")
    with database.read() as connection:
        assert leases.count_held(connection, 60_000) == 49  # the first one ends at that moment
        assert leases.count_held(connection, 0) == 50
    plan = _plan(
        database,
        "SELECT count(*) FROM lease WHERE outcome IS NULL AND expires_boot_ms + 0 > 5",
    )
    assert "INDEX lease_held" in plan


def test_leases_that_ran_out_are_told_from_the_released(database: Database) -> None:
    with database.write(durable=False) as connection:
        for n in range(4):
            leases.add(connection, f"lease-{n}", _STATE, 10, n)
        leases.finish(connection, "lease-0", "restored")
        assert leases.sweep(connection, 13, 100) == (3, 2)
        assert leases.sweep(connection, 100, 100) == (1, 1)
        assert leases.sweep(connection, 100, 100) == (0, 0)
