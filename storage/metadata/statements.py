"""Running the statements of the data path: written as Core expressions, compiled once, run by the driver.

SQLAlchemy's execution of a Core statement costs 100 to 300 us here, several times what SQLite needs for
it, and a recording runs dozens. So these statements are compiled at import and handed to the driver
connection under the SQLAlchemy one: pool, pragmas and transactions stay where they are, errors come
as the driver's own, which `Database` translates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql import ClauseElement

from storage.errors import StoreDamaged

_DIALECT = SQLiteDialect_pysqlite(paramstyle="named")


class HotStatement:
    """One Core statement, compiled once for SQLite with named parameters."""

    def __init__(self, statement: ClauseElement) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        # Constants of the expression; parameters of the caller have no value yet.
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        # Numbers go into the text: SQLite looks at a bound LIMIT while planning and so plans anew at
        # every execution (120 us instead of 40 for the walk, SQLite 3.53).
        numbers = {name: str(value) for name, value in fixed.items() if type(value) is int}
        self._text = re.sub(r":(\w+)", lambda found: numbers.get(found[1], found[0]), str(compiled))
        self._fixed = {name: value for name, value in fixed.items() if name not in numbers}

    def all(self, connection: Connection, **parameters: Any) -> list[Any]:
        """All rows, as tuples."""
        return list(self._execute(connection, parameters).fetchall())

    def first(self, connection: Connection, **parameters: Any) -> Any | None:
        """The first row, or None."""
        return self._execute(connection, parameters).fetchone()

    def one(self, connection: Connection, **parameters: Any) -> Any:
        """The row that must be there.

        Raises:
            StoreDamaged: it is not; foreign keys and one transaction would have kept it.
        """
        row = self.first(connection, **parameters)
        if row is None:
            raise StoreDamaged("the database lacks a row that others refer to")
        return row

    def scalar(self, connection: Connection, **parameters: Any) -> Any:
        """The first column of the first row, or None without one."""
        row = self.first(connection, **parameters)
        return None if row is None else row[0]

    def run(self, connection: Connection, **parameters: Any) -> int:
        """Change something; returns how many rows it touched."""
        return int(self._execute(connection, parameters).rowcount)

    def run_one(self, connection: Connection, **parameters: Any) -> None:
        """Change the row that must be there, once it was found under the same lock.

        Raises:
            StoreDamaged: nothing was touched: an index names what its table does not hold. Whoever goes on
                until nothing is left to do would never end.
        """
        if self.run(connection, **parameters) == 0:
            raise StoreDamaged("an index of the database names a row that is not there")

    def many(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run once for each set of parameters."""
        _driver(connection).executemany(self._text, [{**self._fixed, **row} for row in rows])

    def _execute(self, connection: Connection, parameters: Mapping[str, Any]) -> Any:
        return _driver(connection).execute(self._text, {**self._fixed, **parameters})


def text(value: object) -> str:
    """A column of text; SQLite takes what it finds in a page for what it is.

    Raises:
        TypeError: it is not, which the database makes a StoreDamaged of.
    """
    if not isinstance(value, str):
        raise TypeError("a column of text holds something else")
    return value


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
