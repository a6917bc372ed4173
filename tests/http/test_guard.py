"""The connection guard: fat and silent clients are cut off, honest ones do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from app.api import guard
from tests.conftest import ServerFactory
from tests.support.client import Client
from tests.support.server import Server


def _connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def _answer(raw: socket.socket) -> bytes:
    found = b""
    while chunk := raw.recv(65536):
        found += chunk
    return found


def test_a_header_block_without_end_is_cut_off_before_memory_grows(server: Server) -> None:
    with _connect(server) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < 64 << 20:
                raw.sendall(b"X-Fill: " + b"y" * 8000 + b"\r\n")
                sent += 8000
        except OSError:
            pass
        assert sent < 16 << 20
    status = Path(f"/proc/{server.pid}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < 400 << 10


def test_a_large_header_block_gets_431(server: Server) -> None:
    with _connect(server) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"y" * (guard.MOST_HEADER_BYTES + 100))
        found = _answer(raw)
    assert found.startswith(b"HTTP/1.1 431 ")
    assert json.loads(found.split(b"\r\n\r\n")[1])["code"] == "header_too_large"


def test_a_long_url_gets_414(server: Server) -> None:
    with _connect(server) as raw:
        raw.sendall(b"GET /" + b"y" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        found = _answer(raw)
    assert found.startswith(b"HTTP/1.1 414 ")
    head, body = found.split(b"\r\n\r\n")
    problem = json.loads(body)
    assert problem["code"] == "url_too_long"
    assert f"x-request-id: {problem['request_id']}".encode() in head.split(b"\r\n")
    assert problem["request_id"] in server.logged()


def test_half_a_header_is_cut_off_in_time(server: Server) -> None:
    with _connect(server) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        started = time.monotonic()
        assert _answer(raw) == b""
        assert time.monotonic() - started < guard.HEADER_TIME_S + 5


def test_keep_alive_requests_do_not_add_up_to_a_large_header(client: Client) -> None:
    for _ in range(30):
        assert client.get("/healthz", headers={"X-Fill": "y" * 4000}).status_code == 200


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    with _connect(server) as raw:
        one = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\n\r\n"
        raw.sendall(b"".join(one % n for n in range(5)))
        found = b""
        while found.count(b"x-request-id") < 5:
            found += raw.recv(65536)
    positions = [found.index(b"x-request-id: %d" % n) for n in range(5)]
    assert positions == sorted(positions)


def test_a_body_that_stalls_is_cut_off_and_leaves_nothing(start: ServerFactory) -> None:
    server = start(idle_timeout_s=1)
    with Client(server.url) as client:
        admitted = client.admit("ns", [1], "full_state", {"full": 1 << 20})
        state_id = admitted.json()["state_id"]
        with _connect(server) as raw:
            raw.sendall(
                f"PUT /v1/records/{state_id}/components/full HTTP/1.1\r\nHost: x\r\n"
                f"Content-Length: {1 << 20}\r\n\r\n".encode()
            )
            raw.sendall(b"x" * 1000)
            assert raw.recv(65536).startswith(b"HTTP/1.1 408 ")
        assert client.upload(state_id, "full", b"y" * (1 << 20)).status_code == 200


@pytest.mark.parametrize("size", [64 << 20])
def test_a_reader_that_stalls_is_cut_off_and_its_lease_freed(
    start: ServerFactory, size: int
) -> None:
    server = start(idle_timeout_s=1)
    with Client(server.url) as client:
        data = b"".join(n.to_bytes(8, "little") for n in range(size // 8))
        state_id = client.record_full("ns", [1], data)
        with _connect(server) as raw:
            raw.sendall(
                f"GET /v1/states/{state_id}/components/full HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )
            time.sleep(0.5)
            assert client.stats()["leases_held"] == 1
            deadline = time.monotonic() + 15
            while client.stats()["leases_held"]:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            try:
                got = len(_answer(raw))
            except ConnectionResetError:
                got = 0
            assert got < size, "cut off, never padded"


_HALF = 200_000
_bodies: dict[str, bytes] = {}


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Answers late, early, or after it has claimed a body: what the service's routes do only by chance."""
    body = b""
    if scope["path"] == "/claim":
        message = await receive()
        body = message["body"]
        await asyncio.sleep(0.5)
        if message["more_body"]:
            queue = scope["extensions"]["statehold.body"]["claim"]()
            while piece := await queue.get(5):
                body += piece
        _bodies[scope["query_string"].decode()] = body
    elif scope["path"] == "/whole":
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        body = json.dumps([name.decode() for name, _ in scope["headers"]]).encode()
    size = 2 * _HALF if scope["path"] == "/stream" else len(body)
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", str(size).encode())],
        }
    )
    if scope["path"] == "/stream":
        await send({"type": "http.response.body", "body": b"a" * _HALF, "more_body": True})
        await asyncio.sleep(0.6)
        body = b"a" * _HALF
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of the guard alone in front of `_app`, with short times."""
    monkeypatch.setattr(guard, "HEADER_TIME_S", 1.0)
    monkeypatch.setattr(guard, "IDLE_TIME_S", 1.0)
    _bodies.clear()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            _app,
            http=guard.GuardedProtocol,
            loop="uvloop",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=60,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = server.force_exit = True
        thread.join(10)
        assert not thread.is_alive()


def _to(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_header_end_split_between_two_reads_is_seen(bare: int) -> None:
    body = b"z" * 60_000
    for cut in (1, 2, 3):
        with _to(bare) as raw:
            header = b"POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\nConnection: close\r\n\r\n"
            raw.sendall(header[:-cut])
            time.sleep(0.1)
            raw.sendall(header[-cut:] + body)
            assert _answer(raw).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "behind",
    [
        b"GET /x HTTP/1.1\r\nX: " + b"y" * 100_000,
        b"GET /" + b"y" * 9_000 + b" HTTP/1.1\r\n\r\n",
        b"this is not HTTP\r\n\r\n",
    ],
    ids=["fat header", "long url", "garbage"],
)
def test_a_refusal_is_never_written_into_an_answer_under_way(bare: int, behind: bytes) -> None:
    with _to(bare) as raw:
        raw.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.2)
        with contextlib.suppress(OSError):
            raw.sendall(behind)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := raw.recv(65536):
                found += chunk
    body = found.partition(b"\r\n\r\n")[2]
    assert body == b"a" * 2 * _HALF, "neither cut off nor padded"


def test_a_claimed_body_never_takes_bytes_of_the_request_behind_it(bare: int) -> None:
    with _to(bare) as raw:
        raw.sendall(b"PUT /claim?one HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n11111")
        time.sleep(0.1)
        raw.sendall(b"11111PUT /claim?two HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n22222")
        found = b""
        while found.count(b"HTTP/1.1 200 ") < 2 and (chunk := raw.recv(65536)):
            found += chunk
    assert _bodies == {"one": b"1111111111", "two": b"22222"}


@pytest.mark.parametrize("rest", [b"0123456789", b"01234"], ids=["all", "half"])
def test_silence_behind_an_early_answer_is_cut_off(bare: int, rest: bytes) -> None:
    with _to(bare) as raw:
        raw.sendall(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")
        raw.sendall(rest)
        assert raw.recv(65536) == b""


def test_trailers_are_bounded_and_do_not_become_headers(bare: int) -> None:
    start = (
        b"POST /whole HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    )
    with _to(bare) as raw:
        raw.sendall(start)
        time.sleep(0.1)
        raw.sendall(b"X-Late: 1\r\n\r\n")
        answer = raw.recv(65536)
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == ["host", "transfer-encoding"]
    with _to(bare) as raw:
        raw.sendall(start)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 64 << 20:
                raw.sendall(b"X-Fill: " + b"y" * 8000 + b"\r\n")
                sent += 8000
        assert sent < 16 << 20


def test_a_body_in_bad_chunks_gets_400(bare: int) -> None:
    with _to(bare) as raw:
        raw.sendall(
            b"POST /whole HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
        )
        time.sleep(0.1)
        raw.sendall(b"no chunk\r\n")
        found = _answer(raw)
    assert found.startswith(b"HTTP/1.1 400 ")
    assert json.loads(found.partition(b"\r\n\r\n")[2])["code"] == "invalid_http"
