"""Traces go to an OpenTelemetry collector where one is named, and cost nothing where none is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.client import Client
from tests.support.server import Server

_ROOT = Path(__file__).parents[2]
_TRACE = "0af7651916cd43dd8448eb211c80319c"
_PARENT = "b7ad6b7169203331"


class Collector:
    """Takes OTLP over HTTP and keeps the spans."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.other_paths: list[str] = []
        kept, others = self.requests, self.other_paths

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/traces":
                    kept.append(ExportTraceServiceRequest.FromString(body))
                else:
                    others.append(self.path)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


@pytest.fixture
def traced(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    # FastAPI would then add spans and log records of its own.
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    server = Server(tmp_path / "data")
    server.start()
    yield server
    server.stop()


def _attributes(span: Span) -> dict[str, str | int]:
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}


def test_a_request_and_its_stages_are_spans_of_one_trace(
    traced: Server, collector: Collector
) -> None:
    with Client(traced.url) as client:
        client.record_full("a-namespace", [70_001, 70_002], b"x" * 300_000)
        answer = client.post(
            "/v1/restore",
            json={"candidates": [{"namespace": "a-namespace", "tokens": [70_001, 70_002]}]},
            headers={"traceparent": f"00-{_TRACE}-{_PARENT}-01"},
        )
        assert answer.status_code == 200
        client.get("/v1/states/01938c0d-e000-7000-8000-000000000000")
        client.get("/nowhere/at/all")
    traced.stop()
    spans = {span.name: span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER}
    restored = spans["POST /v1/restore"]
    assert restored.trace_id.hex() == _TRACE
    assert restored.parent_span_id.hex() == _PARENT
    attributes = _attributes(restored)
    assert attributes["http.request.method"] == "POST"
    assert attributes["http.route"] == "/v1/restore"
    assert attributes["http.response.status_code"] == 200
    assert attributes["statehold.request_id"] == answer.headers["x-request-id"]
    assert _attributes(spans["GET /v1/states/{state_id}"])["http.response.status_code"] == 404
    assert "unmatched" in spans

    def stages(parent: str) -> set[str]:
        found = [s for s in collector.spans if s.parent_span_id == spans[parent].span_id]
        for span in found:
            assert span.trace_id == spans[parent].trace_id
            assert spans[parent].start_time_unix_nano <= span.end_time_unix_nano
            assert span.start_time_unix_nano <= span.end_time_unix_nano
        return {span.name for span in found}

    assert stages("POST /v1/restore") == {"lookup", "lease", "reconstruct", "send"}
    assert stages("POST /v1/records") == {"admit"}
    assert stages("PUT /v1/records/{state_id}/components/{name}") == {"hash", "compress"}
    assert stages("POST /v1/records/{state_id}/commit") == {"commit"}
    # What the writer and the housekeeper do belongs to no request.
    servers = {span.span_id for span in spans.values()}
    assert all(s.parent_span_id in servers for s in collector.spans if s.kind != 2)


def test_spans_say_whose_they_are_and_nothing_that_a_client_wrote(
    traced: Server, collector: Collector
) -> None:
    with Client(traced.url) as client:
        client.record_full("a-namespace", [70_001, 70_002], b"x" * 1000)
        client.lookup("a-namespace", [70_001, 70_002])
        client.get("/secret-path")
    traced.stop()
    (resource,) = {
        request.resource_spans[0].resource.SerializeToString() for request in collector.requests
    }
    assert b"statehold" in resource
    assert b"deployment.environment.name" in resource
    everything = b"".join(request.SerializeToString() for request in collector.requests)
    assert collector.other_paths == []
    for secret in (b"a-namespace", b"70001", b"secret-path"):
        assert secret not in everything


def test_the_log_names_the_trace(traced: Server) -> None:
    with Client(traced.url) as client:
        client.get(
            "/v1/states/01938c0d-e000-7000-8000-000000000000",
            headers={"traceparent": f"00-{_TRACE}-{_PARENT}-01"},
        )
    assert f'"trace_id": "{_TRACE}"' in traced.logged()


def test_a_collector_that_is_gone_holds_up_neither_requests_nor_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    server = Server(tmp_path / "data")
    server.start()
    with Client(server.url) as client:
        client.record_full("ns", [1], b"x")
        began = time.monotonic()
        for _ in range(50):
            assert client.lookup("ns", [1])["hit"]
        assert time.monotonic() - began < 30
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 25


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_an_endpoint_nothing_of_it_is_there(environment: dict[str, str]) -> None:
    script = (
        "import sys; from app.main import build; from app.settings import Settings\n"
        "app = build(Settings())\n"
        "print([m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))],"
        " len(app.user_middleware))"
    )
    assert _run(script, environment).stdout.strip() == "[] 2"


def test_a_service_without_the_extra_runs_untraced_and_says_so() -> None:
    script = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from app.main import build; from app.settings import Settings\n"
        "print(len(build(Settings()).user_middleware))"
    )
    done = _run(script, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert done.stdout.splitlines()[-1] == "2"
    assert "not_traced" in done.stdout + done.stderr


def _run(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "STATEHOLD_"))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**kept, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
