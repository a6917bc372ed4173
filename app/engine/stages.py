"""How long the stages of the work take: as histograms always, as spans where a request is traced.

Whoever traces a request sets `on_stage` in its context; threads and requests that are not traced have
none, and then asking costs 50 ns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar
from enum import StrEnum
from functools import partial
from typing import Final, ParamSpec, TypeVar

from app.engine.histograms import Histogram
from app.engine.notes import Notes
from app.engine.threads import in_thread

P = ParamSpec("P")
T = TypeVar("T")


class Stage(StrEnum):
    """A part of the work, and from when to when it is measured."""

    LOOKUP = "lookup"
    """from the parsed request to the state found, or to the reason why there is none"""
    LEASE = "lease"
    """from asking for the lease that holds a found state to its commit"""
    RECONSTRUCT = "reconstruct"
    """the first pass over a found state, before its answer begins"""
    SEND = "send"
    """from the first byte to the last of an answer that was sent whole; the client's pace is in it"""
    ADMIT = "admit"
    """from the parsed request to the answer whether it may be recorded"""
    HASH = "hash"
    """digests of one batch of about 4 MiB; of blocks that come as stored, their proof"""
    COMPRESS = "compress"
    """one batch of about 4 MiB: looking up what is held, compressing what is not"""
    WRITE = "write"
    """one round of the writer: batches owned, and written to the block store"""
    COMMIT = "commit"
    """from asking for it to durable: what waits in the queue, the barrier and the commit"""


_US: Final = 1_000_000
SECONDS: Final = Histogram(
    "stage_us",
    tuple(stage.value for stage in Stage),
    (
        *(50, 100, 250, 500),
        *(1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
        *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000),
    ),
)

on_stage: Final[ContextVar[Callable[[Stage, float], None] | None]] = ContextVar(
    "on_stage", default=None
)


class Stages:
    """The stopwatch of one part of the engine."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def observe(self, stage: Stage, seconds: float) -> None:
        """A stage took so long and ends now."""
        SECONDS.observe(self._notes, stage, round(seconds * _US))
        told = on_stage.get()
        if told is not None:
            told(stage, seconds)

    def since(self, stage: Stage, started: float) -> float:
        """A stage that began at that `time.perf_counter()` ends now; returns milliseconds."""
        seconds = time.perf_counter() - started
        self.observe(stage, seconds)
        return seconds * 1000

    async def in_thread(
        self, stage: Stage, pool: Executor, run: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`threads.in_thread`, measured on the thread: what waits for a free one is not in it."""
        result, seconds = await in_thread(pool, _timed, partial(run, *args, **kwargs))
        self.observe(stage, seconds)
        return result


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began
