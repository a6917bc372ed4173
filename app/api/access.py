"""What routes are given: the cache of this process, found in the app's state."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request

from app.api.schemas.common import EXAMPLE_ID, UUID_PATTERN
from app.engine.cache import Cache


def cache_of(request: Request) -> Cache:
    """The cache that serves this request. Called by the hot routes, which cannot afford the 50 us
    that FastAPI takes to solve a dependency."""
    cache: Cache = request.app.state.cache
    return cache


async def _cache(request: Request) -> Cache:
    return cache_of(request)


CacheDep = Annotated[Cache, Depends(_cache)]
StateId = Annotated[
    str, Path(pattern=UUID_PATTERN, description="A state id (UUID).", examples=[EXAMPLE_ID])
]
LeaseId = Annotated[
    str, Path(pattern=UUID_PATTERN, description="A lease id (UUID).", examples=[EXAMPLE_ID])
]
