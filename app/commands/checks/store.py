"""What a data folder's own rows say that other checks need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app import sizes
from app.commands.checks.finding import Finding, ok, warn
from app.engine.limits import CHANGEABLE, KEY, Effective, below
from app.settings import Settings
from storage.catalog import Catalog
from storage.metadata.database import Database


@dataclass(frozen=True, slots=True)
class Known:
    """Facts of a store, or what is so of a new one.

    Attributes:
        any_token: whether an access token was ever made.
        latest_ms: the latest wall clock time that it holds; None where it holds none.
        limits: the settings with what was changed at run time.
        changed: limits that were changed at run time: name, value in force, value of the setting.
        below: a sentence for each limit that is below what is held.
    """

    any_token: bool
    latest_ms: int | None
    limits: Settings
    changed: tuple[tuple[str, int | float, int | float], ...] = ()
    below: tuple[str, ...] = ()


def limits(known: Known) -> Iterator[Finding]:
    """Which limits go before their settings, and which are below what is held."""
    for name, value, configured in known.changed:
        show = sizes.about if name.endswith("_bytes") else "{:,}".format
        yield ok(
            "limits",
            f"{name} is {show(value)}, set at run time; the setting says {show(configured)} and does "
            "nothing (PATCH /admin/v1/limits with null goes back to it)",
        )
    for sentence in known.below:
        yield warn("limits", sentence)


def of_new(settings: Settings) -> Known:
    """Of a folder that holds nothing yet, or cannot be asked."""
    return Known(False, None, settings)


def ask(database: Path, settings: Settings) -> Known:
    """Of a database whose schema is that of this code."""
    opened = Database(database)
    try:
        catalog = Catalog(opened)
        limits = Effective(settings).of(catalog.setting(KEY))
        pairs = [(name, getattr(limits, name), getattr(settings, name)) for name in CHANGEABLE]
        return Known(
            catalog.any_token(),
            catalog.latest_ms(),
            limits,
            tuple(pair for pair in pairs if pair[1] != pair[2]),
            tuple(below(catalog.usage(), int(limits.budget_bytes), limits.max_entries)),
        )
    finally:
        opened.close()
