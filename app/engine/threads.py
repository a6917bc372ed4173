"""Leaving the event loop for work that takes longer than about a millisecond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(pool: Executor, run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`run(*args, **kwargs)` on a thread of `pool`."""
    return await asyncio.get_running_loop().run_in_executor(pool, partial(run, *args, **kwargs))
