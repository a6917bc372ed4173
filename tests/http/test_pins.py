"""Pins: what is pinned stays, whatever is evicted; how pins end; and what they may hold."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.http.test_access import _EVERY, _seen, make, with_token
from tests.http.test_evictions import evict, noise
from tests.support.client import Client, code
from tests.support.damage import checked, sql
from tests.support.scrape import scrape_until
from tests.support.server import Server

UNKNOWN = "01938c0d-e000-7000-8000-000000000000"


def pin(client: Client, state_id: str, **more: Any) -> httpx.Response:
    return client.put(f"/admin/v1/states/{state_id}/pin", json={"reason": "keep", **more})


def pins(client: Client, **params: Any) -> dict[str, Any]:
    answer = client.get("/admin/v1/pins", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def pinned_ids(client: Client) -> list[str]:
    return [one["state_id"] for one in pins(client)["pins"]]


@pytest.fixture
def operator(server: Server) -> Client:
    with Client(server.url) as everyone:
        secret = make(everyone, *_EVERY)["secret"]
    return with_token(server, secret)


# ---- pinning ---------------------------------------------------------------------------------


def test_a_pin_says_what_it_holds_by_whom_and_until_when(operator: Client) -> None:
    state_id = operator.record_full("ns", [1], noise(1, 100_000))
    answer = pin(operator, state_id, ttl_s=60, reason="system prompt")
    assert answer.status_code == 200
    found = answer.json()
    now_ms = time.time() * 1000
    assert found.pop("expires_at_ms") - found["created_at_ms"] == 60_000
    assert abs(found.pop("created_at_ms") - now_ms) < 60_000
    assert found == {
        "state_id": state_id,
        "namespace": "ns",
        "tenant": "",
        "stored_bytes": operator.stats()["stored_bytes"],
        "logical_bytes": 100_000,
        "reason": "system prompt",
        "actor": operator.get("/admin/v1/whoami").json()["token_id"],
    }
    listed = pins(operator)
    assert listed == {
        "pins": [answer.json()],
        "pinned_bytes": 100_000,
        "pin_budget_bytes": 16 << 30,
        "next": None,
    }


def test_pinning_again_replaces_the_pin(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x" * 100)
    first = pin(client, state_id, ttl_s=60).json()
    again = pin(client, state_id, reason="for ever").json()
    assert (first["expires_at_ms"] is None, again["expires_at_ms"]) == (False, None)
    (found,) = pins(client)["pins"]
    assert (found["reason"], found["actor"]) == ("for ever", "open")
    assert pins(client)["pinned_bytes"] == 100


def test_what_is_not_in_service_cannot_be_pinned(client: Client) -> None:
    assert code(pin(client, UNKNOWN)) == (404, "state_not_found")
    recording = client.admit("ns", [1], "full_state", {"full": 1}).json()["state_id"]
    assert code(pin(client, recording)) == (409, "state_not_live")
    quarantined = client.record_full("ns", [2], b"x")
    client.post(f"/admin/v1/states/{quarantined}/quarantine", json={"reason": "r"})
    assert code(pin(client, quarantined)) == (409, "state_not_live")
    replaced = client.record_full("ns", [3], b"x")
    client.lookup("ns", [3], acquire=True)
    client.record_full("ns", [3], b"y", replace=True)
    assert code(pin(client, replaced)) == (409, "state_not_live")
    assert pins(client)["pins"] == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": ""},
        {"reason": "x" * 501},
        {"reason": 7},
        {"reason": None},
        {"reason": "r", "ttl_s": 0},
        {"reason": "r", "ttl_s": -1},
        {"reason": "r", "ttl_s": 2**63},
        {"reason": "r", "ttl_s": 1.5},
        {"reason": "r", "ttl_s": "60"},
        {"reason": "r", "ttl_s": True},
        {"reason": "r", "until": 7},
    ],
)
def test_absurd_pins_are_refused(client: Client, body: dict[str, Any]) -> None:
    state_id = client.record_full("ns", [1], b"x")
    answer = client.put(f"/admin/v1/states/{state_id}/pin", json=body)
    assert code(answer) == (422, "invalid_request")
    assert pins(client)["pins"] == []


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_ids_that_are_none_are_refused(client: Client, method: str) -> None:
    for state_id in ("x", UNKNOWN.upper(), "1" * 36):
        body = {"json": {"reason": "r"}} if method == "PUT" else {}
        answer = client.request(method, f"/admin/v1/states/{state_id}/pin", **body)  # type: ignore[arg-type]
        assert code(answer) == (422, "invalid_request")


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"after": "x"}, {"after": "0" * 400}]
)
def test_absurd_pages_are_refused(client: Client, params: dict[str, Any]) -> None:
    assert code(client.get("/admin/v1/pins", params=params)) == (422, "invalid_request")


def test_pins_are_listed_in_pages(client: Client) -> None:
    ids = [client.record_full("ns", [n], b"x") for n in range(7)]
    for state_id in reversed(ids[:5]):
        pin(client, state_id)
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = pins(client, limit=2, **after)
        assert page["pinned_bytes"] == 5
        found += [one["state_id"] for one in page["pins"]]
        if page["next"] is None:
            break
        assert len(page["pins"]) == 2
        after = {"after": page["next"]}
    assert found == ids[:5]
    assert pins(client, limit=5)["next"] is None


# ---- what is pinned stays --------------------------------------------------------------------


def test_a_pinned_state_is_kept_from_every_eviction_that_is_asked_for(client: Client) -> None:
    ids = [client.record_full("ns", [n], noise(n, 50_000)) for n in range(3)]
    pin(client, ids[1])
    for dry_run in (True, False):
        found = evict(client, state_ids=[ids[1]], dry_run=dry_run)
        assert (found["evicted"], found["kept_pinned"]) == ([], [ids[1]])
        assert found["freed_bytes"] == 0
    found = evict(client, target_bytes=0)
    assert (found["evicted"], found["kept_pinned"]) == ([ids[0], ids[2]], [ids[1]])
    choices: tuple[dict[str, Any], ...] = ({"namespace": "ns"}, {"untouched_for_s": 0})
    for choice in choices:
        found = evict(client, **choice)
        assert (found["evicted"], found["kept_pinned"]) == ([], [ids[1]])
    assert client.restore("ns", [1]).content == noise(1, 50_000)


def test_a_pinned_and_leased_state_is_named_once(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    pin(client, state_id)
    lease = client.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    found = evict(client, namespace="ns")
    assert (found["kept_leased"], found["kept_pinned"]) == ([state_id], [])
    client.release(lease, "unused")
    found = evict(client, namespace="ns")
    assert (found["kept_leased"], found["kept_pinned"]) == ([], [state_id])


@pytest.mark.parametrize("limit", [{"budget_bytes": "2MiB"}, {"max_entries": 3}])
def test_a_pinned_state_outlives_the_need_for_room(
    start: ServerFactory, limit: dict[str, Any]
) -> None:
    server = start(**limit)
    with Client(server.url) as client:
        pin(client, client.record_full("ns", [0], noise("pinned", 400_000)))
        for n in range(1, 12):
            client.record_full("ns", [n], noise(n, 400_000))
        assert client.restore("ns", [0]).content == noise("pinned", 400_000)
        assert client.lookup("ns", [1])["hit"] is False
        assert client.lookup("ns", [11])["hit"] is True


@pytest.mark.parametrize("limit", [{"max_entries": 2}, {"max_stored_bytes": 300_000}])
def test_a_pinned_state_outlives_the_limits_of_its_namespace_and_tenant(
    client: Client, limit: dict[str, int]
) -> None:
    for number, path in enumerate(("namespaces", "tenants/default")):
        name = f"ns{number}"
        pin(client, client.record_full(name, [0], noise(("pinned", name), 100_000)))
        body = {"namespace": name, **limit} if path == "namespaces" else limit
        change = client.patch if path == "namespaces" else client.put
        if path != "namespaces":
            evict(client, namespace="ns0")
            client.delete(f"/admin/v1/states/{pinned_ids(client)[0]}/pin")
            evict(client, namespace="ns0")
        assert change(f"/admin/v1/{path}", json=body).status_code == 200
        for n in range(1, 6):
            client.record_full(name, [n], noise((name, n), 100_000))
        assert client.lookup(name, [0])["hit"] is True
        assert client.lookup(name, [1])["hit"] is False
        assert client.lookup(name, [5])["hit"] is True


def test_a_store_full_of_pins_refuses_with_a_true_sentence_and_when_to_ask_again(
    start: ServerFactory,
) -> None:
    server = start(budget_bytes="2MiB")
    with Client(server.url) as client:
        for n in range(4):
            pin(client, client.record_full("ns", [n], noise(n, 450_000)))
        leased = client.record_full("ns", [4], noise(4, 100_000))
        client.lookup("ns", [4], acquire=True)
        admitted = client.admit("ns", [5], "full_state", {"full": 450_000})
        answer = client.upload(admitted.json()["state_id"], "full", noise(5, 450_000))
        assert code(answer) == (503, "at_capacity")
        assert (
            answer.json()["detail"]
            == "all that could make room is leased, pinned or being recorded"
        )
        assert int(answer.headers["retry-after"]) >= 1
        assert client.stats()["live"] == 5
        client.delete(f"/admin/v1/states/{pinned_ids(client)[0]}/pin")
        answer = client.upload(admitted.json()["state_id"], "full", noise(5, 450_000))
        assert answer.status_code == 200
        assert client.get(f"/admin/v1/states/{leased}").json()["status"] == "live"


def test_an_admission_that_no_room_can_be_made_for_says_why(start: ServerFactory) -> None:
    server = start(budget_bytes="1MiB")
    with Client(server.url) as client:
        state_id = client.record_full("ns", [1], noise(1, 1_000_000))
        assert pin(client, state_id).status_code == 200
        tokens = list(range(20_000))  # their charge alone does not fit beside it
        answer = client.admit("ns", tokens, "full_state", {"full": 1})
        assert code(answer) == (503, "at_capacity")
        assert (
            answer.json()["detail"]
            == "all that could make room is leased, pinned or being recorded"
        )
        assert int(answer.headers["retry-after"]) >= 1


def test_pinned_evidence_does_not_give_way_and_can_be_purged(client: Client) -> None:
    state_id = client.record_full("ns", [1], noise(1, 100_000))
    pin(client, state_id)
    client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "r"})
    assert pinned_ids(client) == [state_id]
    found = evict(client, target_bytes=0)
    assert (found["evicted"], found["kept_pinned"]) == ([], [state_id])
    client.post(f"/admin/v1/states/{state_id}/release")
    assert pinned_ids(client) == [state_id]
    client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "r"})
    assert client.delete(f"/admin/v1/states/{state_id}").status_code == 204
    assert pins(client)["pins"] == []
    assert client.holds_nothing()


def test_pinned_evidence_does_not_give_way_to_need_either(start: ServerFactory) -> None:
    server = start(budget_bytes="2MiB")
    with Client(server.url) as client:
        for n, pinned in ((0, True), (1, False)):
            state_id = client.record_full("ns", [n], noise(n, 700_000))
            if pinned:
                pin(client, state_id)
            client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "r"})
        client.record_full("ns", [2], noise(2, 1_000_000))
        left = client.get("/admin/v1/states", params={"status": "quarantined"}).json()["states"]
        assert [one["state_id"] for one in left] == pinned_ids(client)


# ---- replacement -----------------------------------------------------------------------------


def test_a_replacement_takes_the_pin_over(server: Server, client: Client) -> None:
    old = client.record_full("ns", [1], b"old")
    other_kind = client.record("ns", [1], "recurrent_only", {"recurrent": b"r"})
    before = pin(client, old, ttl_s=600).json()
    new = client.record_full("ns", [1], b"newer", replace=True)
    (found,) = pins(client)["pins"]
    assert found["state_id"] == new != old
    for name in ("expires_at_ms", "reason", "actor", "created_at_ms"):
        assert found[name] == before[name]
    assert pins(client)["pinned_bytes"] == 5
    found = evict(client, namespace="ns")
    assert (found["evicted"], found["kept_pinned"]) == ([other_kind], [new])
    server.stop()
    assert checked(server.data) == []


def test_a_replacement_takes_the_pin_of_a_state_that_is_being_read(client: Client) -> None:
    old = client.record_full("ns", [1], b"old")
    pin(client, old)
    lease = client.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    new = client.record_full("ns", [1], b"newer", replace=True)
    assert pinned_ids(client) == [new]
    client.release(lease, "restored")
    deadline = time.monotonic() + 30
    while client.get(f"/admin/v1/states/{old}").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert pinned_ids(client) == [new]


def test_a_pin_that_has_run_out_is_not_taken_over(client: Client) -> None:
    pin(client, client.record_full("ns", [1], b"old"), ttl_s=1)
    time.sleep(1.1)
    client.record_full("ns", [1], b"newer", replace=True)
    assert pins(client)["pins"] == []


def test_recording_a_quarantined_prefix_again_leaves_the_pin_with_the_evidence(
    client: Client,
) -> None:
    old = client.record_full("ns", [1], b"old")
    pin(client, old)
    client.post(f"/admin/v1/states/{old}/quarantine", json={"reason": "r"})
    new = client.record_full("ns", [1], b"newer")
    assert pinned_ids(client) == [old]
    assert evict(client, namespace="ns")["evicted"] == [new]


# ---- how pins end ----------------------------------------------------------------------------


def test_a_pin_is_taken_away_once(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    path = f"/admin/v1/states/{state_id}/pin"
    assert code(client.delete(path)) == (404, "pin_not_found")
    pin(client, state_id)
    assert client.delete(path).status_code == 204
    assert code(client.delete(path)) == (404, "pin_not_found")
    assert code(client.delete(f"/admin/v1/states/{UNKNOWN}/pin")) == (404, "state_not_found")
    assert evict(client, namespace="ns")["evicted"] == [state_id]


def test_a_pin_that_has_run_out_counts_for_nothing_at_once_and_is_removed(
    server: Server, client: Client
) -> None:
    ids = [client.record_full("ns", [n], b"x") for n in range(2)]
    pin(client, ids[0], ttl_s=1)
    pin(client, ids[1])
    assert evict(client, namespace="ns")["evicted"] == []
    time.sleep(1.1)
    assert pinned_ids(client) == [ids[1]]
    assert pins(client)["pinned_bytes"] == 1
    assert code(client.delete(f"/admin/v1/states/{ids[0]}/pin")) == (404, "pin_not_found")
    assert evict(client, namespace="ns", dry_run=True)["evicted"] == [ids[0]]
    deadline = time.monotonic() + 30
    while len(sql(server.data, "SELECT state FROM pin")) != 1:
        assert time.monotonic() < deadline, "housekeeping leaves pins that have run out"
        time.sleep(0.2)
    assert evict(client, namespace="ns")["evicted"] == [ids[0]]


def test_pins_outlive_a_restart_and_a_kill(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        state_id = client.record_full("ns", [1], b"x")
        before = pin(client, state_id, ttl_s=3600).json()
    server.kill()
    again = start()
    with Client(again.url) as client:
        assert pins(client)["pins"] == [before]
        assert evict(client, target_bytes=0)["kept_pinned"] == [state_id]
    again.stop()
    with Client(start().url) as client:
        assert pins(client)["pins"] == [before]


# ---- the pin budget --------------------------------------------------------------------------


def test_the_pin_budget_counts_bytes_as_recorded(start: ServerFactory) -> None:
    server = start(pin_budget_bytes="1000B")
    with Client(server.url) as client:
        ids = [client.record_full("ns", [n], b"%d" % n * 400) for n in range(4)]
        assert pin(client, ids[0]).status_code == 200
        assert pin(client, ids[1], ttl_s=2).status_code == 200
        assert code(pin(client, ids[2])) == (409, "pin_budget_exceeded")
        assert pin(client, ids[0], reason="again").status_code == 200  # its own bytes come anew
        found = pins(client)
        assert (found["pinned_bytes"], found["pin_budget_bytes"]) == (800, 1000)
        time.sleep(2.1)
        assert pin(client, ids[2]).status_code == 200
        assert code(pin(client, ids[3])) == (409, "pin_budget_exceeded")
        client.delete(f"/admin/v1/states/{ids[0]}/pin")
        assert pin(client, ids[3]).status_code == 200


def test_no_more_can_be_pinned_than_the_budget_holds(start: ServerFactory) -> None:
    server = start(budget_bytes="2MiB")
    with Client(server.url) as client:
        assert pins(client)["pin_budget_bytes"] == 2 << 20


def test_a_pin_budget_of_nothing_allows_no_pin(start: ServerFactory) -> None:
    server = start(pin_budget_bytes="0")
    with Client(server.url) as client:
        state_id = client.record_full("ns", [1], b"x")
        assert code(pin(client, state_id)) == (409, "pin_budget_exceeded")


def test_ten_thousand_states_may_be_pinned(server: Server, client: Client) -> None:
    first, second = (client.record_full("ns", [n], b"x") for n in range(2))
    sql(
        server.data,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
        "INSERT INTO state SELECT 1000 + i, printf('01938c0d-e000-7000-8000-%012x', i), namespace_id, "
        "page_id, kind, 'quarantined', node_id, token_count, token_digest, manifest_digest, "
        "kv_descriptor, logical_bytes, overhead_bytes, created_at_ms, touched_at_ms, hits "
        "FROM state, n WHERE state.state_id = ?",
        first,
    )
    sql(server.data, "INSERT INTO pin SELECT id, NULL, 'r', 'open', 1 FROM state WHERE id > 1000")
    assert pin(client, first).status_code == 200
    answer = pin(client, second)
    assert code(answer) == (409, "pin_budget_exceeded")
    assert answer.json()["detail"] == "as many states are pinned as may be"
    assert pin(client, first, reason="again").status_code == 200
    assert pins(client, limit=1000)["next"] is not None
    assert scrape_until(server.url, "pins", 10_000)


def test_a_scrape_and_the_events_tell_of_pins(server: Server, client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x" * 77)
    pin(client, state_id)
    found = scrape_until(server.url, "pins", 1)
    assert found("pinned_bytes") == 77
    assert found("pin_budget_bytes") == 16 << 30
    client.delete(f"/admin/v1/states/{state_id}/pin")
    entries = client.get("/admin/v1/audit").json()["entries"]
    assert [(e["action"], e["target"], e["outcome"]) for e in entries] == [
        ("DELETE /admin/v1/states/{state_id}/pin", state_id, "done"),
        ("PUT /admin/v1/states/{state_id}/pin", state_id, "done"),
    ]


# ---- who asks --------------------------------------------------------------------------------


def test_another_tenants_states_cannot_be_pinned_nor_their_pins_seen(
    server: Server, operator: Client
) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=t)["secret"]) for t in "ab")
    patterns = with_token(server, make(operator, *_EVERY, namespaces=["mine-*"])["secret"])
    theirs = a.record_full("mine-1", [1], b"of a")
    outside = operator.record_full("other", [1], b"of the operator")
    mine = patterns.record_full("mine-1", [1], b"mine")
    for client, foreign in ((b, theirs), (patterns, theirs), (patterns, outside)):
        assert _seen(pin(client, foreign)) == _seen(pin(client, UNKNOWN))
        path = "/admin/v1/states/{}/pin"
        assert pin(operator, foreign).status_code == 200
        assert _seen(client.delete(path.format(foreign))) == _seen(
            client.delete(path.format(UNKNOWN))
        )
        assert pins(client)["pins"] == []
        assert pins(client)["pinned_bytes"] == 0
    assert pin(patterns, mine).status_code == 200
    assert pinned_ids(patterns) == [mine]
    assert (pins(patterns)["pinned_bytes"], pins(a)["pinned_bytes"]) == (4, 4)
    assert pinned_ids(a) == [theirs]
    assert pinned_ids(operator) == sorted([theirs, outside, mine])
    assert [one["tenant"] for one in pins(operator)["pins"]] == ["a", "", ""]


def test_pages_of_a_bound_caller_hold_its_own_pins_only(server: Server, operator: Client) -> None:
    patterns = with_token(server, make(operator, *_EVERY, namespaces=["mine-*"])["secret"])
    mine = []
    for n in range(12):
        pin(operator, operator.record_full("other", [n], b"x"))
        if n % 4 == 0:
            mine.append(patterns.record_full("mine-1", [n], b"x"))
            pin(patterns, mine[-1])
    first = pins(patterns, limit=2)
    assert [one["state_id"] for one in first["pins"]] == mine[:2]
    second = pins(patterns, limit=2, after=first["next"])
    assert [one["state_id"] for one in second["pins"]] == mine[2:]
    assert second["next"] is None


def test_seeing_pins_and_making_them_are_two_scopes(server: Server, operator: Client) -> None:
    state_id = operator.record_full("ns", [1], b"x")
    reader = with_token(server, make(operator, "admin:read")["secret"])
    writer = with_token(server, make(operator, "admin:write")["secret"])
    assert code(pin(reader, state_id)) == (403, "forbidden")
    assert pin(writer, state_id).status_code == 200
    assert pinned_ids(reader) == [state_id]
    assert code(writer.get("/admin/v1/pins")) == (403, "forbidden")


# ---- races -----------------------------------------------------------------------------------


def test_a_state_is_pinned_or_evicted_but_never_both(start: ServerFactory) -> None:
    server = start(workers=2)
    outcomes = {"pinned": 0, "evicted": 0}
    with Client(server.url) as one, Client(server.url) as other:
        for n in range(40):
            state_id = one.record_full("ns", [n], b"%d" % n)
            gate = threading.Barrier(2)
            answers: list[httpx.Response] = []

            def keep(gate: threading.Barrier = gate, state_id: str = state_id) -> None:
                gate.wait()
                answers.append(pin(other, state_id))  # noqa: B023

            pinner = threading.Thread(target=keep)
            pinner.start()
            gate.wait()
            if n % 2:
                time.sleep(0.004)
            gone = one.post("/admin/v1/evictions", json={"state_ids": [state_id]})
            pinner.join()
            there = one.get(f"/admin/v1/states/{state_id}").status_code == 200
            if answers[0].status_code == 200:
                assert there
                assert gone.json()["kept_pinned"] == [state_id]
                outcomes["pinned"] += 1
            else:
                assert code(answers[0]) == (404, "state_not_found")
                assert not there
                assert gone.json()["evicted"] == [state_id]
                outcomes["evicted"] += 1
        assert sum(outcomes.values()) == 40
        found = evict(one, target_bytes=0)
        assert len(found["kept_pinned"]) == outcomes["pinned"]
    server.stop()
    assert checked(server.data) == []


def test_pins_that_race_for_the_last_of_the_budget_do_not_exceed_it(start: ServerFactory) -> None:
    server = start(workers=2, pin_budget_bytes="1000B")
    with Client(server.url) as client:
        ids = [client.record_full("ns", [n], b"%d" % n * 300) for n in range(8)]
        codes: list[int] = []

        def run(part: list[str]) -> None:
            with Client(server.url) as another:
                codes.extend(pin(another, state_id).status_code for state_id in part)

        threads = [threading.Thread(target=run, args=(ids[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [200] * 3 + [409] * 5
        assert pins(client)["pinned_bytes"] == 900
