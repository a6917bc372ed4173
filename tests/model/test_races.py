"""Callers that record and evict states of shared blocks at once, over two workers: no count is lost.

Each pair is a recording in one call and an eviction of some state, its own or another caller's. Few contents
are shared by everything, so that every block is owned, given up, reclaimed and written anew all the time.
"""

from __future__ import annotations

import os
import random
import threading
import time
from hashlib import shake_128

import http_sf
import pytest

from tests.conftest import ServerFactory
from tests.support.client import Client, prefix
from tests.support.damage import checked
from tests.support.plain import Caller, Reply
from tests.support.server import Server

_CALLERS = 6
_TOKENS_EACH = 4
_TURNS = 50
_FULL = [shake_128(b"full %d" % n).digest(9_000) for n in range(4)]
_LOGITS = [shake_128(b"logits %d" % n).digest(500) for n in range(3)]


class Racers:
    """What all callers have been told, together.

    Attributes:
        bodies: what each acknowledged state must give back.
        asked: states that somebody wanted evicted.
        held: by caller and token, the state that was acknowledged last.
    """

    def __init__(self, server: Server, pairs: int) -> None:
        self._server = server
        self._pairs = pairs // _CALLERS
        self.bodies: dict[str, bytes] = {}
        self.asked: set[str] = set()
        self.held: dict[tuple[int, int], str] = {}
        self.pairs = 0
        self.restores = 0
        self.faults: list[str] = []
        self._recent: list[str] = []
        self._done = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        callers = [threading.Thread(target=self._guarded, args=(n,)) for n in range(_CALLERS)]
        reader = threading.Thread(target=self._read)
        for thread in (*callers, reader):
            thread.start()
        for thread in callers:
            thread.join()
        self._done.set()
        reader.join()

    def _guarded(self, number: int) -> None:
        try:
            self._race(number)
        except Exception as error:
            self.faults.append(repr(error))

    def _race(self, number: int) -> None:
        chance = random.Random(number)
        caller = Caller(self._server.port, _TURNS)
        for _ in range(self._pairs):
            token = chance.randrange(_TOKENS_EACH)
            parts = {"full": chance.choice(_FULL), "logits": chance.choice(_LOGITS)}
            reply = self._patiently(lambda: caller.record(self._meta(number, token), parts))  # noqa: B023
            assert reply.status == 201, reply.content
            state_id = reply.json()["state_id"]
            with self._lock:
                self.bodies[state_id] = b"".join(parts.values())
                self.held[number, token] = state_id
                self._recent = [*self._recent[-40:], state_id]
                victim = chance.choice(self._recent)
                self.asked.add(victim)
            asked = {"state_ids": [victim]}
            gone = self._patiently(lambda: caller("POST", "/admin/v1/evictions", asked))  # noqa: B023
            assert gone.status in (200, 404), gone.content
            with self._lock:
                self.pairs += 1
        caller.close()

    def _meta(self, number: int, token: int) -> dict[str, object]:
        return {
            **prefix("shared", [number, token]),
            "kind": "full_state",
            "components": [
                {"name": "full", "bytes": len(_FULL[0])},
                {"name": "logits", "bytes": len(_LOGITS[0])},
            ],
            "replace": True,
        }

    def _patiently(self, ask: object) -> Reply:
        """Ask again while the store is busy; nothing was done then."""
        assert callable(ask)
        for _ in range(100):
            reply: Reply = ask()
            if reply.status != 503:
                break
            time.sleep(0.05)
        return reply

    def _read(self) -> None:
        """Restores beside them: whatever is found is whole."""
        chance = random.Random(0)
        caller = Caller(self._server.port, _TURNS)
        while not self._done.is_set():
            tokens = [chance.randrange(_CALLERS), chance.randrange(_TOKENS_EACH)]
            asked = {"candidates": [prefix("shared", tokens)]}
            reply = caller("POST", "/v1/restore", asked)
            if reply.status == 200:
                item: object = http_sf.parse(
                    reply.headers["statehold-state"].encode(), tltype="item"
                )
                assert isinstance(item, tuple)
                if reply.content != self._body(str(item[0])):
                    self.faults.append(f"wrong bytes of {item[0]}")
                self.restores += 1
            time.sleep(0.02)
        caller.close()

    def _body(self, state_id: str) -> bytes | None:
        """A state may be found a moment before its recorder is told that it is durable."""
        deadline = time.monotonic() + 10
        while state_id not in self.bodies and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.bodies.get(state_id)


def race(server: Server, pairs: int) -> Racers:
    racers = Racers(server, pairs)
    racers.run()
    assert racers.faults == []
    with Client(server.url) as client:
        live = {
            state["state_id"]
            for state in client.get("/admin/v1/states", params={"limit": 1000}).json()["states"]
        }
        assert live <= racers.bodies.keys()
        for (number, token), state_id in racers.held.items():
            answer = client.restore("shared", [number, token])
            if state_id not in racers.asked:
                assert state_id in live, "an acknowledged state was lost"
            if state_id in live:
                assert answer.content == racers.bodies[state_id]
        assert client.stats()["quarantined"] == 0
    server.stop()
    assert '"level": "error"' not in server.logged()
    assert checked(server.data) == []
    return racers


def test_racing_recordings_and_evictions_lose_no_count(start: ServerFactory) -> None:
    racers = race(start(workers=2), 150)
    assert racers.pairs == 150


@pytest.mark.soak
def test_a_hundred_thousand_racing_pairs_lose_no_count(
    start: ServerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    wanted = int(os.environ.get("SOAK_PAIRS", "100000"))
    pairs = -(-wanted // _CALLERS) * _CALLERS
    racers = race(start(workers=2, touch_flush_s=0.5), pairs)
    with capsys.disabled():
        print(
            f"\n{racers.pairs:,} pairs of a recording and an eviction in "
            f"{time.monotonic() - began:.0f} s, {racers.restores:,} restores beside them"
        )
    assert racers.pairs == pairs
