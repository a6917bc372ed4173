"""Explanations: every reason why a longer state does not serve a query, and nothing changed by asking."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Sample, ServerFactory
from tests.support.client import Client, code, prefix
from tests.support.damage import sql
from tests.support.server import Server

TOKENS = [70_001 + n for n in range(60)]


def explain(client: Client, tokens: list[int], namespace: str = "ns", **more: Any) -> Any:
    answer = client.post("/v1/explain", json={**prefix(namespace, tokens), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def reasons(found: Any) -> dict[str, list[str]]:
    """state id -> reasons, in the order of the answer."""
    return {one["state_id"]: [r["reason"] for r in one["reasons"]] for one in found["unused"]}


def record_kv(client: Client, sample: Sample, namespace: str = "ns") -> str:
    return client.record(
        namespace,
        sample.tokens,
        "kv",
        {"kv": sample.components["kv"]},
        kv_descriptor=sample.kv_descriptor,
    )


def flip_edge(data: Path, state_id: str, token: int) -> None:
    """Give one token of the edge to a state another id."""
    ((node, edge),) = sql(
        data,
        "SELECT n.id, n.edge FROM radix_node n JOIN state s ON s.node_id = n.id WHERE s.state_id = ?",
        state_id,
    )
    assert isinstance(edge, bytes)
    flipped = edge[: 4 * token] + struct.pack("<i", 4711) + edge[4 * token + 4 :]
    sql(data, "UPDATE radix_node SET edge = ? WHERE id = ?", flipped, node)


# ---- how far -------------------------------------------------------------------------------


def test_an_empty_store_knows_no_namespace(client: Client) -> None:
    assert explain(client, TOKENS) == {
        "token_count": 60,
        "namespace_known": False,
        "mode": "lookup_record",
        "lookup_allowed": True,
        "common_tokens": 0,
        "parting": "tree_is_empty",
        "usable_tokens": 0,
        "unused": [],
        "omitted": 0,
        "misses_last_hour": {},
    }
    client.put("/admin/v1/mode", json={"mode": "record"})
    found = explain(client, TOKENS)
    assert (found["mode"], found["lookup_allowed"]) == ("record", False)


def test_a_namespace_that_holds_nothing_is_known(client: Client) -> None:
    client.post(
        "/v1/namespaces", json={"namespace": "ns", "identity": {"weights_digest": "w"}}
    ).raise_for_status()
    found = explain(client, TOKENS)
    assert (found["namespace_known"], found["parting"]) == (True, "tree_is_empty")
    assert "nearest_namespace" not in found
    state_id = client.record_full("ns", TOKENS, b"x")
    client.post("/admin/v1/evictions", json={"state_ids": [state_id]})
    assert explain(client, [5])["parting"] == "tree_is_empty"


@pytest.mark.parametrize(
    ("query", "common", "parting"),
    [
        (TOKENS[:40], 40, "query_ends"),
        (TOKENS[:25], 25, "query_ends"),
        ([*TOKENS[:25], 9], 25, "tokens_differ"),
        ([*TOKENS[:20], 9], 20, "tokens_differ"),
        ([*TOKENS[:40], 9], 40, "tree_ends"),
        ([9], 0, "tokens_differ"),
    ],
    ids=["at_a_node", "in_an_edge", "off_an_edge", "off_a_node", "behind_a_leaf", "at_once"],
)
def test_it_says_how_far_the_tree_goes_and_how_query_and_tree_part(
    client: Client, query: list[int], common: int, parting: str
) -> None:
    client.record_full("ns", TOKENS[:20], b"a")
    client.record_full("ns", TOKENS[:40], b"b")
    found = explain(client, query)
    assert (found["common_tokens"], found["parting"]) == (common, parting)
    assert found["usable_tokens"] == (client.lookup("ns", query).get("state") or {}).get(
        "token_count", 0
    )


def test_the_usable_state_is_that_of_a_lookup(client: Client) -> None:
    client.record_full("ns", TOKENS[:10], b"short")
    client.record("ns", TOKENS[:30], "recurrent_only", {"recurrent": b"r"})
    wanted = client.record_full("ns", TOKENS[:30], b"long")
    found = explain(client, TOKENS)
    assert found["usable"] == client.lookup("ns", TOKENS)["state"]
    assert (found["usable"]["state_id"], found["usable_tokens"]) == (wanted, 30)
    assert found["unused"] == []
    kinds = ["recurrent_only", "full_state"]
    found = explain(client, TOKENS, accept_kinds=kinds)
    assert found["usable"] == client.lookup("ns", TOKENS, accept_kinds=kinds)["state"]
    assert found["usable"]["kind"] == "recurrent_only"


# ---- each reason ---------------------------------------------------------------------------


def test_a_kind_that_is_not_accepted(client: Client) -> None:
    short = client.record_full("ns", TOKENS[:10], b"x")
    other = client.record("ns", TOKENS[:30], "recurrent_only", {"recurrent": b"r"})
    found = explain(client, TOKENS)
    assert found["usable"]["state_id"] == short
    assert found["unused"] == [
        {
            "state_id": other,
            "kind": "recurrent_only",
            "status": "live",
            "token_count": 30,
            "common_tokens": 30,
            "reasons": [{"reason": "kind_not_accepted"}],
        }
    ]


def test_a_quarantined_state_with_class_and_time(client: Client) -> None:
    state_id = client.record_full("ns", TOKENS[:30], b"x")
    lease = client.lookup("ns", TOKENS, acquire=True)["lease"]["lease_id"]
    before = time.time() * 1000
    client.fail(lease, "unsupported")
    found = explain(client, TOKENS)
    (unused,) = found["unused"]
    assert (unused["state_id"], unused["status"]) == (state_id, "quarantined")
    (reason,) = unused["reasons"]
    assert (reason["reason"], reason["failure_class"]) == ("quarantined", "unsupported")
    assert before - 50 <= reason["at_ms"] <= time.time() * 1000
    assert "import refused" not in str(found)  # what a client wrote is for operators
    assert (found["usable_tokens"], "usable" in found) == (0, False)


def test_a_recording_under_way(client: Client) -> None:
    client.record_full("ns", TOKENS[:10], b"x")
    before = time.time() * 1000
    state_id = client.admit("ns", TOKENS[:30], "full_state", {"full": 1}).json()["state_id"]
    client.admit("ns", [*TOKENS[:29], 1], "full_state", {"full": 1})  # of another prefix
    client.admit("ns", [*TOKENS, 1], "full_state", {"full": 1})  # longer than the query
    found = explain(client, TOKENS)
    assert reasons(found) == {state_id: ["recording"]}
    (unused,) = found["unused"]
    assert (unused["status"], unused["token_count"]) == ("recording", 30)
    assert before - 50 <= unused["reasons"][0]["at_ms"] <= time.time() * 1000
    assert found["usable_tokens"] == 10


def test_an_evicted_state_with_time_and_cause(client: Client) -> None:
    state_id = client.record_full("ns", TOKENS[:30], b"x")
    before = time.time() * 1000
    client.post("/admin/v1/evictions", json={"state_ids": [state_id]})
    (unused,) = explain(client, TOKENS)["unused"]
    assert (unused["state_id"], unused["status"], unused["token_count"]) == (
        state_id,
        "evicted",
        30,
    )
    (reason,) = unused["reasons"]
    assert (reason["reason"], reason["cause"]) == ("evicted", "admin")
    assert before - 50 <= reason["at_ms"] <= time.time() * 1000
    again = client.record_full("ns", TOKENS[:30], b"x")
    client.post(f"/admin/v1/states/{again}/quarantine", json={"reason": "r"})
    assert reasons(explain(client, TOKENS)) == {again: ["quarantined"]}


def test_an_eviction_by_a_limit_says_which(start: ServerFactory) -> None:
    with Client(start(max_entries=2).url) as client:
        gone = client.record_full("ns", TOKENS[:30], b"x")
        for n in range(2):
            time.sleep(0.002)
            client.record_full("ns", [n], b"x")
        (unused,) = explain(client, TOKENS)["unused"]
    assert unused["state_id"] == gone
    assert unused["reasons"][0]["cause"] == "entries"


def test_a_purged_state_is_explained_too(client: Client) -> None:
    state_id = client.record_full("ns", TOKENS[:30], b"x")
    client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "r"})
    client.delete(f"/admin/v1/states/{state_id}")
    (unused,) = explain(client, TOKENS)["unused"]
    assert unused["reasons"][0]["cause"] == "purged"


@pytest.mark.parametrize("mode", ["disabled", "record"])
def test_lookups_that_the_mode_forbids(client: Client, mode: str) -> None:
    state_id = client.record_full("ns", TOKENS[:30], b"x")
    client.patch("/admin/v1/namespaces", json={"namespace": "ns", "mode": mode})
    found = explain(client, TOKENS)
    assert (found["mode"], found["lookup_allowed"]) == (mode, False)
    assert (found["usable_tokens"], reasons(found)) == (0, {state_id: ["lookup_disabled"]})


def test_a_longer_kv_state_would_be_usable_truncated(client: Client, hybrid: list[Sample]) -> None:
    state_id = record_kv(client, hybrid[2])
    query = [*hybrid[2].tokens[:200], 4711]
    found = explain(client, query)
    assert (found["common_tokens"], found["usable_tokens"]) == (200, 0)
    (unused,) = found["unused"]
    assert (unused["state_id"], unused["common_tokens"], unused["token_count"]) == (
        state_id,
        200,
        256,
    )
    assert unused["reasons"] == [{"reason": "truncation_not_allowed"}]
    allowed = explain(client, query, allow_truncated=True)
    looked_up = client.lookup("ns", query, allow_truncated=True)
    assert allowed["usable"] == looked_up["state"]
    assert allowed["usable_tokens"] == looked_up["prefix_tokens"] == 200
    assert allowed["unused"] == []


def test_states_beyond_that_cannot_be_cut_part_from_the_query(
    client: Client, hybrid: list[Sample]
) -> None:
    state_id = client.record_sample("ns", hybrid[2])
    for allowed in (False, True):
        found = explain(client, hybrid[2].tokens[:200], allow_truncated=allowed)
        assert (found["parting"], found["usable_tokens"]) == ("query_ends", 0)
        assert reasons(found) == {state_id: ["parts_from_query"]}


def test_a_cut_that_gains_nothing_is_not_called_usable(
    client: Client, hybrid: list[Sample]
) -> None:
    whole = record_kv(client, hybrid[2])
    short = record_kv(client, hybrid[0])
    for allowed in (False, True):
        found = explain(client, hybrid[2].tokens[:128], allow_truncated=allowed)
        assert found["usable"]["state_id"] == short
        assert reasons(found) == {whole: ["parts_from_query"]}


# ---- several reasons -----------------------------------------------------------------------


def test_two_states_on_one_path_have_a_reason_each_and_the_longest_comes_first(
    client: Client,
) -> None:
    usable = client.record_full("ns", TOKENS[:5], b"x")
    gone = client.record_full("ns", TOKENS[:10], b"x")
    client.post("/admin/v1/evictions", json={"state_ids": [gone]})
    bad = client.record_full("ns", TOKENS[:20], b"x")
    client.post(f"/admin/v1/states/{bad}/quarantine", json={"reason": "r"})
    kind = client.record("ns", TOKENS[:30], "recurrent_only", {"recurrent": b"r"})
    coming = client.admit("ns", TOKENS[:40], "full_state", {"full": 1}).json()["state_id"]
    beyond = client.record_full("ns", [*TOKENS[:50], 1], b"x")
    found = explain(client, TOKENS)
    assert list(reasons(found).items()) == [
        (beyond, ["parts_from_query"]),
        (coming, ["recording"]),
        (kind, ["kind_not_accepted"]),
        (bad, ["quarantined"]),
        (gone, ["evicted"]),
    ]
    assert (found["usable"]["state_id"], found["omitted"]) == (usable, 0)


def test_one_state_may_have_several_reasons(client: Client, hybrid: list[Sample]) -> None:
    bad = client.record_full("ns", TOKENS[:20], b"x")
    client.post(f"/admin/v1/states/{bad}/quarantine", json={"reason": "r"})
    gone = client.record_full("ns", TOKENS[:10], b"x")
    client.post("/admin/v1/evictions", json={"state_ids": [gone]})
    coming = client.admit("ns", TOKENS[:30], "full_state", {"full": 1}).json()["state_id"]
    client.put("/admin/v1/mode", json={"mode": "record"})
    assert reasons(explain(client, TOKENS, accept_kinds=["kv"])) == {
        coming: ["lookup_disabled", "kind_not_accepted", "recording"],
        bad: ["lookup_disabled", "kind_not_accepted", "quarantined"],
        gone: ["lookup_disabled", "kind_not_accepted", "evicted"],
    }
    dense = record_kv(client, hybrid[2], "other")
    client.post(f"/admin/v1/states/{dense}/quarantine", json={"reason": "r"})
    found = explain(client, hybrid[2].tokens[:200], "other", accept_kinds=["full_state"])
    assert reasons(found) == {
        dense: [
            "lookup_disabled",
            "kind_not_accepted",
            "quarantined",
            "truncation_not_allowed",
        ]
    }


# ---- damage --------------------------------------------------------------------------------


def test_a_corrupted_edge_is_a_stated_proof_failure(client: Client, server: Server) -> None:
    short = client.record_full("ns", TOKENS[:10], b"x")
    long = client.record_full("ns", TOKENS[:30], b"y")
    flip_edge(server.data, long, 5)  # of the edge from 10 to 30
    found = explain(client, TOKENS)
    assert (found["common_tokens"], found["parting"]) == (15, "tokens_differ")
    assert found["usable"]["state_id"] == short
    (unused,) = found["unused"]
    assert unused["state_id"] == long
    assert unused["reasons"][0] == {
        "reason": "proof_failed",
        "failure_class": "token_digest_mismatch",
    }
    foreign = explain(client, [*TOKENS[:15], 4711, *TOKENS[16:30]])
    assert (foreign["common_tokens"], foreign["usable_tokens"]) == (30, 10)
    assert reasons(foreign) == {long: ["proof_failed"]}
    # It was only looked at: the lookup that meets it takes it out of service.
    assert client.get(f"/admin/v1/states/{long}").json()["status"] == "live"


def test_a_corrupted_edge_far_above_shows_in_every_state_behind_it(
    client: Client, server: Server
) -> None:
    ids = [client.record_full("ns", TOKENS[:n], b"x") for n in (10, 20, 30)]
    flip_edge(server.data, ids[0], 5)
    found = explain(client, TOKENS)
    assert found["common_tokens"] == 5
    assert {state_id: why[0] for state_id, why in reasons(found).items()} == dict.fromkeys(
        ids, "proof_failed"
    )


@pytest.mark.parametrize("edge", [b"", b"\1\2\3", b"\0" * 401])
def test_an_edge_of_nonsense_length_is_no_500(client: Client, server: Server, edge: bytes) -> None:
    client.record_full("ns", TOKENS[:10], b"x")
    long = client.record_full("ns", TOKENS[:30], b"y")
    sql(
        server.data,
        "UPDATE radix_node SET edge = ? WHERE id = (SELECT node_id FROM state WHERE state_id = ?)",
        edge,
        long,
    )
    found = explain(client, TOKENS)
    assert (found["usable_tokens"], reasons(found)[long][0]) == (10, "proof_failed")


def test_a_damaged_manifest_is_a_stated_proof_failure(
    client: Client, server: Server, hybrid: list[Sample]
) -> None:
    short = client.record_full("ns", TOKENS[:10], b"x")
    long = client.record_full("ns", TOKENS[:30], b"y")
    sql(server.data, "UPDATE state SET page_id = 'p' WHERE state_id = ?", long)
    found = explain(client, TOKENS)
    assert found["usable"]["state_id"] == short
    (unused,) = found["unused"]
    assert unused["reasons"] == [{"reason": "proof_failed", "failure_class": "manifest_mismatch"}]
    dense = record_kv(client, hybrid[2])
    sql(server.data, "UPDATE state SET page_id = 'p' WHERE state_id = ?", dense)
    for allowed in (False, True):
        found = explain(client, hybrid[2].tokens[:200], allow_truncated=allowed)
        assert (found["usable_tokens"], reasons(found)) == (0, {dense: ["proof_failed"]})


# ---- the other namespaces ------------------------------------------------------------------


def test_the_nearest_other_namespace_of_the_model_and_how_far_it_would_match(
    client: Client,
) -> None:
    identity = {"model_id": "m", "weights_digest": "w", "kv": {"dtype": "f16", "layout": "x"}}
    for name, change in (
        ("mine", {}),
        ("far", {"kv": {"dtype": "q8_0", "layout": "y"}}),
        ("near", {"kv": {"dtype": "q8_0", "layout": "x"}}),
        ("other model", {"model_id": "n"}),
    ):
        client.post(
            "/v1/namespaces", json={"namespace": name, "identity": {**identity, **change}}
        ).raise_for_status()
    client.record_full("mine", TOKENS[:5], b"x")
    assert "nearest_namespace" not in explain(client, TOKENS, "mine")
    client.record_full("other model", TOKENS, b"x")
    client.record_full("near", [1, 2], b"x")
    client.record_full("far", [1, 2], b"x")
    # Where none of them helps, the one that differs least is named.
    assert explain(client, TOKENS, "mine")["nearest_namespace"] == {
        "namespace": "near",
        "differing_fields": ["kv.dtype"],
        "common_tokens": 0,
        "usable_tokens": 0,
    }
    bad = client.record_full("far", TOKENS[:40], b"x")
    client.record_full("far", TOKENS[:20], b"x")
    client.post(f"/admin/v1/states/{bad}/quarantine", json={"reason": "r"})
    assert explain(client, TOKENS, "mine")["nearest_namespace"] == {
        "namespace": "far",
        "differing_fields": ["kv.dtype", "kv.layout"],
        "common_tokens": 40,
        "usable_tokens": 20,
    }
    found = explain(client, TOKENS, "mine", accept_kinds=["kv"])
    assert found["nearest_namespace"]["usable_tokens"] == 0


def test_a_damaged_tree_elsewhere_does_not_spoil_the_answer(client: Client, server: Server) -> None:
    for name in ("a", "b"):
        client.post(
            "/v1/namespaces",
            json={"namespace": name, "identity": {"model_id": "m", "weights_digest": name}},
        ).raise_for_status()
    client.record_full("b", TOKENS[:10], b"x")
    long = client.record_full("b", TOKENS[:30], b"y")
    flip_edge(server.data, long, 5)
    found = explain(client, [*TOKENS[:15], 4711, *TOKENS[16:30]], "a")
    assert found["nearest_namespace"]["common_tokens"] == 30
    assert found["nearest_namespace"]["usable_tokens"] == 10


def test_the_misses_of_the_last_hour_by_reason(client: Client, server: Server) -> None:
    now = int(time.time()) // 60
    add = "INSERT INTO history (minute, name, label, value) VALUES (?, ?, ?, ?)"
    for ago, name, label, value in (
        (3, "misses", "never_seen", 5),
        (50, "misses", "never_seen", 2),
        (30, "misses", "quarantined", 1),
        (61, "misses", "never_seen", 1000),
        (30, "lookups", "miss", 1000),
    ):
        sql(server.data, add, now - ago, name, label, value)
    assert explain(client, TOKENS)["misses_last_hour"] == {"never_seen": 7, "quarantined": 1}


# ---- what it must not do -------------------------------------------------------------------


def test_it_changes_nothing(client: Client, server: Server, hybrid: list[Sample]) -> None:
    client.record_full("ns", TOKENS[:30], b"x")
    client.record_sample("ns", hybrid[0])
    record_kv(client, hybrid[2])

    def image() -> list[list[tuple[object, ...]]]:
        client.stats()  # has everything flushed that was noted
        return [
            # Requests are counted, as all are.
            [row for row in sql(server.data, f"SELECT * FROM {table}") if "requests" not in row]
            for table in ("state", "lease", "counter", "history", "tombstone", "namespace")
        ]

    before = image()
    for tokens in (TOKENS, hybrid[2].tokens[:200], [1]):
        explain(client, tokens)
        explain(client, tokens, allow_truncated=True)
    explain(client, TOKENS, "unknown")
    assert image() == before


def test_token_ids_are_never_in_the_answer_or_the_log(client: Client, server: Server) -> None:
    tokens = [1_987_654_300 + n for n in range(60)]
    client.record_full("ns", tokens[:20], b"x")
    client.record("ns", tokens[:30], "recurrent_only", {"recurrent": b"r"})
    client.record_full("ns", [*tokens[:40], 1_987_654_399], b"x")
    for query in (tokens, [*tokens[:10], 1_987_654_398]):
        assert "19876543" not in str(explain(client, query))
    client.post("/v1/explain", json={"namespace": "ns", "tokens": tokens, "accept_kinds": []})
    assert "19876543" not in server.logged()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tokens": [], "tokens_b64": None}, (422, "invalid_tokens")),
        ({"tokens_b64": "AAA="}, (422, "invalid_tokens")),
        ({"namespace": "a\nb"}, (422, "invalid_namespace")),
        ({"namespace": ""}, (422, "invalid_request")),
        ({"accept_kinds": []}, (422, "invalid_request")),
        ({"accept_kinds": ["all"]}, (422, "invalid_request")),
        ({"allow_truncated": 1}, (422, "invalid_request")),
        ({"tokens": [1]}, (422, "invalid_request")),
        ({"candidates": []}, (422, "invalid_request")),
    ],
    ids=str,
)
def test_bad_requests_are_refused(client: Client, change: Any, problem: Any) -> None:
    body = {**prefix("ns", [1]), **change}
    answer = client.post("/v1/explain", json={k: v for k, v in body.items() if v is not None})
    assert code(answer) == problem


# ---- bounds --------------------------------------------------------------------------------


def test_a_query_of_a_million_tokens_with_many_states_is_bounded_and_blocks_nobody(
    client: Client, server: Server
) -> None:
    query = list(range(1_000_000))
    for n in range(1, 81):
        client.record_full("ns", query[: 500 * n], b"x")
    client.record_full("ns", query, b"x")
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(explain(client, query, accept_kinds=["kv"]))
    )
    slowest, began = 0.0, time.monotonic()
    asking.start()
    with httpx.Client(base_url=server.url) as beside:
        while asking.is_alive():
            asked = time.monotonic()
            beside.get("/healthz").raise_for_status()
            slowest = max(slowest, time.monotonic() - asked)
    took = time.monotonic() - began
    asking.join()
    (found,) = answers
    assert took < 20
    assert slowest < 2
    assert (found["common_tokens"], found["parting"]) == (1_000_000, "query_ends")
    assert (len(found["unused"]), found["omitted"]) == (64, 17)
    counts = [one["token_count"] for one in found["unused"]]
    assert counts == [1_000_000, *(500 * n for n in range(80, 17, -1))]
    assert explain(client, query)["usable_tokens"] == 1_000_000


def test_many_states_beyond_are_bounded(client: Client) -> None:
    for n in range(30):
        client.record_full("ns", [*TOKENS[:10], n, *range(n)], b"x")
    found = explain(client, TOKENS)
    assert (len(found["unused"]), found["omitted"]) == (16, 14)
    assert [one["token_count"] for one in found["unused"]] == list(range(26, 10, -1))


def test_a_long_history_of_evictions_is_bounded(client: Client) -> None:
    for n in range(1, 101):
        client.record_full("ns", list(range(n)), b"x")
    client.post("/admin/v1/evictions", json={"namespace": "ns"})
    found = explain(client, list(range(200)))
    assert (len(found["unused"]), found["omitted"]) == (64, 36)
    assert found["unused"][0]["token_count"] == 100
    assert {why[0] for why in reasons(found).values()} == {"evicted"}


# ---- who may see what ----------------------------------------------------------------------


def _bound_to(client: Client, server: Server, *scopes: str, **bounds: Any) -> Client:
    made = client.post("/admin/v1/tokens", json={"label": "t", "scopes": list(scopes), **bounds})
    assert made.status_code == 201, made.text
    bound = Client(server.url)
    bound.headers["Authorization"] = f"Bearer {made.json()['secret']}"
    return bound


def test_a_bounded_token_learns_nothing_of_other_namespaces_and_tenants(
    client: Client, server: Server
) -> None:
    for name in ("a-1", "a-2", "b-1"):
        client.post(
            "/v1/namespaces",
            json={"namespace": name, "identity": {"model_id": "m", "weights_digest": name}},
        ).raise_for_status()
    client.record_full("a-2", TOKENS[:10], b"x")
    client.record_full("b-1", TOKENS[:30], b"x")
    client.lookup("b-1", [1])
    client.stats()  # flushes the miss
    assert explain(client, TOKENS, "a-1")["nearest_namespace"]["namespace"] == "b-1"
    operator = _bound_to(client, server, "lookup", "admin:read", "admin:write")
    narrow = _bound_to(operator, server, "lookup", namespaces=["a-*"])
    tenant = _bound_to(operator, server, "lookup", "record", tenant="t")

    found = explain(narrow, TOKENS, "a-1")
    assert found["nearest_namespace"]["namespace"] == "a-2"
    assert "misses_last_hour" not in found
    answer = narrow.post("/v1/explain", json=prefix("b-1", TOKENS))
    assert code(answer) == (403, "forbidden")
    found = explain(tenant, TOKENS, "b-1")
    assert (found["namespace_known"], found["common_tokens"]) == (False, 0)
    assert code(tenant.get("/admin/v1/history")) == (403, "forbidden")
    assert explain(operator, TOKENS, "a-1")["misses_last_hour"] == {"never_seen": 1}

    for name in ("mine", "other"):
        tenant.post(
            "/v1/namespaces",
            json={"namespace": name, "identity": {"model_id": "m", "weights_digest": name}},
        ).raise_for_status()
    tenant.record_full("other", TOKENS[:20], b"x")
    nearest = explain(tenant, TOKENS, "mine")["nearest_namespace"]
    assert (nearest["namespace"], nearest["usable_tokens"]) == ("other", 20)
