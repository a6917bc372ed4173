"""Leaving the event loop for work that takes longer than about a millisecond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from app.engine.errors import EngineError, Refused, Unavailable
from storage.errors import Busy, DiskFull, StorageError, StoreDamaged, Unreadable, WriterFailed

# For people who ask over HTTP; the log and the next start say which file and how to get on.
DAMAGED: Final = "the metadata of the store is damaged: the operator has to restore or salvage it"

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


async def in_thread(pool: Executor, run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`run(*args, **kwargs)` on a thread of `pool`.

    Raises:
        Unavailable, Refused: the store is in trouble at this moment (busy, full, stopped).
        Whatever else `run` raises.
    """
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, partial(run, *args, **kwargs))
    except (Busy, DiskFull, StoreDamaged, Unreadable, WriterFailed) as error:
        raise trouble(error) from error


async def in_two(pool: Executor, work: Callable[[Sequence[T]], R], pieces: Sequence[T]) -> list[R]:
    """Do the work on two threads, half of the pieces each, in order; the first fault counts.

    While an answer waits for it, the other core has nothing to do.
    """
    half = (len(pieces) + 1) // 2
    results = await asyncio.gather(
        *(in_thread(pool, work, part) for part in (pieces[:half], pieces[half:]) if part),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def trouble(error: StorageError) -> EngineError | StorageError:
    """A trouble of the moment as callers of the engine see it; other errors as they are."""
    if isinstance(error, DiskFull):
        return Refused("low_space", "the device is full; lookups go on", retry_after_s=30)
    if isinstance(error, WriterFailed):
        return Unavailable("stopped", "the disk failed; recording goes on when it works again", 30)
    if isinstance(error, Busy):
        return Unavailable("busy", "the write lock of the store was not free in time", 1)
    if isinstance(error, Unreadable):
        return Unavailable("unreadable", "the store cannot be read at this moment", 5)
    if isinstance(error, StoreDamaged):
        return Unavailable("store_damaged", DAMAGED, 30)
    return error
