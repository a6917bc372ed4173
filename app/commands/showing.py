"""What commands print: aligned for people, one JSON document for scripts, and nothing that a terminal obeys.

Names, reasons and labels come from clients, and from whatever lies in a database. A character that is not
printable (control characters, escape sequences, marks that turn the direction of writing) is shown by its
number. JSON is written in ASCII, so it needs no more care.
"""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from app import durations


def safe(text: object) -> str:
    """Text as it may go to a terminal, on one line."""
    return "".join(c if c.isprintable() else _numbered(c) for c in str(text))


def as_json(document: Any) -> None:
    """One document on standard output."""
    print(json.dumps(document))


def say(text: object) -> None:
    """A sentence on standard error."""
    print(f"statehold: {safe(text)}", file=sys.stderr)


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], right: str = "") -> None:
    """Columns under headings.

    Args:
        right: headings of the columns of numbers, separated by commas.
    """
    numbers = right.split(",")
    cells = [[safe(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(_width(cell) for cell in column) for column in zip(*cells, strict=True)]
    for row in cells:
        columns = zip(headings, row, widths, strict=True)
        print("  ".join(_padded(cell, w, name in numbers) for name, cell, w in columns).rstrip())


def pairs(rows: Sequence[tuple[str, object]]) -> None:
    """Names and what they are, one a line; a pair without a value is left out."""
    shown = [(safe(name), safe(value)) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{name:{width}}  {value}".rstrip())


def counted(number: int, one: str) -> str:
    """A number of things: "1 state", "2 states"."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def tenant(name: str | None) -> str:
    """Whose something is, as people call it; None is everybody's."""
    return "whole store" if name is None else name or "default"


def age(at_ms: int | None) -> str:
    """How long ago, by this machine's clock."""
    return "-" if at_ms is None else durations.about(time.time() - at_ms / 1000)


def left(ends_at_ms: int) -> str:
    """How long until then, by this machine's clock."""
    return durations.about(ends_at_ms / 1000 - time.time())


def moment(at_ms: int | None) -> str:
    """A wall clock time, in UTC."""
    if at_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"


def _numbered(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def _width(text: str) -> int:
    """Columns of a terminal; wide characters take two and combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _padded(text: str, width: int, to_the_right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if to_the_right else text + space
