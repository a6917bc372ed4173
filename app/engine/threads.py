"""Leaving the event loop for work that takes longer than about a millisecond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

from app.engine.errors import EngineError, Refused, Unavailable
from storage.errors import Busy, DiskFull, StorageError, WriterFailed

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(pool: Executor, run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`run(*args, **kwargs)` on a thread of `pool`.

    Raises:
        Unavailable, Refused: the store is in trouble at this moment (busy, full, stopped).
        Whatever else `run` raises.
    """
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, partial(run, *args, **kwargs))
    except (Busy, DiskFull, WriterFailed) as error:
        raise trouble(error) from error


def trouble(error: StorageError) -> EngineError | StorageError:
    """A trouble of the moment as callers of the engine see it; other errors as they are."""
    if isinstance(error, DiskFull):
        return Refused("low_space", "the device is full; lookups go on", retry_after_s=30)
    if isinstance(error, WriterFailed):
        return Unavailable("stopped", "the writer has stopped; restart to recover", 30)
    if isinstance(error, Busy):
        return Unavailable("busy", "the write lock of the store was not free in time", 1)
    return error
