"""Evicting because an operator asks: what goes, what is kept, and a dry run that tells the truth."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import Any

import pytest

from tests.conftest import ServerFactory
from tests.http.test_access import _EVERY, _seen, make, with_token
from tests.support.client import Client, code
from tests.support.damage import checked, sql
from tests.support.scrape import scrape_until
from tests.support.server import Server

UNKNOWN = "01938c0d-e000-7000-8000-000000000000"
_ROW_BYTES = 2048
_WINDOW_ROWS = 64


def noise(name: object, size: int) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


def evict(client: Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/admin/v1/evictions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["dry_run"] is body.get("dry_run", False)
    return found


def refused(client: Client, **body: Any) -> tuple[int, str]:
    return code(client.post("/admin/v1/evictions", json=body))


def record_windows(client: Client, namespace: str, tokens: list[int], windows: list[int]) -> str:
    """A state of token windows: those of the same numbers are the same blocks."""
    data = b"".join(noise(window, _WINDOW_ROWS * _ROW_BYTES) for window in windows)
    rows = len(data) // _ROW_BYTES
    geometry = {"full": {"rows": rows, "runs": [{"offset": 0, "stride": _ROW_BYTES}]}}
    return client.record_full(namespace, tokens, data, geometry=geometry)


def shared_set(client: Client) -> list[str]:
    """Eight states in two namespaces: alone, growing, two with the same blocks, one across namespaces."""
    states = [
        ("a", [1], [1, 2]),
        ("a", [1, 2], [1, 2, 3]),
        ("a", [1, 2, 3], [1, 2, 3, 4, 4]),
        ("b", [1], [1, 9]),
        ("a", [7], [20, 21]),
        ("b", [7], [20, 21]),
        ("b", [8], [30]),
        ("a", [9], [3, 31]),
    ]
    ids = []
    for namespace, tokens, windows in states:
        ids.append(record_windows(client, namespace, tokens, windows))
        time.sleep(0.003)
    return ids


def held_bytes(client: Client) -> int:
    return int(client.stats()["stored_bytes"])


def same(dry: dict[str, Any], real: dict[str, Any]) -> bool:
    return {**dry, "dry_run": None} == {**real, "dry_run": None}


# ---- by id -----------------------------------------------------------------------------------


def test_eviction_by_id_is_all_or_nothing_as_to_existence(client: Client) -> None:
    ids = [client.record_full("ns", [n], b"x") for n in range(3)]
    assert refused(client, state_ids=[ids[0], UNKNOWN]) == (404, "state_not_found")
    assert client.stats()["live"] == 3
    held = held_bytes(client)
    found = evict(client, state_ids=[*ids[:2], ids[0]])
    assert found == {
        "dry_run": False,
        "evicted": ids[:2],
        "evicted_count": 2,
        "kept_leased": [],
        "kept_leased_count": 0,
        "kept_pinned": [],
        "kept_pinned_count": 0,
        "freed_bytes": held - held_bytes(client),
        "more": False,
    }
    assert client.stats()["live"] == 1


def test_the_refusal_names_the_place_and_not_the_id(client: Client) -> None:
    good = client.record_full("ns", [1], b"x")
    answer = client.post("/admin/v1/evictions", json={"state_ids": [good, UNKNOWN]})
    assert answer.json()["field"] == "state_ids.1"
    assert UNKNOWN not in answer.text


@pytest.mark.parametrize("status", ["recording", "quarantined"])
def test_only_live_states_are_evicted_by_id(client: Client, status: str) -> None:
    if status == "recording":
        state_id = client.admit("ns", [1], "full_state", {"full": 1}).json()["state_id"]
    else:
        state_id = client.record_full("ns", [1], b"x")
        client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "r"})
    assert refused(client, state_ids=[state_id]) == (404, "state_not_found")
    assert client.stats()[status] == 1


def test_a_thousand_ids_are_taken_and_one_more_is_not(client: Client) -> None:
    ids = [f"01938c0d-e000-7000-8000-{n:012x}" for n in range(1001)]
    assert refused(client, state_ids=ids) == (422, "invalid_request")
    assert refused(client, state_ids=ids[:1000]) == (404, "state_not_found")
    state_id = client.record_full("ns", [1], b"x")
    assert evict(client, state_ids=[state_id] * 1000)["evicted"] == [state_id]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dry_run": True},
        {"state_ids": []},
        {"state_ids": ["x"]},
        {"state_ids": ["' OR 1=1 --"]},
        {"state_ids": [UNKNOWN.upper()]},
        {"state_ids": [7]},
        {"state_ids": [None]},
        {"state_ids": UNKNOWN},
        {"state_ids": [UNKNOWN], "namespace": "ns"},
        {"state_ids": [UNKNOWN], "target_bytes": 0},
        {"state_ids": [UNKNOWN], "untouched_for_s": 0},
        {"state_ids": [UNKNOWN], "tenant": "a"},
        {"namespace": ""},
        {"namespace": "x" * 257},
        {"namespace": 7},
        {"namespace": "ns", "tenant": "a b"},
        {"namespace": "ns", "tenant": "x" * 65},
        {"target_bytes": -1},
        {"target_bytes": 1.5},
        {"target_bytes": "0"},
        {"target_bytes": True},
        {"target_bytes": 2**63},
        {"target_bytes": 10**40},
        {"untouched_for_s": -1},
        {"untouched_for_s": 2**62},
        {"untouched_for_s": 0.5},
        {"target_bytes": 0, "dry_run": "yes"},
        {"target_bytes": 0, "dry_run": 1},
        {"target_bytes": 0, "everything": True},
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_goes(
    client: Client, body: dict[str, Any]
) -> None:
    client.record_full("ns", [1], b"x")
    assert refused(client, **body) == (422, "invalid_request")
    assert client.stats()["live"] == 1


# ---- by namespace, age, target ---------------------------------------------------------------


def test_eviction_of_a_namespace_takes_all_but_the_leased_and_the_pinned(client: Client) -> None:
    ids = [client.record_full("ns", [n], b"x") for n in range(70)]
    client.record_full("other", [1], b"x")
    client.lookup("ns", [3], acquire=True)
    client.put(f"/admin/v1/states/{ids[5]}/pin", json={"reason": "r"})
    found = evict(client, namespace="ns")
    assert sorted(found["evicted"]) == sorted(set(ids) - {ids[3], ids[5]})
    assert found["evicted_count"] == 68
    assert (found["kept_leased"], found["kept_pinned"]) == ([ids[3]], [ids[5]])
    assert client.stats()["live"] == 3
    assert refused(client, namespace="?") == (404, "namespace_not_found")


def test_eviction_to_a_target_takes_the_least_recently_used(client: Client) -> None:
    data = [bytes([n]) * 9 + str(n).encode() * 50_000 for n in range(10)]
    for n in range(10):
        client.record_full("ns", [n], data[n])
        time.sleep(0.002)
    client.restore("ns", [0])
    held = held_bytes(client)
    target = held // 2
    found = evict(client, target_bytes=target)
    assert held_bytes(client) == held - found["freed_bytes"] <= target
    assert client.lookup("ns", [0])["hit"] is True
    assert client.lookup("ns", [1])["hit"] is False
    assert client.lookup("ns", [9])["hit"] is True
    evict(client, target_bytes=0)
    assert client.holds_nothing()


def test_a_target_takes_no_more_than_it_needs(client: Client) -> None:
    for n in range(8):
        client.record_full("ns", [n], noise(n, 100_000))
    held = held_bytes(client)
    assert evict(client, target_bytes=held)["evicted"] == []
    found = evict(client, target_bytes=held - 1)
    assert found["evicted_count"] == 1


def test_a_target_of_a_namespace_counts_what_the_namespace_holds(client: Client) -> None:
    for n in range(6):
        client.record_full("a", [n], noise(n, 100_000))
        client.record_full("b", [n], noise(n, 100_000))  # the same blocks

    def held(name: str) -> int:
        page = client.get("/v1/namespaces", params={"namespace": name}).json()
        return int(page["namespaces"][0]["stored_bytes"])

    before, target = held_bytes(client), held("a") // 3
    planned = evict(client, namespace="a", target_bytes=target, dry_run=True)
    found = evict(client, namespace="a", target_bytes=target)
    assert same(planned, found)
    assert found["evicted_count"] == 4
    assert held("a") <= target
    assert held("b") > target
    # Their blocks stay with the other namespace: what goes is the overhead.
    assert found["freed_bytes"] == before - held_bytes(client) < 20_000


def test_eviction_by_age_takes_what_nobody_has_used(server: Server, client: Client) -> None:
    ids = [client.record_full("ns", [n], b"x") for n in range(4)]
    for n, state_id in enumerate(ids[:3]):
        sql(
            server.data,
            "UPDATE state SET touched_at_ms = touched_at_ms - ? WHERE state_id = ?",
            1000 * (3600 + 100 * n),
            state_id,
        )
    client.restore("ns", [1])
    found = evict(client, untouched_for_s=3600)
    assert found["evicted"] == [ids[2], ids[0]]
    assert scrape_until(server.url, "evictions_total", 2, cause="age")
    (miss,) = client.lookup("ns", [2])["misses"]
    assert miss["reason"] == "evicted_recently"
    why = client.post("/v1/explain", json={"namespace": "ns", "tokens": [2]}).json()
    assert [r["cause"] for r in why["unused"][0]["reasons"]] == ["age"]
    assert evict(client, untouched_for_s=3600)["evicted"] == []
    assert evict(client, untouched_for_s=0)["evicted_count"] == 2


def test_age_and_target_and_namespace_narrow_each_other(server: Server, client: Client) -> None:
    old = [client.record_full("ns", [n], noise(n, 100_000)) for n in range(4)]
    elsewhere = client.record_full("other", [1], noise("o", 100_000))
    for n, state_id in enumerate([elsewhere, *old]):
        sql(
            server.data,
            "UPDATE state SET touched_at_ms = ? WHERE state_id = ?",
            1_600_000_000_000 + n,
            state_id,
        )
    client.record_full("ns", [9], noise(9, 100_000))
    page = client.get("/v1/namespaces", params={"namespace": "ns"}).json()
    held = page["namespaces"][0]["stored_bytes"]
    body = {"namespace": "ns", "untouched_for_s": 3600, "target_bytes": held // 2}
    found = evict(client, **body)
    assert found["evicted"] == old[:3]
    assert evict(client, **{**body, "target_bytes": 0})["evicted"] == [old[3]]
    assert evict(client, **{**body, "target_bytes": 0})["evicted"] == []
    assert client.stats()["live"] == 2


def test_quarantined_states_give_way_to_a_target_only_and_last(client: Client) -> None:
    evidence = client.record_full("ns", [0], noise(0, 100_000))
    client.post(f"/admin/v1/states/{evidence}/quarantine", json={"reason": "r"})
    live = client.record_full("ns", [1], noise(1, 100_000))
    assert evict(client, untouched_for_s=0, dry_run=True)["evicted"] == [live]
    assert evict(client, namespace="ns", dry_run=True)["evicted"] == [live]
    planned = evict(client, target_bytes=0, dry_run=True)
    assert planned["evicted"] == [live, evidence]
    assert same(planned, evict(client, target_bytes=0))
    assert client.holds_nothing()


# ---- dry runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice",
    [
        {"namespace": "a"},
        {"namespace": "b"},
        {"untouched_for_s": 0},
        {"target_bytes": 0},
        {"target_bytes": 400_000},
        {"target_bytes": 700_000},
        {"namespace": "a", "target_bytes": 300_000},
        {"namespace": "b", "target_bytes": 1},
        {"tenant": "", "target_bytes": 500_000},
        {"ids": [0]},
        {"ids": [0, 1]},
        {"ids": [2, 1, 0]},
        {"ids": [4]},
        {"ids": [4, 5]},
        {"ids": [0, 1, 2, 3, 7]},
        {"ids": [0, 1, 2, 3, 4, 5, 6, 7]},
    ],
)
def test_a_dry_run_says_what_the_real_run_then_does(
    server: Server, client: Client, choice: dict[str, Any]
) -> None:
    ids = shared_set(client)
    body = {"state_ids": [ids[n] for n in choice["ids"]]} if "ids" in choice else choice
    before = client.stats()
    planned = evict(client, **body, dry_run=True)
    after = client.stats()
    for name in ("live", "stored_bytes", "block_count", "quarantined"):
        assert before[name] == after[name], "a dry run changed something"
    found = evict(client, **body)
    assert same(planned, found)
    assert found["evicted_count"] > 0
    assert found["freed_bytes"] == before["stored_bytes"] - held_bytes(client)
    server.stop()
    assert checked(server.data) == []


def test_a_dry_run_writes_nothing(server: Server, client: Client) -> None:
    shared_set(client)
    time.sleep(1.5)  # what the recordings noted has been flushed

    def rows() -> list[Any]:
        tables = (
            "state",
            "block",
            "state_block",
            "tombstone",
            "pin",
            "store",
            "namespace",
            "lease",
        )
        return [sql(server.data, f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4") for table in tables]

    before = rows()
    evict(client, target_bytes=0, dry_run=True)
    evict(client, namespace="a", dry_run=True)
    assert rows() == before


def test_a_dry_run_keeps_what_is_leased_or_pinned_like_the_real_one(client: Client) -> None:
    ids = shared_set(client)
    client.lookup("a", [7], acquire=True)
    client.put(f"/admin/v1/states/{ids[2]}/pin", json={"reason": "r"})
    for body in ({"target_bytes": 0}, {"state_ids": ids}):
        planned = evict(client, **body, dry_run=True)
        assert planned["kept_leased"] == [ids[4]]
        assert planned["kept_pinned"] == [ids[2]]
        assert sorted(planned["evicted"]) == sorted(set(ids) - {ids[4], ids[2]})
    before = held_bytes(client)
    planned = evict(client, target_bytes=0, dry_run=True)
    found = evict(client, target_bytes=0)
    assert same(planned, found)
    assert found["freed_bytes"] == before - held_bytes(client)


def test_a_target_stops_before_it_names_those_that_it_had_not_come_to(client: Client) -> None:
    ids = []
    for n in range(4):
        ids.append(client.record_full("ns", [n], noise(n, 100_000)))
        time.sleep(0.003)
    for state_id in (ids[0], ids[3]):
        client.put(f"/admin/v1/states/{state_id}/pin", json={"reason": "r"})
    held = held_bytes(client)
    planned = evict(client, target_bytes=held - 1, dry_run=True)
    assert (planned["evicted"], planned["kept_pinned"]) == ([ids[1]], [ids[0]])
    assert same(planned, evict(client, target_bytes=held - 1))


# ---- who asks --------------------------------------------------------------------------------


@pytest.fixture
def operator(server: Server) -> Client:
    with Client(server.url) as everyone:
        secret = make(everyone, *_EVERY)["secret"]
    return with_token(server, secret)


def test_another_tenants_states_are_answered_like_none(server: Server, operator: Client) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=t)["secret"]) for t in "ab")
    patterns = with_token(server, make(operator, *_EVERY, namespaces=["mine-*"])["secret"])
    theirs = [a.record_full("ns", [1], b"x"), operator.record_full("other", [1], b"x")]
    for client in (b, patterns):
        for dry_run in (True, False):
            nothing = client.post(
                "/admin/v1/evictions", json={"state_ids": [UNKNOWN], "dry_run": dry_run}
            )
            assert code(nothing) == (404, "state_not_found")
            for state_id in theirs:
                body = {"state_ids": [state_id], "dry_run": dry_run}
                answer = client.post("/admin/v1/evictions", json=body)
                assert _seen(answer) == _seen(nothing)
    assert operator.stats()["live"] == 2
    assert evict(a, state_ids=theirs[:1])["evicted"] == theirs[:1]


def test_a_tenant_evicts_its_own_and_nobody_elses(server: Server, operator: Client) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=t)["secret"]) for t in "ab")
    mine = [a.record_full(f"ns{n}", [n], noise(n, 50_000)) for n in range(3)]
    b.record_full("ns0", [0], noise(0, 50_000))
    operator.record_full("ns0", [0], noise("o", 50_000))
    planned = evict(a, target_bytes=0, dry_run=True)
    assert sorted(planned["evicted"]) == sorted(mine)
    assert evict(a, namespace="ns1")["evicted"] == [mine[1]]
    assert sorted(evict(a, untouched_for_s=0)["evicted"]) == sorted({mine[0], mine[2]})
    assert operator.stats()["live"] == 2
    assert refused(a, namespace="ns0", tenant="b") == (403, "forbidden")
    assert refused(a, target_bytes=0, tenant="b") == (403, "forbidden")
    assert refused(a, target_bytes=0, tenant="never") == (403, "forbidden")
    assert refused(a, tenant="b") == (403, "forbidden")
    assert refused(a, namespace="never") == (404, "namespace_not_found")


def test_patterns_narrow_a_whole_tenant(server: Server, operator: Client) -> None:
    client = with_token(server, make(operator, *_EVERY, namespaces=["mine-*"])["secret"])
    mine = []
    for n in range(6):
        name = "mine-1" if n % 2 else "mine-2"
        mine.append(client.record_full(name, [n], noise(n, 50_000)))
        operator.record_full("other", [n], noise(f"o{n}", 50_000))
        time.sleep(0.003)
    names = client.get("/v1/namespaces").json()["namespaces"]
    held = sum(one["stored_bytes"] for one in names)
    planned = evict(client, target_bytes=held // 2, dry_run=True)
    assert planned["evicted"] == mine[:3]
    assert same(planned, evict(client, target_bytes=held // 2))
    assert evict(client, untouched_for_s=0)["evicted"] == mine[3:]
    assert operator.stats()["live"] == 6
    assert refused(client, namespace="other") == refused(client, namespace="never")
    nobody = with_token(server, make(operator, *_EVERY, namespaces=["none-*"])["secret"])
    assert evict(nobody, target_bytes=0)["evicted"] == []


def test_an_operator_means_everybody_or_one_tenant(server: Server, operator: Client) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=t)["secret"]) for t in "ab")
    of_a, of_b = a.record_full("ns", [1], b"a"), b.record_full("ns", [1], b"b")
    mine = operator.record_full("ns", [1], b"o")
    assert evict(operator, namespace="ns", dry_run=True)["evicted"] == [mine]
    assert evict(operator, namespace="ns", tenant="a", dry_run=True)["evicted"] == [of_a]
    assert evict(operator, target_bytes=0, tenant="b", dry_run=True)["evicted"] == [of_b]
    assert evict(operator, target_bytes=0, tenant="default", dry_run=True)["evicted"] == [mine]
    assert evict(operator, untouched_for_s=0, tenant="b")["evicted"] == [of_b]
    assert evict(operator, tenant="a")["evicted"] == [of_a]
    assert evict(operator, tenant="never")["evicted"] == []
    assert evict(operator, target_bytes=0)["evicted"] == [mine]


def test_evicting_needs_admin_write_dry_or_not(server: Server, operator: Client) -> None:
    reader = with_token(server, make(operator, "admin:read", "lookup", "record")["secret"])
    for dry_run in (True, False):
        assert refused(reader, target_bytes=0, dry_run=dry_run) == (403, "forbidden")


def test_evictions_are_in_the_audit_log_dry_ones_as_such(operator: Client) -> None:
    evict(operator, target_bytes=0, dry_run=True)
    refused(operator, namespace="never")
    entries = operator.get("/admin/v1/audit", params={"action": "POST /admin/v1/evictions"}).json()
    found = [(e["outcome"], e["details"]["body"]) for e in entries["entries"]]
    assert found == [
        ("namespace_not_found", {"namespace": "never"}),
        ("done", {"target_bytes": 0, "dry_run": True}),
    ]


def test_a_dry_run_over_many_ids_is_one_in_the_audit_log_too(operator: Client) -> None:
    many = [f"0198c0de-0000-7000-8000-{n:012x}" for n in range(100)]
    refused(operator, state_ids=many, dry_run=True)
    entries = operator.get("/admin/v1/audit", params={"action": "POST /admin/v1/evictions"}).json()
    assert entries["entries"][0]["details"] == {
        "fields": ["dry_run", "state_ids"],
        "body": {"dry_run": True},
    }


# ---- beside others ---------------------------------------------------------------------------


def test_lookups_go_on_while_much_is_evicted_and_new_states_stay(client: Client) -> None:
    for n in range(300):
        client.record_full("old", [n], b"%d" % n)
    kept: list[str] = []
    stop = threading.Event()

    def record() -> None:
        with Client(str(client.base_url)) as another:
            n = 0
            while not stop.is_set():
                kept.append(another.record_full("old", [100_000 + n], b"new%d" % n))
                assert another.lookup("old", [100_000 + n])["hit"] is True
                n += 1

    recorder = threading.Thread(target=record)
    recorder.start()
    while not kept:
        time.sleep(0.01)
    try:
        found = evict(client, namespace="old")
    finally:
        stop.set()
        recorder.join()
    assert found["evicted_count"] >= 300
    assert set(found["evicted"]).isdisjoint(kept[-1:])
    assert client.stats()["live"] + found["evicted_count"] == 300 + len(kept)


def test_two_evictions_at_once_evict_each_state_once(client: Client) -> None:
    ids = [client.record_full("ns", [n], noise(n, 20_000)) for n in range(120)]
    answers: list[dict[str, Any]] = []

    def run() -> None:
        with Client(str(client.base_url)) as another:
            answers.append(evict(another, namespace="ns"))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gone = [state_id for answer in answers for state_id in answer["evicted"]]
    assert sorted(gone) == sorted(ids)
    assert client.holds_nothing()


def test_an_eviction_goes_on_when_its_caller_is_gone(client: Client) -> None:
    import httpx

    for n in range(400):
        client.record_full("ns", [n], b"%d" % n)
    with pytest.raises(httpx.ReadTimeout), Client(str(client.base_url)) as hasty:
        hasty.post("/admin/v1/evictions", json={"namespace": "ns"}, timeout=0.05)
    deadline = time.monotonic() + 60
    while client.stats()["live"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_lists_are_cut_short_and_counts_are_not(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        client.record_full("ns", [1], os.urandom(10))
    server.stop()
    _multiply(server, 10_050)
    server.start()
    with Client(server.url) as client:
        planned = evict(client, namespace="ns", dry_run=True)
        assert (len(planned["evicted"]), planned["evicted_count"]) == (10_000, 10_051)
        assert planned["more"] is False


def _multiply(server: Server, count: int) -> None:
    """So many states beside the first one, without blocks of their own."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    token = "unhex(printf('%08x', 1000 + i))"
    sql(
        server.data,
        f"{numbers}INSERT INTO radix_node SELECT 1000 + i, namespace_id, id, {token}, {token}, 1 "
        "FROM radix_node, n WHERE parent_id IS NULL",
        count,
    )
    sql(
        server.data,
        f"{numbers}INSERT INTO state SELECT 1000 + i, printf('01938c0d-e000-7000-8000-%012x', i), "
        "namespace_id, page_id, kind, status, 1000 + i, token_count, token_digest, manifest_digest, "
        "kv_descriptor, logical_bytes, overhead_bytes, created_at_ms, touched_at_ms, hits "
        "FROM state, n WHERE state.id = 1",
        count,
    )


# ---- tombstones ------------------------------------------------------------------------------


def test_tombstones_are_bounded(start: ServerFactory) -> None:
    server = start(tombstones=5)
    with Client(server.url) as client:
        for n in range(9):
            client.record_full("ns", [n], b"x")
        client.post("/admin/v1/evictions", json={"namespace": "ns"})
        reasons = [client.lookup("ns", [n])["misses"][0]["reason"] for n in range(9)]
    assert reasons == ["never_seen"] * 4 + ["evicted_recently"] * 5
