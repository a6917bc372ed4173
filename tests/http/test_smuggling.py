"""Requests that two readers could read in two ways, and values that try to become headers.

Proxies and servers that disagree on where a request ends can be made to take one client's bytes for a
request of another one (RFC 9112, section 11.2). Each case here carries such a request within another one; it
must never be answered.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.client import Client, prefix
from tests.support.server import Server

_INNER = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: smuggled\r\n\r\n"
_END = b"0\r\n\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_CHUNK = b"5\r\nhello\r\n"


def _length(body: bytes, name: bytes = b"Content-Length: ") -> bytes:
    return b"%s%d\r\n" % (name, len(body))


@dataclass(frozen=True)
class Answer:
    """One answer of a connection."""

    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("smuggling") / "data")
    server.start()
    yield server
    with Client(server.url) as client:
        assert client.get("/healthz").status_code == 200
    server.stop()
    assert "smuggled" not in server.logged()
    assert '"level": "error"' not in server.logged()
    assert "Traceback" not in server.logged()


def _answers(server: Server, *parts: bytes, until: int = 100) -> tuple[list[Answer], bool]:
    """What comes to these parts, each sent on its own, and whether the connection was closed then.

    It is read until it is closed, or `until` answers have come and it says nothing more.
    """
    got = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        for part, following in pairwise([*parts, b""]):
            raw.sendall(part)
            if following:
                time.sleep(0.05)
        while True:
            raw.settimeout(0.2 if got.count(b"HTTP/1.1 ") >= until else 10)
            try:
                chunk = raw.recv(65536)
            except TimeoutError:
                return _split(got), False
            except ConnectionResetError:
                return _split(got), True
            if not chunk:
                return _split(got), True
            got += chunk


def _split(got: bytes) -> list[Answer]:
    found = []
    while got:
        head, separator, rest = got.partition(b"\r\n\r\n")
        assert separator, got
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert len(headers) == len(lines), "a header came twice"
        size = int(headers["content-length"])
        found.append(Answer(int(first.split()[1]), headers, rest[:size]))
        got = rest[size:]
    return found


def _post(extra: bytes, body: bytes, path: bytes = b"/v1/lookup") -> bytes:
    return (
        b"POST "
        + path
        + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        + extra
        + b"\r\n"
        + body
    )


# By what is wrong with it: headers and a body that holds another request.
_AMBIGUOUS = {
    "a length and chunks": (_length(_END + _INNER) + _CHUNKED, _END + _INNER),
    "chunks and a length": (_CHUNKED + _length(_END + _INNER), _END + _INNER),
    "no length and chunks": (b"Content-Length: 0\r\n" + _CHUNKED, _END + _INNER),
    "two lengths": (_length(_INNER) + b"Content-Length: 0\r\n", _INNER),
    "one length twice": (_length(_INNER) * 2, _INNER),
    "a list of lengths": (b"Content-Length: 5, 5\r\n", b"hello" + _INNER),
    "a list of unlike lengths": (b"Content-Length: 0, 60\r\n", _INNER),
    "a length with a sign": (b"Content-Length: +5\r\n", b"hello" + _INNER),
    "a negative length": (b"Content-Length: -5\r\n", b"hello" + _INNER),
    "a hexadecimal length": (b"Content-Length: 0x5\r\n", b"hello" + _INNER),
    "a length with a space": (b"Content-Length: 5 5\r\n", b"hello" + _INNER),
    "a length beyond 64 bits": (b"Content-Length: 18446744073709551621\r\n", b"hello" + _INNER),
    "an empty length": (b"Content-Length: \r\n", _INNER),
    "a space behind a length's name": (_length(_INNER, b"Content-Length : "), _INNER),
    "a space behind a coding's name": (b"Transfer-Encoding : chunked\r\n", _END + _INNER),
    "an unknown coding": (b"Transfer-Encoding: xchunked\r\n", _END + _INNER),
    "the coding that does nothing": (b"Transfer-Encoding: identity\r\n", _INNER),
    "chunks that are not last": (b"Transfer-Encoding: chunked, identity\r\n", _END + _INNER),
    "chunks of another coding": (b"Transfer-Encoding: gzip, chunked\r\n", _END + _INNER),
    "chunks of chunks": (b"Transfer-Encoding: chunked, chunked\r\n", _END + _INNER),
    "chunks twice": (_CHUNKED * 2, _END + _INNER),
    "a vertical tab": (b"Transfer-Encoding:\x0bchunked\r\n", _END + _INNER),
    "a quoted coding": (b'Transfer-Encoding: "chunked"\r\n', _END + _INNER),
    "a folded coding": (b"Transfer-Encoding:\r\n chunked\r\n", _END + _INNER),
    "a folded header": (b"X: a\r\n Transfer-Encoding: chunked\r\n", _END + _INNER),
    "a line feed alone": (b"X: a\nTransfer-Encoding: chunked\r\n", _END + _INNER),
    "a header that line feeds end": (b"X: a\n\n", _INNER),
    "a carriage return alone": (b"X: a\rTransfer-Encoding: chunked\r\n", _END + _INNER),
    "a NUL in a value": (b"X: a\0b\r\n", _INNER),
    "a NUL in a name": (b"X\0: a\r\n", _INNER),
    "a line without a colon": (b"Transfer-Encoding chunked\r\n", _END + _INNER),
    "a header without a name": (b": a\r\n", _INNER),
    "a second host": (b"Host: y\r\n", _INNER),
    "a chunk's size with 0x": (_CHUNKED, b"0x5\r\nhello\r\n" + _END + _INNER),
    "a negative chunk": (_CHUNKED, b"-5\r\nhello\r\n" + _END + _INNER),
    "a chunk's size with a sign": (_CHUNKED, b"+5\r\nhello\r\n" + _END + _INNER),
    "a space before a chunk's size": (_CHUNKED, b" 5\r\nhello\r\n" + _END + _INNER),
    "a space behind a chunk's size": (_CHUNKED, b"5 \r\nhello\r\n" + _END + _INNER),
    "chunks that line feeds end": (_CHUNKED, b"5\nhello\n0\n\n" + _INNER),
    "a line feed in a chunk's extension": (_CHUNKED, b"5;a\nb\r\nhello\r\n" + _END + _INNER),
    "a chunk beyond 64 bits": (_CHUNKED, b"10000000000000005\r\nhello\r\n" + _END + _INNER),
    "more than a chunk's size": (_CHUNKED, b"3\r\nhello\r\n" + _END + _INNER),
    "less than a chunk's size": (_CHUNKED, b"9\r\nhello\r\n" + _END + _INNER),
    "a chunk without a size": (_CHUNKED, b"\r\n\r\n" + _INNER),
}


@pytest.mark.parametrize("wrong", list(_AMBIGUOUS))
def test_what_can_be_read_in_two_ways_is_refused(server: Server, wrong: str) -> None:
    extra, body = _AMBIGUOUS[wrong]
    for request in (_post(extra, body), _post(extra, body).replace(b"POST", b"GET", 1)):
        answers, closed = _answers(server, request)
        assert [(answer.status, json.loads(answer.body)["code"]) for answer in answers] == [
            (400, "invalid_http")
        ]
        assert closed, "what follows may be anything"


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
        b"POST /v1/lookup HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + _END,
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/1.2\r\nHost: x\r\n\r\n",
        b"GET /healthz\nHost: x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=[
        "no host",
        "two hosts",
        "two hosts in 1.0",
        "chunks in 1.0",
        "0.9",
        "1.2",
        "a line feed in the path",
        "2.0",
        "CONNECT",
        "CONNECT with a body",
    ],
)
def test_other_protocols_and_hosts_are_refused(server: Server, request_: bytes) -> None:
    answers, closed = _answers(server, request_ + _INNER)
    assert [(answer.status, json.loads(answer.body)["code"]) for answer in answers] == [
        (400, "invalid_http")
    ]
    assert closed


def test_a_client_of_http_1_0_is_served(server: Server) -> None:
    """A load balancer's check may send neither a host nor a length."""
    answers, closed = _answers(server, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert ([answer.status for answer in answers], closed) == ([200], True)


# ---- upgrades ----------------------------------------------------------------------------------

_UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "any": b"connection: keep-alive, upgrade\r\nUPGRADE: any/1\r\n",
}
_LOOKUP = json.dumps({"candidates": [prefix("ns", [1, 2, 3])]}).encode()
_FRAMES = {
    "length": (_length(_LOOKUP), _LOOKUP),
    "chunks": (_CHUNKED, b"%x\r\n" % len(_LOOKUP) + _LOOKUP + b"\r\n" + _END),
}
_NEXT = _post(b"X-Request-Id: next\r\n" + _length(_LOOKUP), _LOOKUP)


@pytest.mark.parametrize("upgrade", list(_UPGRADES))
@pytest.mark.parametrize("frame", list(_FRAMES))
@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
def test_an_upgrade_is_not_granted_and_costs_no_body(
    server: Server, upgrade: str, frame: str, apart: bool
) -> None:
    extra, body = _FRAMES[frame]
    header = _post(_UPGRADES[upgrade] + b"X-Request-Id: first\r\n" + extra, b"")
    sent = [header, body, _NEXT] if apart else [header + body + _NEXT]
    answers, closed = _answers(server, *sent, until=2)
    assert [answer.status for answer in answers] == [200, 200]
    assert [answer.headers["x-request-id"] for answer in answers] == ["first", "next"]
    assert all(json.loads(answer.body)["hit"] is False for answer in answers)
    assert not closed


def test_a_body_behind_an_upgrade_is_no_request(server: Server) -> None:
    header = _post(_UPGRADES["h2c"] + _length(_INNER), b"")
    answers, _ = _answers(server, header, _INNER, until=1)
    assert [json.loads(answer.body)["code"] for answer in answers] == ["invalid_json"]


def test_bytes_are_recorded_whole_behind_an_upgrade(server: Server) -> None:
    data = bytes(range(256)) * 1000
    with Client(server.url) as client:
        state_id = client.admit("upgraded", [1], "full_state", {"full": len(data)}).json()[
            "state_id"
        ]
        put = f"PUT /v1/records/{state_id}/components/full HTTP/1.1\r\nHost: x\r\n".encode()
        answers, _ = _answers(
            server, put + _UPGRADES["h2c"] + _length(data) + b"\r\n" + data, until=1
        )
        assert [answer.status for answer in answers] == [200]
        assert client.commit(state_id).status_code == 200
        assert client.restore("upgraded", [1]).content == data
        client.post("/admin/v1/evictions", json={"namespace": "upgraded", "all": True})


def test_many_upgrades_in_one_packet_take_no_more_than_their_time(server: Server) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + _UPGRADES["any"] + b"\r\n"
    answers, _ = _answers(server, one * 200, until=200)
    assert [answer.status for answer in answers] == [200] * 200


# ---- what follows a whole request --------------------------------------------------------------


@pytest.mark.parametrize(
    "behind", [b"\x16\x03\x01 no HTTP", b"GET /" + b"y" * 9000], ids=["no HTTP", "a long URL"]
)
def test_a_whole_request_is_answered_whatever_follows_in_its_packet(
    server: Server, behind: bytes
) -> None:
    answers, closed = _answers(server, _NEXT + _NEXT + behind)
    assert [answer.status for answer in answers] == [200, 200]
    assert [answer.headers.get("connection") for answer in answers] == [None, "close"]
    assert closed


# ---- values that would be headers --------------------------------------------------------------

_BREAKS = ["a\r\nX-Injected: 1", "a\nX-Injected: 1", "a\rX-Injected: 1", "a\0X-Injected: 1"]


def _no_injection(answers: list[Answer]) -> None:
    for answer in answers:
        assert "x-injected" not in answer.headers
        assert not re.search(rb"[\r\n\0]", answer.headers.get("x-request-id", "").encode())


@pytest.mark.parametrize("value", _BREAKS, ids=repr)
def test_no_value_becomes_a_header(server: Server, value: str) -> None:
    """In names that come back in headers: of namespaces, components, states and leases."""
    escaped = "".join(f"%{byte:02x}" for byte in value.encode())
    for target in (
        f"/{escaped}",
        f"/v1/states/{escaped}",
        f"/v1/states/{escaped}/components/full",
        f"/v1/states/01938c0d-e000-7000-8000-000000000000/components/{escaped}",
        f"/v1/healthz/{escaped}/",
        f"/admin/v1/jobs/{escaped}",
        f"/healthz?{escaped}={escaped}",
    ):
        request = f"GET {target} HTTP/1.1\r\nHost: x\r\nX-Request-Id: {escaped}\r\n\r\n"
        answers, _ = _answers(server, request.encode(), until=1)
        assert len(answers) == 1
        _no_injection(answers)


def test_names_of_a_state_that_come_back_in_headers_are_one_line(server: Server) -> None:
    name = 'größe, "q"; a=b\\\' %0d%0aX-Injected: 1'
    content = json.dumps({"candidates": [prefix(name, [1, 2])]}).encode()
    request = _post(_length(content), content, b"/v1/restore")
    with Client(server.url) as client:
        client.record_full(name, [1, 2], b"payload")
        answers, _ = _answers(server, request, until=1)
        client.post("/admin/v1/evictions", json={"namespace": name, "all": True})
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"payload")]
    _no_injection(answers)


def test_a_forged_host_is_led_nowhere(server: Server) -> None:
    for target in (b"/v1/stats/", b"//evil.example/healthz", b"/healthz/"):
        answers, _ = _answers(
            server, b"GET " + target + b" HTTP/1.1\r\nHost: evil.example\r\n\r\n", until=1
        )
        assert [answer.status for answer in answers] == [404]
        assert "location" not in answers[0].headers
        assert b"evil.example" not in answers[0].body


def test_the_log_has_one_line_a_request_whatever_is_asked(server: Server) -> None:
    """Everything that a client can name is in JSON, so that nobody can write a line of his own."""
    forged = '%0a{"event": "forged"}'.replace(" ", "%20").replace('"', "%22")
    _answers(server, f"GET /{forged} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), until=1)
    lines = Path(server.log).read_text().splitlines()
    assert all(json.loads(line)["event"] != "forged" for line in lines)
