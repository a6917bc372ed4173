"""Builds the app: settings -> engine -> routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import VERSION
from app.allocator import keep_freed_memory
from app.api import (
    leases,
    lookup,
    multipart,
    namespaces,
    problems,
    records,
    restore,
    states,
    system,
)
from app.api.admin import evictions, service
from app.api.admin import namespaces as admin_namespaces
from app.api.admin import states as admin_states
from app.api.asgi import RequestContext
from app.api.openapi import TAGS, install_schema
from app.engine.cache import Cache
from app.logs import configure
from app.settings import Settings
from storage.layout import DataFolder

_ROUTERS = (
    lookup.router,
    restore.router,
    states.router,
    namespaces.router,
    records.router,
    multipart.router,
    leases.router,
    admin_states.router,
    evictions.router,
    admin_namespaces.router,
    service.router,
    system.router,
)


def create_app() -> FastAPI:
    """The application of one worker process; its store is opened when the server starts it."""
    settings = Settings()
    configure(settings)
    keep_freed_memory(int(settings.buffer_bytes + settings.restore_buffer_bytes))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        folder = DataFolder(settings.data_dir)
        folder.prepare()
        cache = await asyncio.to_thread(Cache, settings, folder)
        app.state.cache = cache
        try:
            yield
        finally:
            await cache.close()

    app = FastAPI(
        title="Statehold",
        version=VERSION,
        summary="Exact-state prefix cache for LLM serving",
        openapi_tags=TAGS,
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.add_middleware(RequestContext)
    problems.install(app)
    for router in _ROUTERS:
        app.include_router(router)
    install_schema(app)
    return app
