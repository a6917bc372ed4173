"""OpenTelemetry traces: a span for each request, and below it one for each stage of its work.

Imported only where an endpoint is set (`app/tracing.py`), with the libraries that the extra `otel` brings:
a process that is not traced has neither this layer nor them. Settings are OpenTelemetry's own environment
variables. Spans carry a route's template, a status and a request id: nothing that a client wrote, and no
text of an exception.

Spans wait in a bounded queue and are sent from a thread; those that do not fit are dropped, so that a
collector that is slow or gone holds up nothing but the end of the process, by its deadline at most.
"""

from __future__ import annotations

import time
from typing import Final

import structlog
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import VERSION
from app.api.intake import ClientGone
from app.engine.stages import Stage, on_stage

_NS: Final = 1_000_000_000


class Tracing:
    """The tracer of one process."""

    def __init__(self) -> None:
        resource = Resource({"service.name": "statehold", "service.version": VERSION})
        # What the environment says goes before.
        self._provider = TracerProvider(
            resource=resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer = self._provider.get_tracer("statehold", VERSION)

    def close(self) -> None:
        """Send what waits. Takes as long as the exporter's own deadline: not for the event loop."""
        self._provider.shutdown()


class TracedRequests:
    """A layer of the app, within the one that gives requests their ids."""

    def __init__(self, app: ASGIApp, *, tracing: Tracing) -> None:
        self._app = app
        self._tracer = tracing.tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request within its span."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parent = self._propagator.extract(
            {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in scope["headers"]
                if name in (b"traceparent", b"tracestate")
            }
        )
        span = self._tracer.start_span("request", parent, SpanKind.SERVER)
        within = trace.set_span_in_context(span)

        def stage_ended(stage: Stage, seconds: float) -> None:
            now = time.time_ns()
            child = self._tracer.start_span(
                stage.value, within, start_time=now - round(seconds * _NS)
            )
            child.end(now)

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(StatusCode.ERROR)
            await send(message)

        attached = context.attach(within)
        told = on_stage.set(stage_ended)
        structlog.contextvars.bind_contextvars(trace_id=f"{span.get_span_context().trace_id:032x}")
        try:
            await self._app(scope, receive, watched)
        except ClientGone:
            span.set_attribute("http.response.status_code", 499)
            raise
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            on_stage.reset(told)
            context.detach(attached)
            route = getattr(scope.get("route"), "path", None)
            span.update_name(f"{scope['method']} {route}" if route else "unmatched")
            if route:
                span.set_attribute("http.request.method", scope["method"])
                span.set_attribute("http.route", route)
            span.set_attribute("statehold.request_id", scope["state"]["request_id"])
            span.end()
