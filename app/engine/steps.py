"""Work on many blocks in steps of a few megabytes, done on threads a few steps ahead of who takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, TypeVar

from app.engine.threads import in_thread

STEP_BYTES: Final = 4 << 20
# Enough to keep two threads busy while earlier steps are being sent.
_STEPS_AHEAD: Final = 3

T = TypeVar("T")
R = TypeVar("R")


def in_steps(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Items in groups of about STEP_BYTES."""
    group: list[T] = []
    size = 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= STEP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


async def read_ahead(
    pool: Executor, work: Callable[[T], R], steps: Iterable[T]
) -> AsyncGenerator[R, None]:
    """`work(step)` of each step, in order; close it to give up the steps under way."""
    waiting = iter(steps)
    ahead: deque[asyncio.Future[R]] = deque()
    try:
        while True:
            for step in waiting:
                ahead.append(asyncio.ensure_future(in_thread(pool, work, step)))
                if len(ahead) == _STEPS_AHEAD:
                    break
            if not ahead:
                return
            yield await ahead[0]
            ahead.popleft()
    finally:
        for future in ahead:
            future.cancel()
