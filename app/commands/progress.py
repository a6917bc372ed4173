"""How far a command is, on a terminal's standard error and nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from app import sizes
from app.commands.showing import counted

_EVERY_SECONDS: Final = 0.2
_BAR: Final = 24


@contextmanager
def shown(what: str, unit: str = "bytes") -> Iterator[Callable[[int, int], None]]:
    """A function to call with (done, total) in the unit; the line is gone afterwards."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    said = 0.0

    def say(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _EVERY_SECONDS:
            said = time.monotonic()
            print(f"\r{line(what, done, total, unit)}", end="\x1b[K", file=sys.stderr, flush=True)

    try:
        yield say
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def line(what: str, done: int, total: int, unit: str) -> str:
    """The line: what, a bar, the part, and of how much."""
    part = min(1.0, done / total) if total else 1.0
    full = int(part * _BAR)
    of = sizes.about(total) if unit == "bytes" else counted(total, unit.removesuffix("s"))
    return f"{what} [{'#' * full}{'-' * (_BAR - full)}] {int(100 * part):3} % of {of}"
