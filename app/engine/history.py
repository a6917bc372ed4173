"""Counters over time: what each of a fixed set grew by, minute for minute, for 48 hours.

Labels come from fixed sets (`Notes.count`), so a minute has a bounded number of rows and the table a
bounded size. Histogram buckets stay out: they are many, and a scraper of /metrics keeps them better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from app.engine.threads import in_thread
from storage.catalog import Catalog
from storage.clock import wall_ms
from storage.errors import StorageError
from storage.ledger import Ledger

REMEMBERED: Final = frozenset(
    {
        "admissions",
        "blocks_deduplicated",
        "blocks_written",
        "evictions",
        "failures_reported",
        "hit_tokens",
        "leases_opened",
        "leases_released",
        "lookups",
        "misses",
        "quarantine_released",
        "quarantines",
        "recorded_bytes",
        "records",
        "restored_bytes",
        "stored_bytes_written",
    }
)
KEPT_MINUTES: Final = 48 * 60
# A longer series is more than a chart can show; ask for longer steps.
MOST_STEPS: Final = 1440

_MINUTE_MS: Final = 60_000
# Minutes that a clock which was set back has left ahead of now.
_AHEAD_MINUTES: Final = 60
# A few thousand rows a transaction: the write lock is free again within milliseconds.
_TRIMMED_AT_ONCE_MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class Series:
    """What one counter grew by in each step, oldest first."""

    name: str
    label: str
    values: list[int]


@dataclass(frozen=True, slots=True)
class Course:
    """Series of one time axis: step i begins at `from_ms + i * step_ms` (wall clock)."""

    from_ms: int
    step_ms: int
    steps: int
    series: list[Series]


class History:
    """Reading counters over time."""

    def __init__(self, catalog: Catalog, flush: Callable[[], None], small: Executor) -> None:
        """
        Args:
            flush: writes what this process has counted since the last time.
        """
        self._catalog = catalog
        self._flush = flush
        self._small = small

    async def course(self, minutes: int, step_minutes: int, names: Iterable[str]) -> Course:
        """Growth over at least the last `minutes`, the current one included.

        Steps lie on whole multiples of their length since 1970, so that they hold the same minutes
        from one call to the next; the last one is not over yet.

        Args:
            minutes: 1 to 2880.
            step_minutes: length of a step; at most `MOST_STEPS` of them fit into `minutes`.
            names: counters; a series comes for each label with growth in that time.
        """
        return await in_thread(self._small, self._course, minutes, step_minutes, names)

    def _course(self, minutes: int, step_minutes: int, names: Iterable[str]) -> Course:
        with suppress(StorageError):  # without it the last second is missing
            self._flush()
        return course(self._catalog, minutes, step_minutes, names)


def course(catalog: Catalog, minutes: int, step_minutes: int, names: Iterable[str]) -> Course:
    """As `History.course`, of what has been flushed."""
    now = minute_now()
    first, last = (now - minutes + 1) // step_minutes, now // step_minutes
    steps = last - first + 1
    found: dict[tuple[str, str], list[int]] = {}
    rows = catalog.history(first * step_minutes, now, step_minutes, sorted(names))
    for step, name, label, growth in rows:
        found.setdefault((name, label), [0] * steps)[step - first] = growth
    return Course(
        from_ms=first * step_minutes * _MINUTE_MS,
        step_ms=step_minutes * _MINUTE_MS,
        steps=steps,
        series=[Series(name, label, values) for (name, label), values in found.items()],
    )


def grown(catalog: Catalog, name: str, minutes: int) -> dict[str, int]:
    """label -> what a counter grew by in exactly the last `minutes`, as flushed. For a thread."""
    return {
        series.label: sum(series.values) for series in course(catalog, minutes, 1, [name]).series
    }


def growth_to_remember(counts: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """The deltas that are worth a row in every minute."""
    return {key: value for key, value in counts.items() if key[0] in REMEMBERED and value}


def minute_now() -> int:
    """The minute of the wall clock, since 1970."""
    return wall_ms() // _MINUTE_MS


def trim(ledger: Ledger) -> bool:
    """Forget what is older than 48 hours, a part at a time; whether there is more."""
    now = minute_now()
    return ledger.trim_history(
        now - KEPT_MINUTES + 1, now + _AHEAD_MINUTES, _TRIMMED_AT_ONCE_MINUTES
    )
