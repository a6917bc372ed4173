"""Builds the app: settings -> engine -> routes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog
from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from app import VERSION
from app.allocator import keep_freed_memory
from app.api import (
    blocks,
    explain,
    leases,
    lookup,
    metrics,
    multipart,
    namespaces,
    pages,
    problems,
    records,
    restore,
    states,
    system,
)
from app.api.access import check_rights
from app.api.admin import (
    audit,
    evictions,
    history,
    jobs,
    limits,
    listing,
    pins,
    quarantine,
    service,
    tenants,
    tokens,
    tree,
)
from app.api.admin import namespaces as admin_namespaces
from app.api.admin import states as admin_states
from app.api.asgi import RequestContext
from app.api.hot import HotRoutes
from app.api.openapi import TAGS, install_schema
from app.collector import leave_out_what_is_there
from app.engine.cache import Cache
from app.logs import configure
from app.settings import Settings
from app.tracing import trace_requests
from storage.faults import note_faults, refuse_after_fault
from storage.layout import DataFolder

_log = structlog.get_logger("statehold.app")

_ROUTERS = (
    lookup.router,
    restore.router,
    explain.router,
    states.router,
    namespaces.router,
    records.router,
    blocks.router,
    multipart.router,
    leases.router,
    listing.router,
    admin_states.router,
    quarantine.router,
    evictions.router,
    pins.router,
    admin_namespaces.router,
    tree.router,
    service.router,
    limits.router,
    tokens.router,
    tenants.router,
    audit.router,
    jobs.router,
    metrics.router,
    history.router,
    system.router,
)

# FastAPI's own would show paths, queries and the text of exceptions, which hold what clients wrote, to
# whatever its environment variable or another library configures (0.165). Ours: app/tracing.py.
_NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}

# Asks the supervisor of several workers for a compaction; the variable names its process to them.
COMPACT_SIGNAL: Final = signal.SIGUSR1
SUPERVISOR_VARIABLE: Final = "_STATEHOLD_SUPERVISOR"

# Components put together are too large to be kept for the next one; their blocks are not.
_MOST_KEPT_BYTES: Final = 256 << 20


def create_app(
    renew: Callable[[], None] | None = None, compact: Callable[[], bool] | None = None
) -> FastAPI:
    """The application of one worker process, with the process's logs and allocator set up for it.

    Args:
        renew: called when another app has to take this one's place; without it the process ends, and
            the supervisor of the workers starts another.
        compact: called when the data folder has to be compacted between this app and the next; without it
            the supervisor of the workers is asked.
    """
    settings = Settings()
    configure(settings)
    keep_freed_memory(
        int(settings.buffer_bytes + min(settings.restore_buffer_bytes, _MOST_KEPT_BYTES))
    )
    return build(settings, renew or _end, compact or _ask_supervisor)


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _ask_supervisor() -> bool:
    """False if what started this process is not `app/server.py`, which alone knows the signal."""
    parent = os.getppid()
    if os.environ.get(SUPERVISOR_VARIABLE) != str(parent):
        return False
    os.kill(parent, COMPACT_SIGNAL)
    return True


def build(
    settings: Settings,
    renew: Callable[[], None] = _end,
    compact: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """The application alone; its store is opened when a server starts it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        folder = DataFolder(settings.data_dir)
        folder.prepare()
        refuse_after_fault(folder)
        note_faults(folder)
        cache = await asyncio.to_thread(Cache, settings, folder, renew, compact)
        app.state.cache = cache
        if cache.gate.open:
            _log.warning("access_is_open", host=settings.host, setting=settings.access)
        leave_out_what_is_there()
        try:
            yield
        finally:
            await cache.close()
            if stop_tracing is not None:
                await asyncio.to_thread(stop_tracing)

    app = FastAPI(
        title="Statehold",
        version=VERSION,
        summary="Exact-state prefix cache for LLM serving",
        openapi_tags=TAGS,
        docs_url=None,  # app/api/pages.py serves it, without another host
        redoc_url=None,
        redirect_slashes=False,  # it would lead to whatever the client's Host field names
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
    )
    app.state.settings = settings
    app.add_middleware(HotRoutes, of=app, posts={"/v1/lookup": lookup.lookup})
    stop_tracing = trace_requests(app)
    app.add_middleware(RequestContext)
    problems.install(app)
    for router in _ROUTERS:
        app.include_router(router)
    check_rights(_ROUTERS)
    app.include_router(pages.router)  # files for everybody; what they show has its rights above
    install_schema(app)
    return app
