"""Many callers race on one prefix over two workers; what they were told must fit one after another."""

from __future__ import annotations

import dataclasses
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from hashlib import shake_128
from typing import Any

import http_sf
import pytest

from tests.conftest import ServerFactory
from tests.model.linearizability import Call, unexplained
from tests.model.one_prefix import Prefix, step
from tests.support.client import prefix
from tests.support.damage import checked
from tests.support.plain import Caller, Reply
from tests.support.server import Server

_CALLERS = 6
_ACTIONS = 14
_BYTES = 3_000


def call(operation: str, argument: Any, word: str, state_id: str | None, *at: float) -> Call:
    return Call(0, operation, argument, (word, state_id), *at)


def explained(*history: Call) -> bool:
    return unexplained(history, Prefix(), step) is None


RECORDED = (
    call("admit", False, "admitted", "a", 0, 1),
    call("commit", ("a", False), "live", None, 2, 5),
)


def test_a_lookup_beside_a_commit_may_find_it_or_not() -> None:
    assert explained(*RECORDED, call("find", None, "hit", "a", 3, 4))
    assert explained(*RECORDED, call("find", None, "miss", None, 3, 4))


def test_a_lookup_before_or_after_a_commit_may_not_choose() -> None:
    assert not explained(*RECORDED, call("find", None, "hit", "a", 0, 1.5))
    assert not explained(*RECORDED, call("find", None, "miss", None, 6, 7))


def test_what_one_lookup_has_found_a_later_one_may_not_miss() -> None:
    seen, missed = call("find", None, "hit", "a", 3, 3.2), call("find", None, "miss", None, 3.5, 4)
    assert explained(*RECORDED, seen)
    assert explained(*RECORDED, missed)
    assert not explained(*RECORDED, seen, missed)


def test_only_one_of_two_evictions_can_have_evicted_it() -> None:
    first = call("evict", "a", "evicted", None, 6, 9)
    assert explained(*RECORDED, first, call("evict", "a", "absent", None, 7, 8))
    assert not explained(*RECORDED, first, call("evict", "a", "evicted", None, 7, 8))


def test_a_quarantined_state_is_found_only_after_its_release() -> None:
    out = call("quarantine", "a", "done", None, 6, 7)
    back = call("release", "a", "done", None, 8, 9)
    found = call("find", None, "hit", "a", 10, 11)
    assert explained(*RECORDED, out, call("find", None, "quarantined", None, 7.5, 8.5), back, found)
    assert not explained(*RECORDED, out, found)
    assert not explained(*RECORDED, out, back, call("find", None, "quarantined", None, 10, 11))


def test_a_purged_state_does_not_come_back() -> None:
    out = call("quarantine", "a", "done", None, 6, 7)
    purged = call("purge", "a", "done", None, 8, 12)
    assert explained(*RECORDED, out, purged, call("release", "a", "absent", None, 9, 10))
    assert not explained(*RECORDED, out, purged, call("release", "a", "done", None, 9, 10))


def test_the_first_that_does_not_fit_is_named() -> None:
    wrong = call("find", None, "hit", "b", 6, 7)
    left = unexplained([*RECORDED, wrong], Prefix(), step)
    assert left == [wrong]


class Race:
    """One prefix, and what all callers have seen of it."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._prefix = prefix("races", [number, 1, 2])
        self.history: list[Call] = []
        self.faults: list[str] = []
        self._ids: list[str] = []
        self._lock = threading.Lock()

    def run(self, seed: int) -> None:
        start = threading.Barrier(_CALLERS)
        threads = [
            threading.Thread(target=self._act, args=(client, seed * _CALLERS + client, start))
            for client in range(_CALLERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _act(self, client: int, seed: int, start: threading.Barrier) -> None:
        chance = random.Random(seed)
        caller = Caller(self._server.port)
        start.wait()
        for _ in range(_ACTIONS):
            action = chance.choice(
                (
                    self._record,
                    self._look,
                    self._restore,
                    self._evict,
                    self._quarantine,
                    self._release,
                    self._purge,
                )
            )
            try:
                action(client, caller, chance)
            except Exception as error:
                self.faults.append(repr(error))
                break
        caller.close()

    def _timed(
        self,
        client: int,
        operation: str,
        argument: Any,
        ask: Callable[[], Reply],
        told: Callable[[Reply], tuple[str, str | None]],
    ) -> tuple[Reply, str]:
        invoked = time.monotonic()
        reply = ask()
        returned = time.monotonic()
        result = ("busy", None) if reply.code == "busy" else told(reply)
        with self._lock:
            self.history.append(Call(client, operation, argument, result, invoked, returned))
        return reply, result[0]

    def _record(self, client: int, caller: Caller, chance: random.Random) -> None:
        replace = chance.random() < 0.4
        meta = {
            **self._prefix,
            "kind": "full_state",
            "components": [{"name": "full", "bytes": _BYTES}],
            "replace": replace,
        }
        reply, word = self._timed(
            client,
            "admit",
            replace,
            lambda: caller("POST", "/v1/records", meta),
            lambda reply: (
                (reply.code, None)
                if reply.code
                else (reply.json()["admission"], reply.json()["state_id"])
            ),
        )
        if word != "admitted":
            return
        state_id = reply.json()["state_id"]
        self._ids.append(state_id)
        sent = caller("PUT", f"/v1/records/{state_id}/components/full", _content(state_id))
        assert sent.status == 200, sent.content
        self._timed(
            client,
            "commit",
            (state_id, replace),
            lambda: caller("POST", f"/v1/records/{state_id}/commit", headers={"Prefer": "wait=30"}),
            lambda reply: (reply.code or "live", None),
        )

    def _look(self, client: int, caller: Caller, chance: random.Random) -> None:
        def told(reply: Reply) -> tuple[str, str | None]:
            body = reply.json()
            if body["hit"]:
                return "hit", body["state"]["state_id"]
            reason = body["misses"][0]["reason"]
            return ("quarantined" if reason == "quarantined" else "miss"), None

        asked = {"candidates": [self._prefix]}
        self._timed(client, "find", None, lambda: caller("POST", "/v1/lookup", asked), told)

    def _restore(self, client: int, caller: Caller, chance: random.Random) -> None:
        def told(reply: Reply) -> tuple[str, str | None]:
            if reply.status == 204:
                missed = reply.headers["statehold-miss"].startswith("quarantined")
                return ("quarantined" if missed else "miss"), None
            item: Any = http_sf.parse(reply.headers["statehold-state"].encode(), tltype="item")
            if reply.content != _content(item[0]):
                self.faults.append("wrong bytes")
            return "hit", item[0]

        asked = {"candidates": [self._prefix]}
        self._timed(client, "find", None, lambda: caller("POST", "/v1/restore", asked), told)

    def _evict(self, client: int, caller: Caller, chance: random.Random) -> None:
        def told(reply: Reply) -> tuple[str, str | None]:
            if reply.status == 404:
                return "absent", None
            body = reply.json()
            return (
                "evicted" if body["evicted"] else "leased" if body["kept_leased"] else "absent"
            ), None

        state_id = self._some(chance)
        if state_id is not None:
            asked = {"state_ids": [state_id]}
            self._timed(
                client,
                "evict",
                state_id,
                lambda: caller("POST", "/admin/v1/evictions", asked),
                told,
            )

    def _quarantine(self, client: int, caller: Caller, chance: random.Random) -> None:
        state_id = self._some(chance)
        path = f"/admin/v1/states/{state_id}/quarantine"
        if state_id is not None:
            self._timed(
                client,
                "quarantine",
                state_id,
                lambda: caller("POST", path, {"reason": "race"}),
                lambda reply: (reply.code or "done", None),
            )

    def _release(self, client: int, caller: Caller, chance: random.Random) -> None:
        state_id = self._some(chance)
        if state_id is not None:
            self._timed(
                client,
                "release",
                state_id,
                lambda: caller("POST", f"/admin/v1/states/{state_id}/release"),
                lambda reply: (reply.code or "done", None),
            )

    def _purge(self, client: int, caller: Caller, chance: random.Random) -> None:
        state_id = self._some(chance)
        if state_id is not None:
            self._timed(
                client,
                "purge",
                state_id,
                lambda: caller("DELETE", f"/admin/v1/states/{state_id}"),
                lambda reply: (
                    "leased" if reply.code == "state_leased" else reply.code or "done",
                    None,
                ),
            )

    def _some(self, chance: random.Random) -> str | None:
        """One of the states recorded last."""
        return chance.choice(self._ids[-3:]) if self._ids else None


def _content(state_id: str) -> bytes:
    return shake_128(state_id.encode()).digest(_BYTES)


def races(server: Server, rounds: int) -> Counter[str]:
    """Run races one after another; how often each result of each operation was seen."""
    seen: Counter[str] = Counter()
    for number in range(rounds):
        race = Race(server, number)
        race.run(number)
        assert race.faults == []
        left = unexplained(race.history, Prefix(), step)
        assert left is None, _around(race.history, left)
        assert _notices_a_wrong_answer(race.history)
        seen.update(f"{c.operation} {c.result[0]}" for c in race.history)
    return seen


def _around(history: list[Call], left: list[Call]) -> str:
    """The first calls that no order explains, among those beside them."""
    end = min(call.returned for call in left) + 0.005
    start = min(call.invoked for call in left) - 0.05
    return "\n".join(
        f"{'?' if call in left else ' '} {call.invoked - start:.4f} {call.returned - start:.4f} "
        f"{call.operation} {call.argument} -> {call.result}"
        for call in sorted(history, key=lambda call: call.invoked)
        if call.returned > start and call.invoked < end
    )


def _notices_a_wrong_answer(history: list[Call]) -> bool:
    """One lookup of a recorded history finds something else: the checker must say so."""
    for at, found in enumerate(history):
        if found.operation == "find" and found.result[0] == "hit":
            wrong = dataclasses.replace(found, result=("hit", "somebody else's"))
            return (
                unexplained([*history[:at], wrong, *history[at + 1 :]], Prefix(), step) is not None
            )
    return True  # nothing was found in this race


def _all_is_well(server: Server) -> None:
    server.stop()
    assert '"level": "error"' not in server.logged()
    assert checked(server.data) == []


def test_histories_of_racing_callers_are_linearizable(start: ServerFactory) -> None:
    server = start(workers=2)
    seen = races(server, 8)
    assert seen["find hit"] and seen["commit live"] and seen["evict evicted"]
    _all_is_well(server)


@pytest.mark.soak
def test_histories_of_many_races_are_linearizable(
    start: ServerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start(workers=2)
    rounds = int(os.environ.get("SOAK_HISTORIES", "1000"))
    seen = races(server, rounds)
    with capsys.disabled():
        print(f"\n{rounds:,} histories, {seen.total():,} calls: {dict(seen.most_common())}")
    _all_is_well(server)
