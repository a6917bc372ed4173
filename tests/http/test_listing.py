"""Operators' listings of states and namespaces, as callers of every kind see them."""

from __future__ import annotations

import base64
import json
import struct
import time
from typing import Any

import pytest

from tests.conftest import Sample, ServerFactory
from tests.http.test_access import _EVERY, make, with_token
from tests.support.client import Client, code
from tests.support.damage import sql
from tests.support.server import Server

STATES = "/admin/v1/states"
NAMESPACES = "/admin/v1/namespaces"
SORTS = ("created", "touched", "size", "tokens", "hits")


def b64url(tokens: list[int], *, padded: bool = False) -> str:
    text = base64.urlsafe_b64encode(struct.pack(f"<{len(tokens)}i", *tokens)).decode()
    return text if padded else text.rstrip("=")


def page(client: Client, route: str = STATES, **params: Any) -> dict[str, Any]:
    answer = client.get(route, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def everything(client: Client, route: str = STATES, **params: Any) -> list[dict[str, Any]]:
    """All pages, each as long as it may be."""
    found: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        one = page(client, route, **params, **after)
        found += one["states" if route == STATES else "namespaces"]
        if one["next"] is None:
            return found
        after = {"after": one["next"]}


def ids(client: Client, **params: Any) -> list[str]:
    return [state["state_id"] for state in everything(client, **params)]


def pin(server: Server, state_id: str, expires_at_ms: int | None = None) -> None:
    sql(
        server.data,
        "INSERT INTO pin SELECT id, ?, 'a reason', 'open', 17 FROM state WHERE state_id = ?",
        expires_at_ms,
        state_id,
    )


def set_state(server: Server, state_id: str, **columns: int) -> None:
    names = ", ".join(f"{name} = ?" for name in columns)
    sql(server.data, f"UPDATE state SET {names} WHERE state_id = ?", *columns.values(), state_id)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---- filters -------------------------------------------------------------------------------


def test_states_are_found_by_namespace_tenant_status_and_kind(
    client: Client, server: Server, hybrid: list[Sample]
) -> None:
    full = [client.record_full(f"ns{n % 2}", [n], b"x") for n in range(4)]
    windows = client.record_sample("ns0", hybrid[0])
    client.post(f"{STATES}/{full[0]}/quarantine", json={"reason": "r"})
    pending = client.admit("ns1", [99], "full_state", {"full": 1}).json()["state_id"]
    assert ids(client) == [*full, windows, pending]
    assert ids(client, namespace="ns0") == [full[0], full[2], windows]
    assert ids(client, namespace="ns0", status="live") == [full[2], windows]
    assert ids(client, status="quarantined") == [full[0]]
    assert ids(client, status="recording") == [pending]
    assert ids(client, kind="kv_recurrent") == [windows]
    assert ids(client, kind="kv") == ids(client, namespace="nope") == []
    assert ids(client, tenant="default") == ids(client, tenant="") == [*full, windows, pending]
    assert ids(client, tenant="nobody") == ids(client, tenant="nobody", namespace="ns0") == []


def test_states_are_found_by_age_use_and_size(client: Client, server: Server) -> None:
    found = [client.record_full("ns", [n], bytes(10 * n + 10)) for n in range(4)]
    for n, state_id in enumerate(found):
        then = now_ms() - 100_000 * n
        set_state(server, state_id, created_at_ms=then, touched_at_ms=then + 50_000 * n)
    assert ids(client, min_age_s=150) == found[2:]
    assert ids(client, max_age_s=150) == found[:2]
    assert ids(client, min_age_s=50, max_age_s=250) == found[1:3]
    assert ids(client, untouched_for_s=75) == found[2:]
    assert ids(client, untouched_for_s=75, max_age_s=250) == found[2:3]
    assert ids(client, min_bytes=30) == found[2:]
    assert ids(client, max_bytes=30) == found[:3]
    assert ids(client, min_bytes=20, max_bytes=20) == found[1:2]
    assert ids(client, min_age_s=0, max_age_s=3_000_000_000, max_bytes=1 << 60) == found


def test_ages_are_those_at_the_first_page(client: Client, server: Server) -> None:
    found = [client.record_full("ns", [n], b"x") for n in range(3)]
    for state_id in found:
        set_state(server, state_id, created_at_ms=now_ms() - 9_000)
    first = page(client, max_age_s=10, limit=1)
    time.sleep(1.5)
    rest = page(client, max_age_s=10, limit=5, after=first["next"])
    assert [s["state_id"] for s in rest["states"]] == found[1:]
    assert ids(client, max_age_s=10) == []


def test_states_are_found_by_the_tokens_they_begin_with(client: Client) -> None:
    stem = list(range(70_000, 70_040))
    short = client.record_full("ns", stem[:20], b"x")
    long = client.record_full("ns", [*stem, 1], b"x")
    other = client.record_full("ns", [*stem, 2], b"x")
    client.record_full("ns", [5, 6], b"x")
    client.record_full("elsewhere", [*stem, 3], b"x")

    def under(tokens: list[int], **more: Any) -> list[str]:
        return ids(client, namespace="ns", under_b64=b64url(tokens), **more)

    assert under(stem[:1]) == under(stem[:19]) == under(stem[:20]) == [short, long, other]
    assert under(stem[:21]) == under(stem) == [long, other]  # the first ends inside an edge
    assert under([*stem, 2]) == [other]
    assert under([*stem, 2, 2]) == under([*stem, 4]) == under([*stem[:21], 4]) == under([9]) == []
    assert under(stem, order="desc", limit=1) == [other, long]
    assert under(stem[:1], sort="tokens", order="desc", limit=1) == [other, long, short]
    client.post(f"{STATES}/{long}/quarantine", json={"reason": "r"})
    assert under(stem, status="quarantined") == [long]
    padded = b64url(stem[:20], padded=True)
    assert padded.endswith("=")
    assert ids(client, namespace="ns", under_b64=padded) == [short, long, other]
    assert ids(client, namespace="nope", under_b64=padded) == []


def test_a_pin_is_shown_until_it_runs_out(client: Client, server: Server) -> None:
    found = [client.record_full("ns", [n], b"x") for n in range(4)]
    ends = now_ms() + 3_600_000
    pin(server, found[0])
    pin(server, found[1], ends)
    pin(server, found[2], now_ms() - 1)
    assert ids(client, pinned="true") == found[:2]
    assert ids(client, pinned="false") == found[2:]
    assert ids(client, pinned="true", namespace="nope") == []
    shown = [state["pin"] for state in everything(client)]
    kept = {"reason": "a reason", "actor": "open", "created_at_ms": 17}
    assert shown == [{"expires_at_ms": None, **kept}, {"expires_at_ms": ends, **kept}, None, None]
    assert [client.get(f"{STATES}/{one}").json()["pin"] for one in found] == shown
    client.post(f"{STATES}/{found[0]}/quarantine", json={"reason": "r"})
    assert ids(client, pinned="true", status="quarantined") == found[:1]


# ---- orders and pages ----------------------------------------------------------------------


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_each_order_has_its_ties_by_state_id(
    client: Client, server: Server, sort: str, order: str, limit: int
) -> None:
    facts: list[tuple[int, str]] = []
    for n in range(9):
        state_id = client.record_full("ns", [n] * (1 + n % 3), bytes(1 + n // 3))
        set_state(server, state_id, touched_at_ms=now_ms() - 1000 * (n % 4), hits=n % 2)
        facts.append((n, state_id))
    touched = {s["state_id"]: s["touched_at_ms"] // 1000 for s in everything(client)}
    for n, state_id in facts:
        set_state(server, state_id, touched_at_ms=1000 * touched[facts[n % 4][1]])
    shown = {s["state_id"]: s for s in everything(client)}
    field = {"touched": "touched_at_ms", "size": "logical_bytes", "tokens": "token_count"}
    key = field.get(sort, sort)
    expected = sorted(shown, key=lambda one: (shown[one].get(key, 0), one), reverse=order == "desc")
    assert ids(client, namespace="ns", sort=sort, order=order, limit=limit) == expected
    if sort in ("created", "touched"):
        assert ids(client, sort=sort, order=order, limit=limit) == expected


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_go_on_where_they_were_while_states_come_and_go(client: Client, order: str) -> None:
    found = [client.record_full("ns", [n], b"x") for n in range(12)]
    seen: list[str] = []
    after: dict[str, str] = {}
    gone: set[str] = set()
    for turn in range(40):
        one = page(client, limit=2, order=order, **after)
        seen += [state["state_id"] for state in one["states"]]
        if one["next"] is None:
            break
        after = {"after": one["next"]}
        client.record_full("ns", [100 + turn], b"x")
        if turn % 2:
            # The very state that the cursor stands at, and one that is still to come.
            leaving = {seen[-1], *(set(found) - set(seen) - gone)}.intersection(found)
            leaving = set(sorted(leaving)[:2])
            client.post("/admin/v1/evictions", json={"state_ids": sorted(leaving)})
            gone |= leaving
    assert one["next"] is None or order == "asc"
    assert len(seen) == len(set(seen))
    assert set(found) - gone <= set(seen)


def test_the_last_page_says_that_it_is_the_last(client: Client) -> None:
    for n in range(4):
        client.record_full("ns", [n], b"x")
    first = page(client, limit=2)
    assert first["next"] is not None
    assert page(client, limit=2, after=first["next"])["next"] is None
    assert page(client, limit=4)["next"] is None


# ---- cursors and absurd values -------------------------------------------------------------


def test_a_cursor_continues_nothing_but_its_own_listing(client: Client) -> None:
    for n in range(4):
        client.record_full("ns", [1, n], b"x")
    asked: dict[str, Any] = {"namespace": "ns", "sort": "tokens", "limit": 1}
    cursor = page(client, **asked)["next"]
    assert page(client, **asked, after=cursor)["states"]
    assert page(client, **{**asked, "limit": 2}, after=cursor)["states"]
    for other in (
        {"sort": "size"},
        {"order": "desc"},
        {"status": "live"},
        {"kind": "kv"},
        {"namespace": "other"},
        {"min_age_s": 0},
        {"max_age_s": 0},
        {"untouched_for_s": 0},
        {"min_bytes": 0},
        {"max_bytes": 0},
        {"under_b64": b64url([1])},
        {"pinned": "false"},
        {"tenant": "a"},
        # Not the same as no tenant, where a namespace is not named.
        {"namespace": None, "sort": "created"},
    ):
        params = {k: v for k, v in {**asked, **other, "after": cursor}.items() if v is not None}
        answer = client.get(STATES, params=params)
        assert code(answer) == (422, "invalid_request"), other
        assert answer.json()["field"] == "query.after"
    assert code(client.get(NAMESPACES, params={"after": cursor})) == (422, "invalid_request")


def _forged(cursor: str, change: Any) -> str:
    digest, *place = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    text = json.dumps(change(digest, place))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "change",
    [
        lambda digest, place: [digest, *place[:-1]],
        lambda digest, place: [digest, *place, 1],
        lambda digest, place: [digest, "0", *place[1:]],
        lambda digest, place: [digest, True, *place[1:]],
        lambda digest, place: [digest, place[0], 1.5, place[2]],
        lambda digest, place: [digest, place[0], 10**30, place[2]],
        lambda digest, place: [digest, -(10**30), *place[1:]],
        lambda digest, place: [digest, *place[:2], "\ud800"],
        lambda digest, place: [digest, *place[:2], None],
        lambda digest, place: [None, *place],
        lambda digest, place: {digest: place},
        lambda digest, place: digest,
        lambda digest, place: 7,
        lambda digest, place: [],
        lambda digest, place: [digest, *place],  # the same, with spaces
    ],
)
def test_a_cursor_that_was_made_up_is_refused(client: Client, change: Any) -> None:
    for n in range(3):
        client.record_full("ns", [n], b"x")
    cursor = page(client, limit=1)["next"]
    answer = client.get(STATES, params={"limit": 1, "after": _forged(cursor, change)})
    assert code(answer) == (422, "invalid_request")
    assert answer.json()["field"] == "query.after"


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "1", "nope", "é", "====", "\x00", "W10", "bnVsbA", "[" * 2000),
        *("A" * 4096, "A" * 4097, "01938c0d-e000-7000-8000-000000000000"),
        base64.urlsafe_b64encode(b"[" * 2900).decode(),
    ],
)
def test_what_is_no_cursor_is_refused(client: Client, cursor: str) -> None:
    for route in (STATES, NAMESPACES):
        answer = client.get(route, params={"after": cursor})
        assert code(answer) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"sort": "age"}, "invalid_request"),
        ({"order": "up"}, "invalid_request"),
        ({"status": "gone"}, "invalid_request"),
        ({"kind": "cake"}, "invalid_request"),
        ({"pinned": "perhaps"}, "invalid_request"),
        ({"limit": 0}, "invalid_request"),
        ({"limit": 1001}, "invalid_request"),
        ({"limit": "9" * 40}, "invalid_request"),
        ({"min_age_s": -1}, "invalid_request"),
        ({"max_age_s": 1 << 63}, "invalid_request"),
        ({"untouched_for_s": "soon"}, "invalid_request"),
        ({"min_bytes": 1 << 70}, "invalid_request"),
        ({"max_bytes": "NaN"}, "invalid_request"),
        ({"min_bytes": 2, "max_bytes": 1}, "invalid_request"),
        ({"min_age_s": 2, "max_age_s": 1}, "invalid_request"),
        ({"tenant": "x" * 65}, "invalid_request"),
        ({"under_b64": b64url([1])}, "invalid_request"),
        ({"namespace": "ns", "under_b64": ""}, "invalid_tokens"),
        ({"namespace": "ns", "under_b64": "AAAA"}, "invalid_tokens"),
        ({"namespace": "ns", "under_b64": "AAAAA"}, "invalid_tokens"),
        ({"namespace": "ns", "under_b64": "AA AA*"}, "invalid_tokens"),
        ({"namespace": "ns", "under_b64": "ä"}, "invalid_tokens"),
        *(({"sort": sort}, "invalid_request") for sort in ("size", "tokens", "hits")),
        *(({"sort": sort, "tenant": "a"}, "invalid_request") for sort in ("size", "tokens")),
    ],
)
def test_filters_that_make_no_sense_are_refused(
    client: Client, params: dict[str, Any], expected: str
) -> None:
    answer = client.get(STATES, params=params)
    assert code(answer) == (422, expected)
    assert answer.json()["field"].startswith("query.")


@pytest.mark.parametrize("name", ["\x00", "x" * 5000, "ns\n"])
def test_a_namespace_that_cannot_be_is_refused(client: Client, name: str) -> None:
    client.record_full("ns", [1], b"x")
    assert code(client.get(STATES, params={"namespace": name})) == (422, "invalid_namespace")
    assert everything(client, NAMESPACES, model=name) == []


@pytest.mark.parametrize("name", ["'; DROP TABLE state; --", "%", "*"])
def test_a_namespace_that_nobody_used_has_no_states(client: Client, name: str) -> None:
    client.record_full("ns", [1], b"x")
    assert ids(client, namespace=name) == []
    assert everything(client, NAMESPACES, model=name) == []


def test_tokens_of_a_filter_are_in_no_log_and_no_error(client: Client, server: Server) -> None:
    tokens = b64url([71_234_567, 71_234_568])
    client.get(STATES, params={"namespace": "ns", "under_b64": tokens})
    refused = client.get(STATES, params={"under_b64": tokens})
    assert tokens not in refused.text
    assert tokens not in server.logged()


# ---- who sees what -------------------------------------------------------------------------


@pytest.fixture
def operator(server: Server) -> Client:
    with Client(server.url) as everyone:
        return with_token(server, make(everyone, *_EVERY)["secret"])


def _bound(server: Server, operator: Client, **more: Any) -> Client:
    return with_token(server, make(operator, *_EVERY, **more)["secret"])


def test_a_bound_caller_lists_its_own_and_learns_of_nothing_else(
    server: Server, operator: Client
) -> None:
    a, b = (_bound(server, operator, tenant=tenant) for tenant in "ab")
    mine = [a.record_full(f"ns-{n % 2}", [n], b"of a") for n in range(5)]
    cased = _bound(server, operator, tenant="a", namespaces=["ns-1", "none-*"])
    few = _bound(server, operator, namespaces=["x-*"])
    asked: list[dict[str, Any]] = [
        {"sort": sort, "order": order, "limit": limit, **more}
        for sort in ("created", "touched")
        for order in ("asc", "desc")
        for limit in (1, 2, 5)
        for more in ({}, {"status": "live"}, {"pinned": "false"}, {"min_bytes": 1}, {"kind": "kv"})
    ]
    asked += [
        {"namespace": "ns-1", "sort": sort, "under_b64": b64url([1]), "limit": 1} for sort in SORTS
    ]

    def seen() -> list[Any]:
        found: list[Any] = []
        for client in (a, cased):
            for params in asked:
                one = page(client, **params)
                # A cursor holds when the listing began, and else only what the page has shown.
                cursor = one.pop("next")
                place = None
                if cursor is not None:
                    place = json.loads(base64.urlsafe_b64decode(cursor + "=="))[2:]
                found.append((one, place))
            found.append(everything(client, NAMESPACES, limit=1))
        return found

    before = seen()
    for n in range(6):
        b.record_full(f"ns-{n % 2}", [n], b"of b")
        operator.record_full(f"ns-{n % 2}", [n], b"of nobody")
        pin(server, operator.record_full("x-1", [n], b"x"))
    assert seen() == before
    assert ids(a) == ids(a, tenant="a") == mine
    assert ids(cased) == ids(cased, namespace="ns-1") == [mine[1], mine[3]]
    assert {state["namespace"] for state in everything(few)} == {"x-1"}
    assert len(ids(few, pinned="true")) == 6
    assert ids(a, pinned="true") == ids(_bound(server, operator, tenant="empty")) == []
    assert len(ids(operator)) == 5 + 18
    assert ids(operator, tenant="a") == mine
    assert ids(operator, tenant="a", namespace="ns-1") == [mine[1], mine[3]]
    assert len(ids(operator, namespace="ns-1")) == 3


def test_a_bound_caller_asks_for_nobody_elses(server: Server, operator: Client) -> None:
    a = _bound(server, operator, tenant="a")
    cased = _bound(server, operator, tenant="a", namespaces=["ns-1"])
    _bound(server, operator, tenant="b").record_full("ns", [1], b"x")
    a.record_full("ns-2", [1], b"x")
    for client, params in (
        (a, {"tenant": "b"}),
        (a, {"tenant": "never"}),
        (a, {"tenant": "default"}),
        (a, {"tenant": "b", "namespace": "ns"}),
        (cased, {"namespace": "ns-2"}),
        (cased, {"namespace": "ns-3"}),
        (cased, {"tenant": "b"}),
    ):
        answer = client.get(STATES, params=params)
        assert code(answer) == (403, "forbidden"), params
        assert "never" not in answer.text
    for tenant in ("b", "never", ""):
        assert code(a.get(NAMESPACES, params={"tenant": tenant})) == (403, "forbidden")
    assert ids(cased, tenant="a") == []


def test_the_cursor_of_another_caller_is_refused(server: Server, operator: Client) -> None:
    a, b = (_bound(server, operator, tenant=tenant) for tenant in "ab")
    cased = _bound(server, operator, tenant="a", namespaces=["*"])
    for client in (a, b):
        for n in range(3):
            client.record_full(f"ns{n}", [n], b"x")
    for route in (STATES, NAMESPACES):
        cursor = page(a, route, limit=1)["next"]
        for client in (b, cased, operator):
            answer = client.get(route, params={"limit": 1, "after": cursor})
            assert code(answer) == (422, "invalid_request")
        # An operator who asks for the tenant asks the same.
        assert page(operator, route, limit=1, tenant="a", after=cursor)["next"]


# ---- namespaces ----------------------------------------------------------------------------


def test_namespaces_come_with_counts_mode_and_identity(client: Client, server: Server) -> None:
    identity = {"model_id": "m", "weights_digest": "sha256:00", "layers": [0, 6]}
    client.post("/v1/namespaces", json={"namespace": "n", "identity": identity})
    found = [client.record_full("n", [n], bytes(10)) for n in range(4)]
    client.record_full("other", [1], b"x")
    client.admit("n", [9], "full_state", {"full": 1})
    client.post(f"{STATES}/{found[0]}/quarantine", json={"reason": "r"})
    pin(server, found[0])
    pin(server, found[1], now_ms() + 60_000)
    pin(server, found[2], now_ms() - 1)
    client.patch(NAMESPACES, json={"namespace": "n", "mode": "lookup", "max_entries": 9})
    one, other = everything(client, NAMESPACES)
    assert (one["namespace"], one["tenant"], one["model"]) == ("n", "", "m")
    assert (one["identity"], one["warnings"]) == (identity, [])
    assert (one["entries"], one["recording"], one["quarantined"], one["pinned"]) == (3, 1, 1, 2)
    assert (one["mode"], one["effective_mode"], one["max_entries"]) == ("lookup", "lookup", 9)
    assert one["logical_bytes"] == 30
    assert one["stored_bytes"] > other["stored_bytes"] > 0
    assert (other["identity"], other["model"]) == (None, None)
    assert other["warnings"] == ["no_identity_registered"]
    assert (other["mode"], other["effective_mode"]) == (None, "lookup_record")
    assert (other["recording"], other["quarantined"], other["pinned"]) == (0, 0, 0)
    plain = client.get("/v1/namespaces").json()["namespaces"]
    assert [{k: v for k, v in n.items() if k in plain[0]} for n in (one, other)] == plain
    client.put("/admin/v1/mode", json={"mode": "record"})
    assert [n["effective_mode"] for n in everything(client, NAMESPACES)] == ["lookup", "record"]


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_namespaces_are_filtered_by_tenant_and_model(
    server: Server, operator: Client, limit: int
) -> None:
    a = _bound(server, operator, tenant="a")
    for client in (operator, a):
        for n in range(4):
            identity = {"model_id": f"m{n % 2}", "weights_digest": "d"}
            body = {"namespace": f"n{n}", "identity": identity}
            assert client.post("/v1/namespaces", json=body).status_code == 200
        client.record_full("z", [1], b"x")

    def listed(client: Client, **params: Any) -> list[tuple[str, str]]:
        found = everything(client, NAMESPACES, limit=limit, **params)
        return [(one["tenant"], one["namespace"]) for one in found]

    mine = [("a", name) for name in ("n0", "n1", "n2", "n3", "z")]
    default = [("", name) for _, name in mine]
    assert sorted(listed(operator)) == default + mine
    assert listed(operator, tenant="a") == listed(a) == mine
    assert listed(operator, tenant="default") == default
    assert listed(operator, model="m1", tenant="a") == listed(a, model="m1") == [mine[1], mine[3]]
    assert sorted(listed(operator, model="m0")) == [default[0], default[2], mine[0], mine[2]]
    assert listed(a, model="m") == listed(operator, tenant="b") == []
    cased = _bound(server, operator, tenant="a", namespaces=["n[13]"])
    assert listed(cased) == [mine[1], mine[3]]
    assert listed(cased, model="m0") == []


def test_a_page_of_long_identities_ends_early_and_goes_on(client: Client) -> None:
    for n in range(24):
        identity = {"model_id": "m", "weights_digest": "d", "notes": "x" * 60_000}
        client.post("/v1/namespaces", json={"namespace": f"n{n:02}", "identity": identity})
    first = page(client, NAMESPACES, limit=1000)
    assert 10 < len(first["namespaces"]) < 24
    names = [one["namespace"] for one in everything(client, NAMESPACES, limit=1000)]
    assert names == [f"n{n:02}" for n in range(24)]
    plain = client.get("/v1/namespaces", params={"limit": 1000}).json()
    assert plain["next"] == first["namespaces"][-1]["namespace"]


def test_every_worker_continues_every_listing(start: ServerFactory) -> None:
    server = start(workers=2)
    with Client(server.url) as client:
        found = [client.record_full("ns", [n], b"x") for n in range(12)]
    listed, after = [], None
    for _ in range(12):
        # A connection each, so that the pages come from both.
        with Client(server.url) as client:
            one = page(client, limit=1, **({} if after is None else {"after": after}))
        listed += [state["state_id"] for state in one["states"]]
        after = one["next"]
    assert listed == found
    assert after is None
