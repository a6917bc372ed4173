"""How Alembic runs our revisions: one SQLite file, one transaction a revision."""

from __future__ import annotations

from alembic import context
from pysqlite3 import dbapi2
from sqlalchemy import create_engine, event

from migrations import location

_APPLICATION_ID = 0x53544844  # "STHD"

engine = create_engine(
    location(context.config.attributes["database"]),
    module=dbapi2,
    connect_args={"isolation_level": None},
)


@event.listens_for(engine, "connect")
def _prepare(connection, _record) -> None:  # type: ignore[no-untyped-def]
    # Page size and journal mode must be set before the first table is made.
    connection.execute("PRAGMA page_size=16384")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")


@event.listens_for(engine, "begin")
def _begin(connection) -> None:  # type: ignore[no-untyped-def]
    connection.exec_driver_sql("BEGIN IMMEDIATE")


with engine.connect() as connection:
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
