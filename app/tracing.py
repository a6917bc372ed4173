"""Whether requests are traced: decided once at the start; where they are not, nothing of it is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import structlog
from fastapi import FastAPI

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_log = structlog.get_logger("statehold.tracing")


def trace_requests(app: FastAPI) -> Callable[[], None] | None:
    """Put the tracing layer around what the app has so far, if the environment says where traces go.

    A service without the extra `otel` runs untraced and says so: the variables are often set for all
    services of a machine alike.

    Returns:
        What sends the last spans and stops; not for the event loop. None if nothing is traced.
    """
    if not _wanted():
        return None
    try:
        from app.api.tracing import TracedRequests, Tracing
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        _log.warning("not_traced", reason="the extra `otel` is not installed")
        return None
    tracing = Tracing()
    app.add_middleware(TracedRequests, tracing=tracing)
    return tracing.close


def _wanted() -> bool:
    return (
        any(os.environ.get(name) for name in _ENDPOINTS)
        and os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"
        and os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() != "none"
    )
