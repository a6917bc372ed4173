"""Schema revisions: they make the schema that the code describes, from every earlier one, and no other."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from pysqlite3 import dbapi2
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import migrations
from app.engine.manifest import load
from storage.catalog import Catalog
from storage.errors import StoreUnusable
from storage.metadata.database import Database
from storage.metadata.schema import metadata

# Tables that every dump has rows of; those from the fifth on are there since revision 0003.
_WITH_ROWS = (
    *("namespace", "state", "quarantine", "tombstone"),
    *("access_token", "tenant", "pin", "audit", "job", "history", "setting", "lease"),
)
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
    """A definition without the order of its parts: a column added later stands behind the constraints."""
    text = re.sub(r"\s+", " ", sql).replace("( ", "(").replace(" )", ")").strip()
    head, _, body = text.partition("(")
    body, _, tail = body.rpartition(")")
    parts = re.split(r", ?(?![^(]*\))", body)
    return f"{head}({', '.join(sorted(part.strip() for part in parts))}){tail}"


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
    connection.close()
    before = _rows(path)
    for name in _WITH_ROWS[:4] if revision < "0003" else _WITH_ROWS:
        assert before[name], f"the dump has no {name}"
    migrations.upgrade(path)
    assert migrations.current(path) == migrations.head()
    after = _rows(path)
    for name, rows in before.items():
        kept = [{column: row[column] for column in rows[0]} for row in after[name]] if rows else []
        assert kept == rows, name
    connection = dbapi2.connect(str(path))
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    _manifests_are_still_sealed(path)
    _evidence_is_read(path, before["quarantine"])


def _rows(path: Path) -> dict[str, list[dict[str, object]]]:
    """All rows of all tables but Alembic's own, by the names of their columns."""
    connection = dbapi2.connect(str(path))
    found = {}
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in names:
        if name.startswith("alembic"):
            continue
        cursor = connection.execute(f"SELECT * FROM {name}")
        columns = [column[0] for column in cursor.description]
        found[name] = [dict(zip(columns, row, strict=True)) for row in cursor]
    connection.close()
    return found


def _evidence_is_read(path: Path, rows: list[dict[str, object]]) -> None:
    """What nobody knew at the time is null; the rest reads as it was written."""
    database = Database(path)
    found = Catalog(database).quarantined(limit=100)
    database.close()
    kept = {row["state"]: row for row in rows}
    assert {state.id for state, *_ in found} == set(kept)
    for state, _, components, why, _ in found:
        row = kept[state.id]
        assert components
        assert (why.failure_class, why.reason, why.at_ms, why.actual_digest, why.client) == (
            row["class"],
            row["reason"],
            row["at_ms"],
            row["actual_digest"],
            row.get("client"),
        )
        verdict = row.get("intact")
        assert why.intact is (None if verdict is None else bool(verdict))


def _manifests_are_still_sealed(path: Path) -> None:
    """What a release recorded passes the proof of this one."""
    database = Database(path)
    catalog = Catalog(database)
    proven = 0
    for state, _ in catalog.states(limit=100):
        if state.status != "recording":
            load(state, *catalog.contents(state.id))
            proven += 1
    database.close()
    assert proven


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


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b", "a b"])
def test_a_folder_of_any_name_gets_its_database(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    migrations.upgrade(folder / "m.db")
    assert migrations.current(folder / "m.db") == migrations.head()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_revision_that_fails_halfway_leaves_nothing_and_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, copy)
    [revision] = (copy / "versions").glob("*_initial.py")
    whole = revision.read_text()
    last = whole.rindex("    op.execute(")
    revision.write_text(whole[:last] + "    raise RuntimeError\n" + whole[last:])
    monkeypatch.setattr(migrations, "__file__", str(copy / "__init__.py"))
    path = tmp_path / "m.db"
    with pytest.raises(RuntimeError):
        migrations.upgrade(path)
    assert _objects(path) == set()
    revision.write_text(whole)
    # Otherwise a compiled file of the same second and size would be taken for the new one.
    shutil.rmtree(copy / "versions" / "__pycache__", ignore_errors=True)
    migrations.upgrade(path)
    assert migrations.current(path) == migrations.head()
