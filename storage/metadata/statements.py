"""Running the hot statements: compiled once from SQLAlchemy Core, then handed to the driver as text.

SQLAlchemy's own execution path costs more than SQLite needs for a short walk, so the statements on
the lookup path are written as Core expressions like all others, compiled at import, and run through
`exec_driver_sql`, which keeps the connection's pool, events and error translation.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql import ClauseElement

_DIALECT = SQLiteDialect_pysqlite(paramstyle="named")


class HotStatement:
    """One Core statement, compiled once for SQLite with named parameters."""

    def __init__(self, statement: ClauseElement) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self._text = str(compiled)
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}

    def all(self, connection: Connection, **parameters: Any) -> list[Any]:
        """All rows, as tuples."""
        return list(connection.exec_driver_sql(self._text, self._fixed | parameters).all())

    def first(self, connection: Connection, **parameters: Any) -> Any | None:
        """The first row, or None."""
        return connection.exec_driver_sql(self._text, self._fixed | parameters).first()
