"""Schema revisions: they make the schema that the code describes, from every earlier one, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from pysqlite3 import dbapi2
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import migrations
from storage.errors import StoreUnusable
from storage.metadata.schema import metadata

_DATA = Path(__file__).parents[1] / "data" / "databases"


def _revisions() -> list[str]:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]


def _objects(path: Path) -> set[str]:
    connection = dbapi2.connect(str(path))
    rows = connection.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
    ).fetchall()
    connection.close()
    return {_normal(sql) for (sql,) in rows}


def _normal(sql: str) -> str:
    return re.sub(r"\s+", " ", sql).replace("( ", "(").replace(" )", ")").strip()


def test_the_revisions_make_exactly_the_schema_that_the_code_describes(tmp_path: Path) -> None:
    migrations.upgrade(tmp_path / "m.db")
    dialect = SQLiteDialect_pysqlite()
    wanted = set()
    for table in metadata.sorted_tables:
        wanted.add(_normal(str(CreateTable(table).compile(dialect=dialect))))
        wanted |= {
            _normal(str(CreateIndex(index).compile(dialect=dialect))) for index in table.indexes
        }
    assert _objects(tmp_path / "m.db") == wanted


def test_a_new_database_has_the_row_of_totals_and_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    migrations.upgrade(path)
    connection = dbapi2.connect(str(path))
    assert connection.execute("SELECT id, commit_counter, clean FROM store").fetchall() == [
        (1, 0, 1)
    ]
    assert connection.execute("PRAGMA page_size").fetchone() == (16384,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA application_id").fetchone() == (0x53544844,)
    connection.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert migrations.current(path) == migrations.head()


def test_upgrading_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    migrations.upgrade(path)
    before = _objects(path)
    migrations.upgrade(path)
    assert _objects(path) == before


@pytest.mark.parametrize("revision", _revisions())
def test_a_database_of_every_revision_is_migrated_and_keeps_its_rows(
    tmp_path: Path, revision: str
) -> None:
    """`tests/data/databases/REVISION.sql` is a dump of a database that the revision's release wrote."""
    path = tmp_path / "m.db"
    dump = _DATA / f"{revision}.sql"
    assert dump.exists(), "a new revision ships a dump of the one before it, and of itself"
    connection = dbapi2.connect(str(path))
    connection.executescript(dump.read_text())
    before = connection.execute("SELECT state_id, status FROM state ORDER BY id").fetchall()
    connection.close()
    assert before
    migrations.upgrade(path)
    assert migrations.current(path) == migrations.head()
    connection = dbapi2.connect(str(path))
    assert connection.execute("SELECT state_id, status FROM state ORDER BY id").fetchall() == before
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_newer_schema_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    migrations.upgrade(path)
    connection = dbapi2.connect(str(path))
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnusable, match="newer version"):
        migrations.upgrade(path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(StoreUnusable, match="not a Statehold database"):
        migrations.upgrade(path)
