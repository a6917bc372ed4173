"""Durations as the command line takes and shows them. A leaf."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"^\s*(\d{1,12})\s*(s|m|h|d|w)?\s*$")
_STEPS: Final = ((86_400, "d"), (3600, "h"), (60, "min"))


def parse(text: str) -> int:
    """Seconds of "90", "90s", "15m", "12h", "7d" or "2w".

    Raises:
        ValueError: it is no duration.
    """
    found = _DURATION.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration: write seconds, or s, m, h, d, w as in 12h")
    number, unit = found.groups()
    return int(number) * _SECONDS[unit or "s"]


def about(seconds: float) -> str:
    """In the largest unit that it fills, for people: "45 s", "12 min", "3 h", "9 d"."""
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
