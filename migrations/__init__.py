"""Schema revisions: what brings a database of any earlier version to this one.

`upgrade` is the only way a schema changes. A database of a revision that this code does not know is
refused, never guessed at.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from pysqlite3 import dbapi2
from sqlalchemy import create_engine
from sqlalchemy.exc import DatabaseError

from storage.errors import StoreUnusable


def upgrade(database: Path, revision: str = "head") -> None:
    """Bring a database to a revision, making it if it is not there.

    Raises:
        StoreUnusable: it is of a newer version, or no database at all.
    """
    config = _config(database)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    try:
        at = current(database)
    except DatabaseError as error:
        raise StoreUnusable(f"{database} is not a Statehold database: {error.orig}") from error
    if at is not None and at not in known:
        raise StoreUnusable(
            f"{database} was written by a newer version (schema {at}); run that version, or restore "
            "a backup made before"
        )
    command.upgrade(config, revision)
    database.chmod(0o600)


def current(database: Path) -> str | None:
    """The revision a database is at; None for a new one."""
    engine = create_engine(f"sqlite:///{database}", module=dbapi2)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def head() -> str:
    """The newest revision."""
    found = ScriptDirectory.from_config(_config(Path("unused"))).get_current_head()
    assert found is not None
    return found


def _config(database: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["database"] = database
    return config
