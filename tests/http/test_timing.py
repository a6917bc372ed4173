"""Can a tenant tell by time what another tenant holds? Ranks of many answers to both kinds of question.

The kinds are asked in random order on one connection. What is answered must be the same: status, names and
values of headers, body, and sizes. The area under the curve (AUC, from Mann and Whitney's U) says how well the
times tell them apart: 0.5 not at all, 1 always. A server that looks up 0.2 ms longer where another tenant holds
the prefix must be found out.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.load import connect, exchange
from storage.catalog import Catalog
from tests.http.test_access import make, with_token
from tests.http.test_workers import noise
from tests.support import native
from tests.support.client import Client, prefix
from tests.support.server import Server

_MOST_AUC = 0.55
_EVERY = ("lookup", "record", "admin:read", "admin:write")
_ROW = 2048
_BLOCKS = 64 * _ROW  # one window
_WARM = 50
_LONG_S = 86_400

# What a tenant asks: gets whether another one holds it, and a number; returns a request.
Ask = Callable[[bool, int], bytes]

# What differs between two answers to one question too.
_OF_ONE_ANSWER = {b"date", b"x-request-id", b"server-timing", b"content-length"}
_ID = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_MEASURED = re.compile(rb'"(lookup_ms|expires_at_ms)": ?[0-9.e-]+')


def _auc(samples: dict[bool, list[float]]) -> float:
    """How well times tell held from absent, in whichever direction; equal times share their rank."""
    both = np.concatenate([samples[True], samples[False]])
    _, places, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    held, absent = len(samples[True]), len(samples[False])
    found = (ranks[:held].sum() - held * (held + 1) / 2) / (held * absent)
    return float(max(found, 1 - found))


def _told(answer: bytes) -> bytes:
    """What an answer tells: all of it but when it was given, how long it took, and ids it made."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    headers = [line.partition(b": ") for line in lines]
    kept = [
        name if name.lower() in _OF_ONE_ANSWER else name + b": " + value
        for name, _, value in headers
    ]
    told = b"\r\n".join([status, *kept, b"", body])
    return _ID.sub(b"ID", _MEASURED.sub(rb'"\1": 0', told))


class _Two:
    """One tenant that holds something, and one that asks."""

    def __init__(self, server: Server) -> None:
        self.server = server
        with Client(server.url) as everyone:
            operator = with_token(server, make(everyone, *_EVERY)["secret"])
        self._secret = make(operator, *_EVERY, tenant="asks")["secret"]
        self._asks = with_token(server, self._secret)
        holds = with_token(server, make(operator, *_EVERY, tenant="holds")["secret"])
        self._holds = holds
        # Both have as many states, in namespaces of the same names.
        self.states, self.leases = [], []
        for n in range(200):
            self.states.append(holds.record_full("ns", self.tokens(True, n), noise(n, 5000)))
            self._asks.record_full("ns", [5, n], noise(-n, 5000))
            found = holds.lookup("ns", self.tokens(True, n), acquire=True, ttl_s=_LONG_S)
            self.leases.append(found["lease"]["lease_id"])
        self._held = native.digest(native.cut(noise("b", _BLOCKS), _geometry()["full"])[0])
        holds.record_full("ns", [7], noise("b", _BLOCKS), geometry=_geometry())
        admitted = self._asks.admit(
            "ns", [8], "full_state", {"full": _BLOCKS}, geometry=_geometry()
        )
        self._record = admitted.json()["state_id"]
        self.recordings = [
            holds.admit("ns", [6, n], "full_state", {"full": 1}).json()["state_id"]
            for n in range(20)
        ]

    @staticmethod
    def tokens(held: bool, n: int) -> list[int]:
        """As long and as deep as each other; `n` of 200."""
        first = n % 200 if held else 1000 + n % 200
        return [9, first, *range(200)]

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        return (
            f"{method} {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {self._secret}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        ).encode() + content

    def lookup(self, held: bool, n: int) -> bytes:
        body = {"candidates": [prefix("ns", self.tokens(held, n))]}
        return self.request("POST", "/v1/lookup", body)

    def restore(self, held: bool, n: int) -> bytes:
        body = {"candidates": [prefix("ns", self.tokens(held, n))]}
        return self.request("POST", "/v1/restore", body)

    def state(self, held: bool, n: int) -> bytes:
        return self.request("GET", f"/v1/states/{self._id(self.states, held, n)}")

    def state_of_the_operator(self, held: bool, n: int) -> bytes:
        return self.request("GET", f"/admin/v1/states/{self._id(self.states, held, n)}")

    def heartbeat(self, held: bool, n: int) -> bytes:
        return self.request(
            "POST", f"/v1/leases/{self._id(self.leases, held, n)}/heartbeat", {"ttl_s": 60}
        )

    def release(self, held: bool, n: int) -> bytes:
        path = f"/v1/leases/{self._id(self.leases, held, n)}/release"
        return self.request("POST", path, {"outcome": "restored"})

    def component(self, held: bool, n: int) -> bytes:
        return self.request("GET", f"/v1/states/{self._id(self.states, held, n)}/components/full")

    def purge(self, held: bool, n: int) -> bytes:
        return self.request("DELETE", f"/admin/v1/states/{self._id(self.states, held, n)}")

    def recording(self, held: bool, n: int) -> bytes:
        return self.request("GET", f"/v1/records/{self._id(self.recordings, held, n)}")

    def abort_of_a_recording(self, held: bool, n: int) -> bytes:
        return self.request("DELETE", f"/v1/records/{self._id(self.recordings, held, n)}")

    def need(self, held: bool, n: int) -> bytes:
        digest = self._held if held else n.to_bytes(32, "big")
        path = f"/v1/records/{self._record}/components/full/need"
        return self.request("POST", path, {"digests": [digest.hex()]})

    def admission(self, held: bool, n: int) -> bytes:
        """Taken, and aborted in between."""
        return self._admission(self.tokens(held, n), 5000)

    def admission_of_what_is_being_recorded(self, held: bool, n: int) -> bytes:
        """By the other tenant."""
        return self._admission([6, n % 20 if held else 1000 + n % 20], 5000)

    def admission_of_too_much(self, held: bool, n: int) -> bytes:
        """Refused for its size after all else was looked at."""
        return self._admission(self.tokens(held, n), 1 << 50)

    def _admission(self, tokens: list[int], size: int) -> bytes:
        return self.request(
            "POST",
            "/v1/records",
            {
                **prefix("ns", tokens),
                "kind": "full_state",
                "components": [{"name": "full", "bytes": size}],
            },
        )

    def undo(self, connection: socket.socket, answer: bytes) -> None:
        """Abort what was admitted."""
        admitted = json.loads(answer.partition(b"\r\n\r\n")[2])["state_id"]
        aborted = exchange(connection, self.request("DELETE", f"/v1/records/{admitted}"))
        assert aborted.startswith(b"HTTP/1.1 204"), aborted

    @staticmethod
    def _id(ids: list[str], held: bool, n: int) -> str:
        found = ids[n % len(ids)]
        if held:
            return found
        # Of the same time, and never given.
        return found[:-4] + f"{(int(found[-4:], 16) ^ 0x5A5A):04x}"

    def check_held(self) -> None:
        """What was asked about is still there for its owner."""
        for state_id, lease_id in zip(self.states, self.leases, strict=True):
            assert self._holds.get(f"/v1/states/{state_id}").status_code == 200
            beat = self._holds.post(f"/v1/leases/{lease_id}/heartbeat", json={"ttl_s": _LONG_S})
            assert beat.status_code == 200
        for state_id in self.recordings:
            assert self._holds.get(f"/v1/records/{state_id}").status_code == 200

    def every(self) -> Iterator[tuple[str, Ask, int]]:
        """Each question with the status of its answers."""
        for ask, status in (
            (self.lookup, 200),
            (self.restore, 204),
            (self.state, 404),
            (self.component, 404),
            (self.state_of_the_operator, 404),
            (self.purge, 404),
            (self.heartbeat, 404),
            (self.release, 404),
            (self.recording, 404),
            (self.abort_of_a_recording, 404),
            (self.need, 200),
            (self.admission, 201),
            (self.admission_of_what_is_being_recorded, 201),
            (self.admission_of_too_much, 413),
        ):
            yield ask.__name__, ask, status


def _geometry() -> dict[str, Any]:
    rows = _BLOCKS // _ROW
    return {"full": {"rows": rows, "runs": [{"offset": 0, "stride": _ROW}]}}


def _measured(two: _Two, ask: Ask, status: int, each: int) -> dict[bool, list[float]]:
    """Seconds of both kinds in random order; all are answered alike, with that status."""
    chance = random.Random(1)
    kinds = [True, False] * (each + _WARM)
    chance.shuffle(kinds)
    samples: dict[bool, list[float]] = {True: [], False: []}
    told = set()
    with connect(two.server.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        for number, held in enumerate(kinds):
            request = ask(held, number)
            began = time.perf_counter()
            answer = exchange(connection, request)
            took = time.perf_counter() - began
            told.add(_told(answer))
            if status == 201:
                two.undo(connection, answer)
            if number >= 2 * _WARM:
                samples[held].append(took)
    assert len(told) == 1, told
    assert told.pop().startswith(b"HTTP/1.1 %d " % status)
    return samples


@pytest.fixture
def two(start: Callable[..., Server]) -> _Two:
    # What is asked about must be there to the end, however many samples there are.
    return _Two(start(touch_flush_s=60, record_ttl_s=_LONG_S, max_lease_ttl_s=_LONG_S))


def test_equal_times_tell_nothing_and_parted_ones_all() -> None:
    assert _auc({True: [1.0, 2.0, 2.0], False: [2.0, 1.0, 2.0]}) == 0.5
    assert _auc({True: [1.0] * 5, False: [1.0] * 7}) == 0.5
    assert _auc({True: [3.0, 4.0], False: [1.0, 2.0]}) == 1
    assert _auc({True: [1.0, 2.0], False: [3.0, 4.0]}) == 1
    assert _auc({True: [1.0, 3.0], False: [2.0, 4.0]}) == 0.75


def test_both_kinds_of_question_are_answered_alike(two: _Two) -> None:
    """The short form: nothing but the time, which the soak looks at, can tell what another tenant holds."""
    for name, ask, status in two.every():
        samples = _measured(two, ask, status, 50)
        assert sum(map(len, samples.values())) == 100, name
    two.check_held()


@pytest.mark.soak
def test_time_does_not_tell_what_another_tenant_holds(two: _Two) -> None:
    each = int(os.environ.get("SOAK_TIMING_SAMPLES", "10000"))
    found = {}
    for name, ask, status in two.every():
        found[name] = round(_auc(_measured(two, ask, status, each)), 3)
        print(f"{name}: AUC {found[name]} with {each} samples a class", flush=True)
    two.check_held()
    assert {name: auc for name, auc in found.items() if auc > _MOST_AUC} == {}


def _tell() -> None:
    """A server that takes 0.2 ms longer for a prefix that begins like one of another tenant's."""
    real = Catalog.on_path

    def on_path(self: Catalog, name: str, tokens: bytes) -> Any:
        if int.from_bytes(tokens[4:8], "little") < 1000:
            time.sleep(0.0002)
        return real(self, name, tokens)

    Catalog.on_path = on_path  # type: ignore[method-assign]


@pytest.mark.soak
def test_a_server_that_tells_is_found_out(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", sabotage=_tell, max_lease_ttl_s=_LONG_S)
    server.start()
    try:
        two = _Two(server)
        assert _auc(_measured(two, two.lookup, 200, 1000)) > 0.8
    finally:
        server.kill()
