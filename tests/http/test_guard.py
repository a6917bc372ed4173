"""The connection guard: fat and silent clients are cut off, honest ones do not notice."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

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
    assert json.loads(found.split(b"\r\n\r\n")[1])["code"] == "url_too_long"


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
