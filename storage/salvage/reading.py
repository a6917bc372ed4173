"""The child that copies rows of a damaged database: `python -m storage.salvage.reading COPY RESCUED TABLE...`

Forwards until a page cannot be read; then from the next row that can be, back to the gap and on. It knows the
tables by those of the new database, whose columns are all that it copies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from pysqlite3 import dbapi2

_MOST_GAPS: Final = 100_000
_MOST_ROWID: Final = 1 << 62


def _copied(source: Any, target: Any, name: str) -> str:
    """Copy what can be read; returns why not all of it could, "" if it could."""
    reader = _Reader(source, name)
    if name == "state_block":
        rows = reader.of_states([row for (row,) in target.execute("SELECT id FROM state")])
    else:
        rows = reader.of_rowids()
    known = {column[1] for column in target.execute(f'PRAGMA table_info("{name}")')}
    target.execute("BEGIN")
    for row in rows:
        kept = {column: value for column, value in row.items() if column in known}
        names = ", ".join(f'"{column}"' for column in kept)
        marks = ", ".join("?" for _ in kept)
        target.execute(f'INSERT INTO "{name}" ({names}) VALUES ({marks})', list(kept.values()))
    target.execute("COMMIT")
    return reader.stopped


class _Reader:
    """Rows of one table, as far as they go. `stopped` is the last error."""

    def __init__(self, source: Any, name: str) -> None:
        self._source = source
        self._name = name
        self._failed = False
        self.stopped = ""

    def of_rowids(self) -> Iterator[dict[str, Any]]:
        """All rows of a table that has row ids."""
        after = -1
        for _ in range(_MOST_GAPS):
            last = after
            for rowid, row in self._rows(f"rowid > {after} ORDER BY rowid"):
                last = rowid
                yield row
            if not self._failed:
                return
            first = self._first_behind(last)
            for _, row in self._rows(f"rowid > {last} AND rowid < {first} ORDER BY rowid DESC"):
                yield row
            if first == _MOST_ROWID:
                return
            after = first - 1

    def of_states(self, states: list[int]) -> Iterator[dict[str, Any]]:
        """The rows of each state, of a table that has no row ids."""
        for state in states:
            for _, row in self._rows(f"state = {state}", place="0"):
                yield row

    def _first_behind(self, last: int) -> int:
        """A row behind the gap after `last`: at most about as far behind it as it is wide."""
        step = 1
        while last + step < _MOST_ROWID:
            for rowid, _ in self._rows(f"rowid > {last + step} ORDER BY rowid LIMIT 1"):
                return rowid
            if not self._failed:
                break
            step *= 2
        return _MOST_ROWID

    def _rows(self, which: str, *, place: str = "rowid") -> Iterator[tuple[int, dict[str, Any]]]:
        self._failed = False
        try:
            cursor = self._source.execute(
                f'SELECT {place}, * FROM "{self._name}" NOT INDEXED WHERE {which}'
            )
            columns = [column[0] for column in cursor.description[1:]]
            while (row := cursor.fetchone()) is not None:
                yield row[0], dict(zip(columns, row[1:], strict=True))
        except (dbapi2.DatabaseError, OverflowError, UnicodeDecodeError) as error:
            self._failed = True
            self.stopped = str(error)


def main() -> None:
    """The child: a line for each table, with why it was not read to its end."""
    copy, rescued, *names = sys.argv[1:]
    source = dbapi2.connect(copy, isolation_level=None)
    source.text_factory = lambda text: text.decode(errors="replace")
    target = dbapi2.connect(rescued, isolation_level=None)
    target.execute("PRAGMA synchronous=OFF")
    for name in names:
        print(name, _copied(source, target, name), sep="\t", flush=True)


if __name__ == "__main__":
    main()
