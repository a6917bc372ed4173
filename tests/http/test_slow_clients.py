"""A slow or dead client costs nothing but its own record."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.conftest import ServerFactory
from tests.support import native
from tests.support.client import Client

SIZE = 24 << 20


@contextlib.contextmanager
def crowd(port: int, requests: list[bytes], piece: bytes) -> Iterator[list[socket.socket]]:
    """Clients that send a beginning, then trickle just above the minimum rate."""
    stop = threading.Event()
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in requests]
    for connection, request in zip(sockets, requests, strict=True):
        connection.sendall(request)

    def trickle() -> None:
        while not stop.wait(0.2):
            for connection in sockets:
                with contextlib.suppress(OSError):
                    connection.sendall(piece)

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield sockets
    finally:
        stop.set()
        thread.join()
        for connection in sockets:
            connection.close()


def beginning(path: str, size: int, body: bytes) -> bytes:
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + body


@pytest.mark.parametrize("form", ["plain", "windows", "blocks"])
def test_slow_uploads_do_not_hold_up_others(start: ServerFactory, form: str) -> None:
    """A dozen of them hold more than the whole budget between them, if they were let."""
    server = start(buffer_bytes="32MiB")
    raw = os.urandom(SIZE)
    geometry = {"full": {"rows": SIZE // 4096, "runs": [{"offset": 0, "stride": 4096}]}}
    blocks = native.cut(raw, None)
    with Client(server.url) as client:
        requests = []
        for token in range(12):
            admitted = client.admit(
                "slow",
                [token],
                "full_state",
                {"full": SIZE},
                **({"geometry": geometry} if form == "windows" else {}),
            )
            path = f"/v1/records/{admitted.json()['state_id']}/components/full"
            if form == "blocks":
                digests = [native.digest(block).hex() for block in blocks]
                client.post(f"{path}/need", json={"digests": digests})
                body = native.stream({n: native.value(block) for n, block in enumerate(blocks)})
                requests.append(beginning(f"{path}/blocks", len(body), body[:3_000_000]))
            else:
                requests.append(beginning(path, SIZE, raw[:3_000_000]))
        with crowd(server.port, requests, bytes(20_000)):
            time.sleep(2.5)
            started = time.monotonic()
            client.record_full("fast", [1], raw)
            assert time.monotonic() - started < 15, "it did not wait for the slow ones"
            assert client.restore("fast", [1]).content == raw


def test_a_slow_upload_that_ends_well_is_exact(start: ServerFactory) -> None:
    """Its batches go through the device; not a byte may get lost on the way."""
    server = start()
    raw = os.urandom(6_000_000)
    with Client(server.url) as client:

        def slowly() -> Iterator[bytes]:
            yield raw[:1_500_000]
            time.sleep(2.5)
            for at in range(1_500_000, 5_000_000, 500_000):
                yield raw[at : at + 500_000]
                time.sleep(0.5)
            yield raw[5_000_000:]

        admitted = client.admit("ns", [1], "full_state", {"full": len(raw)})
        state_id = admitted.json()["state_id"]
        assert client.upload(state_id, "full", slowly()).status_code == 200
        assert client.commit(state_id).status_code == 200
        assert client.restore("ns", [1]).content == raw
