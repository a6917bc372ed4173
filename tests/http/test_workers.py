"""Two worker processes on one data folder behave as one service."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from collections import Counter

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.support.client import Client, code
from tests.support.damage import checked
from tests.support.server import Server


def noise(name: object, size: int = 120_000) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


@pytest.fixture
def pair(start: ServerFactory) -> Server:
    return start(workers=2, touch_flush_s=0.05)


def _fresh(server: Server) -> Client:
    """A client with a connection of its own, so that either worker may answer."""
    return Client(server.url)


def test_there_are_two_workers(pair: Server) -> None:
    deadline = time.monotonic() + 20
    while len(pair.worker_pids()) != 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_every_step_of_a_recording_may_meet_another_worker(pair: Server) -> None:
    for n in range(12):
        with _fresh(pair) as client:
            admitted = client.admit("ns", [n], "full_state", {"full": 120_000, "logits": 8})
            state_id = admitted.json()["state_id"]
        for name, data in (("full", noise(n)), ("logits", b"l" * 8)):
            with _fresh(pair) as client:
                assert client.upload(state_id, name, data).status_code == 200
        with _fresh(pair) as client:
            assert client.commit(state_id).status_code == 200
        with _fresh(pair) as client:
            assert client.restore("ns", [n]).content == noise(n) + b"l" * 8
        with _fresh(pair) as client:
            lease = client.lookup("ns", [n], acquire=True)["lease"]["lease_id"]
        with _fresh(pair) as client:
            assert client.release(lease, "restored").status_code == 200


def test_modes_and_limits_hold_at_once_in_every_worker(pair: Server) -> None:
    with _fresh(pair) as client:
        client.record_full("ns", [1], b"x")
    for mode, finds in (("record", False), ("lookup", True), ("disabled", False)):
        with _fresh(pair) as client:
            client.put("/admin/v1/mode", json={"mode": mode})
        for _ in range(8):
            with _fresh(pair) as client:
                assert client.lookup("ns", [1])["hit"] is finds


def test_a_prefix_is_recorded_once_however_many_ask(pair: Server) -> None:
    answers: Counter[int] = Counter()
    lock = threading.Lock()

    def ask(n: int) -> None:
        with _fresh(pair) as client:
            status = client.admit("ns", [n], "full_state", {"full": 9}).status_code
        with lock:
            answers[status] += 1

    threads = [threading.Thread(target=ask, args=(n % 4,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {201: 4, 409: 28}


def test_counters_add_up_over_workers(pair: Server) -> None:
    with _fresh(pair) as client:
        client.record_full("ns", [1], b"x")
    for _ in range(20):
        with _fresh(pair) as client:
            client.lookup("ns", [1])
    deadline = time.monotonic() + 10
    with _fresh(pair) as client:
        while client.counter("lookups", "hit") != 20:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_racing_clients_of_shared_blocks_lose_no_count(start: ServerFactory) -> None:
    """Records that share blocks, evictions, replacements and restores at once, on a tight budget."""
    server = start(workers=2, budget_bytes="4MiB")
    faults: list[str] = []
    bodies = [noise(n, 300_000) for n in range(6)]

    def live(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            with _fresh(server) as client:
                token = chance.randrange(8)
                body = bodies[chance.randrange(6)]
                try:
                    action = chance.randrange(4)
                    if action < 2:
                        admitted = client.admit(
                            "ns", [token], "full_state", {"full": 300_000}, replace=True
                        )
                        if admitted.status_code == 201:
                            state_id = admitted.json()["state_id"]
                            if client.upload(state_id, "full", body).status_code == 200:
                                client.commit(state_id)
                    elif action == 2:
                        answer = client.restore("ns", [token])
                        if answer.status_code == 200 and answer.content not in bodies:
                            faults.append("wrong bytes")
                    else:
                        found = client.lookup("ns", [token])
                        if found["hit"]:
                            ids = [found["state"]["state_id"]]
                            client.post("/admin/v1/evictions", json={"state_ids": ids})
                except httpx.TransportError as error:
                    faults.append(repr(error))

    threads = [threading.Thread(target=live, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with _fresh(server) as client:
        assert client.stats()["quarantined"] == 0
        assert client.stats()["stored_bytes"] <= 4 << 20
    server.stop()
    assert '"level": "error"' not in server.logged()
    assert checked(server.data) == []


def test_a_killed_worker_costs_the_other_nothing(pair: Server) -> None:
    with _fresh(pair) as client:
        client.record_full("ns", [1], noise(1))
    victim = pair.worker_pids()[0]
    os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + 20
    served = 0
    while served < 20:
        assert time.monotonic() < deadline
        try:
            with _fresh(pair) as client:
                answer = client.restore("ns", [1])
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        assert answer.content == noise(1)
        served += 1
    while len(pair.worker_pids()) < 2 or victim in pair.worker_pids():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pair.stop()
    assert checked(pair.data) == []


def test_a_second_server_on_the_same_folder_is_refused(pair: Server) -> None:
    second = Server(pair.data)
    second.launch()
    assert second.wait() == 3
    assert "another server or a compaction is using it" in second.logged()
    with _fresh(pair) as client:
        assert code(client.get("/nope")) == (404, "not_found")
