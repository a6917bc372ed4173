"""`statehold health`: what a container's health check runs."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.conftest import ServerFactory
from tests.support.folders import statehold
from tests.support.server import Server, free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_it_finds_the_server_of_the_same_settings(start: ServerFactory, host: str) -> None:
    # A server that everybody may reach says so; the check needs no token.
    server = start(host=host, access="open")
    done = statehold(server.data, "health", host=host, port=server.port)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
    ready = statehold(server.data, "health", "--ready", "--json", host=host, port=server.port)
    assert json.loads(ready.stdout) == {"well": True, "status": 200, "reason": "200 OK"}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_an_address_of_all_interfaces_of_ipv6_is_asked_on_loopback(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", host="::", access="open")
    server.launch()
    try:
        for _ in range(60):
            done = statehold(server.data, "health", host="::", port=server.port)
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stderr
    finally:
        server.stop()


def test_it_needs_no_token_and_finds_a_socket(start: ServerFactory, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    server = start(socket=path, access="tokens")
    done = statehold(server.data, "health", socket=path)
    assert done.returncode == 0, done.stderr
    server.stop()
    done = statehold(server.data, "health", socket=path)
    assert done.returncode == 1
    assert "no answer" in done.stderr


@pytest.mark.parametrize("way", ["option", "variable"])
def test_it_asks_the_server_that_the_other_commands_would_ask(
    start: ServerFactory, tmp_path: Path, way: str
) -> None:
    server = start()
    elsewhere = free_port()
    if way == "option":
        done = statehold(tmp_path, "health", "--url", server.url, port=elsewhere)
    else:
        done = statehold(tmp_path, "health", port=elsewhere, url=server.url)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
    assert statehold(tmp_path, "health", port=elsewhere).returncode == 1


def test_no_server_is_one_sentence(tmp_path: Path) -> None:
    done = statehold(tmp_path, "health", port=free_port())
    assert done.returncode == 1
    assert done.stderr.startswith("statehold: /healthz: no answer: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # it touches no data folder


def test_what_speaks_no_http_is_not_well(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(30)
        port = other.getsockname()[1]
        done = statehold(tmp_path, "health", "--json", port=port)  # accepted, never answered
    assert done.returncode == 1
    assert json.loads(done.stdout)["well"] is False
