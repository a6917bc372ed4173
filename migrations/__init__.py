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
from alembic.util import CommandError
from pysqlite3 import dbapi2
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import DatabaseError

from storage.errors import StoreDamaged, StoreUnusable

# Besides SQLite's own word: the schema's text is no text, or there are several revisions.
UNREADABLE = (DatabaseError, UnicodeDecodeError, CommandError)


def upgrade(database: Path, revision: str = "head") -> None:
    """Bring a database to a revision, making it if it is not there.

    Raises:
        StoreUnusable: it is of a newer version.
        StoreDamaged: it is no database, or cannot be read.
    """
    config = _config(database)
    _known(database)
    try:
        command.upgrade(config, revision)
    except UNREADABLE as error:
        why = getattr(error, "orig", error)
        raise StoreDamaged(f"{database} cannot be migrated: {why}") from error
    database.chmod(0o600)


def current(database: Path) -> str | None:
    """The revision a database is at; None for a new one."""
    engine = create_engine(location(database), module=dbapi2)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def revisions() -> frozenset[str]:
    """Every revision that this code knows."""
    scripts = ScriptDirectory.from_config(_config(Path("unused")))
    return frozenset(script.revision for script in scripts.walk_revisions())


def require_current(database: Path) -> None:
    """What commands on a data folder need.

    Raises:
        StoreUnusable: the database is of another revision; the message says what to do.
        StoreDamaged: it is no database, or cannot be read.
    """
    if _known(database) != head():
        raise StoreUnusable(
            f"the schema of {database} is not of this version: run `statehold migrate` first"
        )


def head() -> str:
    """The newest revision."""
    found = ScriptDirectory.from_config(_config(Path("unused"))).get_current_head()
    assert found is not None
    return found


def location(database: Path) -> URL:
    """Where a database is, for SQLAlchemy; built from parts, since a path may hold "?" or "%"."""
    return URL.create("sqlite", database=str(database))


def _known(database: Path) -> str | None:
    """The revision a database is at, which is one that this code knows."""
    try:
        at = current(database)
    except UNREADABLE as error:
        why = getattr(error, "orig", error)
        raise StoreDamaged(f"{database} is not a Statehold database: {why}") from error
    if at is not None and at not in revisions():
        raise StoreUnusable(
            f"{database} was written by a newer version (schema {at}); run that version, or bring a "
            "backup back that was made before (`statehold restore BACKUP --replace`). If no newer "
            "version was ever run here the file is damaged: `statehold salvage NEW_FOLDER` copies "
            "every state that still verifies"
        )
    return at


def _config(database: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["database"] = database
    return config
