"""SIGKILL at random moments of a server under load, again and again on the same data folder.

Several clients record, restore, evict and quarantine at once, each on prefixes of its own, and remember what
they were told. After each kill the server starts on what is there: every acknowledged record restores
with its bytes, what was acknowledged as gone stays gone, what was under way is there whole or not at all,
and at the end the integrity check finds nothing. Now and then the start itself is killed.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.client import Client
from tests.support.damage import checked
from tests.support.server import Server

_CLIENTS = 4
_PREFIXES_EACH = 12


@dataclass
class Prefix:
    """What one client knows of one prefix: the bytes it may hold. None among them: perhaps nothing."""

    tokens: list[int]
    maybe: list[bytes | None] = field(default_factory=lambda: [None])
    state_id: str | None = None


class Worker(threading.Thread):
    """One client: does things to its prefixes until the server is gone."""

    def __init__(self, url: str, prefixes: list[Prefix], seed: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._prefixes = prefixes
        self._chance = random.Random(seed)
        self.wrong: list[str] = []

    def run(self) -> None:
        with suppress(httpx.TransportError), Client(self._url) as client:
            while not self.wrong:
                self._step(client, self._chance.choice(self._prefixes))

    def _step(self, client: Client, prefix: Prefix) -> None:
        known = prefix.maybe[0] if len(prefix.maybe) == 1 else None
        if self._chance.random() < 0.2:
            self._look(client, prefix)
        elif known is None or self._chance.random() < 0.5:
            self._record(client, prefix)
        elif self._chance.random() < 0.5:
            self._evict(client, prefix)
        else:
            self._quarantine(client, prefix)

    def _look(self, client: Client, prefix: Prefix) -> None:
        found = held(client, prefix.tokens)
        if found not in prefix.maybe:
            self.wrong.append(f"{prefix.tokens} held what it should not while serving")

    def _record(self, client: Client, prefix: Prefix) -> None:
        # Prefixes of one client share the beginnings of their bytes, so that blocks are shared.
        size = self._chance.choice((3_000, 70_000, 400_000))
        common = hashlib.shake_128(str(prefix.tokens[0]).encode()).digest(size)
        data = common + self._chance.randbytes(self._chance.choice((0, 1_000)))
        prefix.maybe.append(data)
        admitted = client.admit(
            "ns", prefix.tokens, "full_state", {"full": len(data)}, replace=True
        )
        if admitted.status_code != 201:
            prefix.maybe.pop()
            if admitted.json().get("admission") not in ("already_recording", "at_capacity"):
                self.wrong.append(f"admission: {admitted.status_code} {admitted.text}")
            time.sleep(0.05)
            return
        state_id = admitted.json()["state_id"]
        sent = client.upload(state_id, "full", data)
        done = client.commit(state_id)
        if sent.status_code != 200 or done.status_code != 200:
            self.wrong.append(f"record: {sent.status_code} {done.status_code} {done.text}")
            return
        prefix.maybe, prefix.state_id = [data], state_id

    def _evict(self, client: Client, prefix: Prefix) -> None:
        prefix.maybe.append(None)
        gone = client.post("/admin/v1/evictions", json={"state_ids": [prefix.state_id]})
        if gone.status_code != 200:
            self.wrong.append(f"eviction: {gone.status_code} {gone.text}")
        elif gone.json()["evicted"]:
            prefix.maybe = [None]
        else:
            prefix.maybe.pop()  # somebody reads it: a restore that was cut off has its lease still

    def _quarantine(self, client: Client, prefix: Prefix) -> None:
        prefix.maybe.append(None)
        path = f"/admin/v1/states/{prefix.state_id}"
        for verb, body in (("quarantine", {"reason": "test"}), ("release", None)):
            done = client.post(f"{path}/{verb}", json=body)
            if done.status_code != 200:
                self.wrong.append(f"{verb}: {done.status_code} {done.text}")
                return
        prefix.maybe.pop()


def held(client: Client, tokens: list[int]) -> bytes | None:
    """What a restore of exactly this prefix gives."""
    answer = client.restore("ns", tokens)
    if answer.status_code == 204:
        return None
    assert answer.status_code == 200, answer.text
    return answer.content


def _settle(client: Client, prefixes: list[Prefix]) -> list[str]:
    """After a start: what is held is one of what may be; from now on it is known."""
    wrong = []
    for prefix in prefixes:
        found = held(client, prefix.tokens)
        if found not in prefix.maybe:
            lost = "lost" if found is None else "other bytes"
            wrong.append(f"{prefix.tokens}: {lost} ({len(prefix.maybe)} were possible)")
        prefix.maybe = [found]
        looked = client.lookup("ns", prefix.tokens)
        prefix.state_id = looked["state"]["state_id"] if found is not None else None
    return wrong


def _killed(data: Path, kills: int, *, workers: int, seed: int, **settings: Any) -> None:
    chance = random.Random(seed)
    prefixes = [[Prefix([c, n]) for n in range(_PREFIXES_EACH)] for c in range(_CLIENTS)]
    every = [prefix for mine in prefixes for prefix in mine]
    slowest = 0.0
    for number in range(kills):
        if chance.random() < 0.1:
            starting = Server(data, workers=workers, warm=False, **settings)
            starting.launch()
            time.sleep(chance.uniform(0.5, 1.6))
            starting.kill()
        server = Server(data, workers=workers, **settings)
        server.start()
        try:
            with Client(server.url) as client:
                began = time.monotonic()
                wrong = _settle(client, every)
                slowest = max(slowest, time.monotonic() - began)
                assert wrong == [], f"after kill {number} of seed {seed}"
            clients = [Worker(server.url, mine, chance.randrange(1 << 30)) for mine in prefixes]
            for one in clients:
                one.start()
            time.sleep(chance.uniform(0, 1.2))
        finally:
            server.kill()
        for one in clients:
            one.join(30)
            assert not one.is_alive()
            assert one.wrong == [], f"before kill {number} of seed {seed}"
    last = Server(data, **settings)
    last.start()
    try:
        with Client(last.url) as client:
            assert _settle(client, every) == []
            deadline = time.monotonic() + 30
            while client.stats()["recording"] or client.get("/readyz").json()["degraded"]:
                assert time.monotonic() < deadline, client.get("/readyz").text
                time.sleep(0.1)
    finally:
        last.stop()
    assert checked(data, allow_unowned=True) == []
    print(f"{kills} kills of a server with {workers} workers, nothing lost")


@pytest.mark.parametrize("workers", [1, 2])
def test_kills_at_random_moments_lose_nothing(tmp_path: Path, workers: int) -> None:
    _killed(tmp_path / "data", 3, workers=workers, seed=int.from_bytes(os.urandom(4)))


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_hundreds_of_kills_at_random_moments_lose_nothing(tmp_path: Path, workers: int) -> None:
    kills = int(os.environ.get("SOAK_KILLS", "500"))
    _killed(tmp_path / "data", kills, workers=workers, seed=workers)
