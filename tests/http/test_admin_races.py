"""Operators who do everything to one state at once: each gets a documented answer; the store stays whole."""

from __future__ import annotations

import random
import threading
import time

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.support.client import Client, prefix
from tests.support.damage import checked

_STEPS = 60
_CALLERS = 8
_TOKENS = list(range(50))
_DATA = b"raced for" * 3000


def _step(client: Client, chance: random.Random, state_id: str) -> int:
    """One of the ways to change or read a state; the status. `Client` holds it against the document."""
    one = f"/admin/v1/states/{state_id}"
    ways = [
        ("POST", f"{one}/quarantine", {"reason": "raced"}),
        ("POST", f"{one}/verify", None),
        ("POST", f"{one}/release", None),
        ("PUT", f"{one}/pin", {"ttl_s": 60, "reason": "raced"}),
        ("DELETE", f"{one}/pin", None),
        ("DELETE", one, None),
        ("POST", "/admin/v1/evictions", {"state_ids": [state_id]}),
        ("POST", "/admin/v1/evictions", {"namespace": "ns", "dry_run": True}),
        ("GET", one, None),
        ("GET", f"{one}/components/full/raw", None),
        ("POST", "/v1/restore", {"candidates": [prefix("ns", _TOKENS)]}),
    ]
    method, path, body = chance.choice(ways)
    try:
        answer = client.request(method, path, json=body)
    except httpx.RemoteProtocolError:
        assert path.endswith(
            "/raw"
        )  # evidence that was purged while it was sent: no lease keeps it
        return 404
    if path == "/v1/restore" and answer.status_code == 200 and answer.content[:1] != b"{":
        assert _DATA in answer.content
    return answer.status_code


@pytest.mark.parametrize("workers", [1, 2])
def test_racing_operators_of_one_state_leave_a_whole_store(
    start: ServerFactory, workers: int
) -> None:
    server = start(workers=workers)
    statuses: list[int] = []
    failures: list[BaseException] = []
    with Client(server.url) as client:
        current = [client.record_full("ns", _TOKENS, _DATA)]

        def operate(seed: int) -> None:
            chance = random.Random(seed)
            try:
                with Client(server.url) as mine:
                    for _ in range(_STEPS):
                        statuses.append(_step(mine, chance, current[0]))
            except BaseException as error:  # what a thread raises is nobody's otherwise
                failures.append(error)

        callers = [threading.Thread(target=operate, args=(seed,)) for seed in range(_CALLERS)]
        for caller in callers:
            caller.start()
        # Once it is gone there is nothing left to race for.
        while any(caller.is_alive() for caller in callers):
            if client.get(f"/admin/v1/states/{current[0]}").status_code == 404:
                current[0] = client.record_full("ns", _TOKENS, _DATA)
            time.sleep(0.05)
        if failures:
            raise failures[0]
        assert {200, 404} <= set(statuses)
        assert not [status for status in statuses if status >= 500 and status != 503]
        again = client.record_full("ns", _TOKENS, _DATA, replace=True)
        assert client.get(f"/v1/states/{again}/components/full").content == _DATA
    server.stop()
    assert checked(server.data) == []
