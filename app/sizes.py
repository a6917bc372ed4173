"""Sizes, as settings, limits and the command line take them, and in IEC units as they show them. A leaf."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# As the type of sizes of the settings takes them (pydantic 2.14): GB and G are 10**9.
_FACTORS: Final = {
    **{unit.lower(): 1024**power for power, unit in enumerate(_UNITS)},
    **{f"{letter}{b}": 1000**power for power, letter in enumerate("kmgtp", 1) for b in ("", "b")},
}
_SIZE: Final = re.compile(r"^\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-z]*)\s*$", re.IGNORECASE | re.ASCII)


def exact(size_bytes: int) -> str:
    """In the largest unit that loses nothing: what is shown can be given back. 0 is "0B"."""
    power = 0
    while power < len(_UNITS) - 1 and size_bytes and size_bytes % 1024 == 0:
        size_bytes //= 1024
        power += 1
    return f"{size_bytes}{_UNITS[power]}"


def about(size_bytes: float) -> str:
    """To three digits, for people."""
    power = 0
    while power < len(_UNITS) - 1 and abs(size_bytes) >= 1000:
        size_bytes /= 1024
        power += 1
    digits = 0 if power == 0 or abs(size_bytes) >= 100 else 1 if abs(size_bytes) >= 10 else 2
    return f"{size_bytes:.{digits}f} {_UNITS[power]}"


def parse(text: str) -> int:
    """Bytes of "64GiB", "1.5 GiB", "100 GB" or "1048576".

    Raises:
        ValueError: it is no size.
    """
    found = _SIZE.match(text)
    factor = _FACTORS.get((found[2] or "b").lower()) if found is not None else None
    if found is None or factor is None:
        raise ValueError(
            f"{text!r} is no size: write bytes, or KiB, MiB, GiB, TiB as in 64GiB, or kB, MB, GB, TB"
        )
    number = found[1]
    return int(float(number) * factor) if "." in number else int(number) * factor
