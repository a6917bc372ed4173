"""What a check has found. A leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: how it ended, and one sentence that says what to do where something is to be done.

    `fail`: the service does not start, or cannot keep what it promises. `warn`: it does, for now or as long as
    it is meant so.
    """

    check: str
    level: Level
    detail: str


def ok(check: str, detail: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", detail)


def warn(check: str, detail: str) -> Finding:
    """Somebody should look at it."""
    return Finding(check, "warn", detail)


def fail(check: str, detail: str) -> Finding:
    """It has to be mended."""
    return Finding(check, "fail", detail)
