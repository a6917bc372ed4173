"""The command as a function, a server with something in it, and servers that are none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.client import Client
from tests.support.command import Command
from tests.support.server import Server


@pytest.fixture
def statehold(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a file that change nothing another test looks at."""
    server = Server(tmp_path_factory.mktemp("shared") / "data")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def operator(server: Server) -> Iterator[Client]:
    """A plain client of the test's own server, to see what a command has done."""
    with Client(server.url) as client:
        yield client


Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def answering() -> Iterator[Callable[[Answer], str]]:
    """Start a server that answers every request in one way; gives its URL."""
    running: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = _answer

            def log_message(self, *_: object) -> None:
                pass

        httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        httpd.daemon_threads = True
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        running.append(httpd)
        return f"http://127.0.0.1:{httpd.server_address[1]}"

    yield start
    for httpd in running:
        httpd.shutdown()
        httpd.server_close()


def says(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Answer:
    """An answer of a status, a body and headers."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", headers.get("length", str(len(body))))
        for name, value in headers.items():
            if name == "length":
                continue
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def token_file(tmp_path: Path) -> Callable[[str], Path]:
    """A file with a token that only its owner can read."""

    def made(secret: str) -> Path:
        path = tmp_path / "token"
        path.write_text(f"{secret}\n")
        path.chmod(0o600)
        return path

    return made
