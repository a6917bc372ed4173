"""The exactness contract, rule by rule (docs/concepts.md); each test is named after what it holds us to."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Sample, ServerFactory
from tests.support.client import Client, code, lease_header, miss_header, prefix, state_header
from tests.support.damage import checked, flip_block, sql
from tests.support.server import Server


def noise(name: object, size: int = 200_000) -> bytes:
    """Bytes that do not compress, different for each name."""
    return hashlib.shake_128(str(name).encode()).digest(size)


@pytest.fixture
def chain(client: Client) -> dict[int, str]:
    """Prefixes of 10, 20 and 30 tokens in `ns`, each with its own bytes."""
    return {n: client.record_full("ns", list(range(n)), noise(n)) for n in (10, 20, 30)}


QUERY = list(range(40))


# ---- rule 1: own namespace, own tokens, proof on every hit ---------------------------------


def test_rule_1_a_state_is_served_only_for_its_own_namespace(
    client: Client, chain: dict[int, str]
) -> None:
    for other in ("NS", "ns ", "n", "ns/", "ns\u200b"):
        assert client.lookup(other, QUERY)["hit"] is False
        assert client.restore(other, QUERY).status_code == 204


def test_rule_1_only_where_all_its_tokens_are_a_prefix_of_the_query(
    client: Client, chain: dict[int, str]
) -> None:
    assert client.lookup("ns", QUERY[:29])["state"]["token_count"] == 20
    assert client.lookup("ns", QUERY[:9])["hit"] is False
    changed = [*QUERY[:19], 999, *QUERY[20:]]
    assert client.lookup("ns", changed)["state"]["token_count"] == 10


def test_rule_1_a_flipped_edge_in_the_tree_never_serves_a_foreign_prefix(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    """The edge to 30 is changed so that another prompt walks to the state of 30."""
    foreign = [*QUERY[:25], 4711, *QUERY[26:]]
    ((node, edge),) = sql(
        server.data,
        "SELECT n.id, n.edge FROM radix_node n JOIN state s ON s.node_id = n.id WHERE s.state_id = ?",
        chain[30],
    )
    assert isinstance(edge, bytes)
    flipped = edge[:20] + (4711).to_bytes(4, "little") + edge[24:]
    sql(server.data, "UPDATE radix_node SET edge = ? WHERE id = ?", flipped, node)
    answer = client.restore("ns", foreign)
    assert answer.content == noise(20)
    shown = client.get(f"/admin/v1/states/{chain[30]}").json()
    assert shown["status"] == "quarantined"
    assert shown["evidence"]["failure_class"] == "token_digest_mismatch"
    assert shown["evidence"]["expected_digest"] != shown["evidence"]["actual_digest"]


def test_rule_1_a_peek_is_proven_too(server: Server, client: Client, chain: dict[int, str]) -> None:
    sql(server.data, "UPDATE state SET token_digest = zeroblob(32) WHERE state_id = ?", chain[30])
    assert client.lookup("ns", QUERY)["state"]["state_id"] == chain[20]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE component SET digest = zeroblob(32) WHERE state = (SELECT id FROM state WHERE state_id = ?)",
        "UPDATE component SET raw_bytes = raw_bytes + 1 WHERE state = "
        "(SELECT id FROM state WHERE state_id = ?)",
        "UPDATE state SET page_id = 'x' WHERE state_id = ?",
        "UPDATE state SET kind = 'kv' WHERE state_id = ?",
        "UPDATE state SET manifest_digest = zeroblob(32) WHERE state_id = ?",
        "UPDATE state SET kv_descriptor = '{}' WHERE state_id = ?",
        "UPDATE block SET digest = zeroblob(32) WHERE id = (SELECT block FROM state_block WHERE state = "
        "(SELECT id FROM state WHERE state_id = ?) LIMIT 1)",
        "UPDATE block SET raw_bytes = raw_bytes - 1 WHERE id = (SELECT block FROM state_block WHERE state "
        "= (SELECT id FROM state WHERE state_id = ?) LIMIT 1)",
        "DELETE FROM state_block WHERE state = (SELECT id FROM state WHERE state_id = ?)",
    ],
)
def test_rule_1_a_manifest_that_is_not_the_recorded_one_is_never_served(
    server: Server, client: Client, chain: dict[int, str], change: str
) -> None:
    sql(server.data, change, chain[30])
    assert client.restore("ns", QUERY).content == noise(20)
    shown = client.get(f"/admin/v1/states/{chain[30]}").json()
    assert shown["status"] == "quarantined"
    assert shown["evidence"]["failure_class"] == "manifest_mismatch"


# ---- rule 2: the bytes given back are the bytes recorded -----------------------------------


def test_rule_2_a_flipped_byte_is_never_served_and_the_next_shorter_prefix_is(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    flip_block(server.data, noise(30))
    answer = client.restore("ns", QUERY)
    assert answer.status_code == 200
    assert state_header(answer)[0] == chain[20]
    assert answer.content == noise(20)
    shown = client.get(f"/admin/v1/states/{chain[30]}").json()
    assert shown["status"] == "quarantined"
    evidence = shown["evidence"]
    assert evidence["failure_class"] == "block_damaged"
    assert evidence["reported_by"] == "service"
    assert (evidence["component"], evidence["first_bad_block"]) == ("full", 0)
    assert evidence["expected_digest"]


def test_rule_2_damage_in_any_block_of_a_large_state_is_found_before_the_answer(
    start: ServerFactory,
) -> None:
    """Larger than the verify-ahead window: the first pass checks what it does not keep."""
    server = start(verify_ahead_bytes="2MiB")
    with Client(server.url) as client:
        client.record_full("ns", QUERY[:10], noise("short"))
        big = noise("long", 12 << 20)
        client.record_full("ns", QUERY[:20], big)
        assert client.restore("ns", QUERY).content == big
        cut = (1 << 20) - 80
        flip_block(server.data, big[9 * cut : 10 * cut])
        answer = client.restore("ns", QUERY)
        assert answer.content == noise("short")


def test_rule_2_a_component_read_never_sends_a_flipped_byte(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    flip_block(server.data, noise(30), at=150_000)
    path = f"/v1/states/{chain[30]}/components/full"
    assert code(client.get(path)) == (410, "state_quarantined")
    assert code(client.get(path)) == (410, "state_quarantined")


def test_rule_2_a_key_that_should_be_there_is_corruption_not_absence(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    import lmdb
    from blake3 import blake3

    for name in ("large", "small"):
        env = lmdb.open(str(server.data / "blocks" / name), map_size=1 << 40, max_dbs=1)
        with env.begin(write=True) as txn:
            txn.delete(blake3(noise(30)).digest())
        env.close()
    assert client.restore("ns", QUERY).content == noise(20)
    evidence = client.get(f"/admin/v1/states/{chain[30]}").json()["evidence"]
    assert evidence["failure_class"] == "block_missing"


def test_rule_2_recording_again_heals_a_damaged_block(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    flip_block(server.data, noise(30))
    client.restore("ns", QUERY)
    again = client.record_full("ns", QUERY[:30], noise(30))
    answer = client.restore("ns", QUERY)
    assert state_header(answer)[0] == again
    assert answer.content == noise(30)


# ---- rule 3: nothing is visible before it is whole -----------------------------------------


def test_rule_3_nothing_is_visible_before_the_commit(client: Client) -> None:
    admitted = client.admit("ns", QUERY, "full_state", {"full": 5, "logits": 2})
    state_id = admitted.json()["state_id"]
    for name, data in (
        ("full", b"hello"),
        ("logits", b"hi"),
    ):
        assert client.lookup("ns", QUERY)["hit"] is False
        assert code(client.get(f"/v1/states/{state_id}")) == (404, "state_not_found")
        path = f"/v1/states/{state_id}/components/full"
        assert code(client.get(path)) == (404, "state_not_found")
        client.upload(state_id, name, data)
    assert client.lookup("ns", QUERY)["hit"] is False
    client.commit(state_id)
    assert client.restore("ns", QUERY).content == b"hellohi"


# ---- rule 4: what belongs together ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "components", "expected"),
    [
        ("kv_recurrent", {"kv": 0, "recurrent": 0}, "invalid_payload"),
        ("kv_recurrent", {"kv": 10}, "invalid_payload"),
        ("kv_recurrent", {"recurrent": 10}, "invalid_payload"),
        ("kv_recurrent", {"kv": 10, "recurrent": 10}, "invalid_descriptor"),
        ("kv", {"kv": 10}, "invalid_descriptor"),
        ("kv", {"kv": 0}, "invalid_payload"),
        ("full_state", {"full": 0}, "invalid_payload"),
        ("full_state", {"kv": 10}, "invalid_payload"),
        ("full_state", {"full": 10, "recurrent": 1}, "invalid_payload"),
        ("recurrent_only", {"full": 10}, "invalid_payload"),
    ],
)
def test_rule_4_components_that_do_not_make_the_kind_are_refused(
    client: Client, kind: str, components: dict[str, int], expected: str
) -> None:
    assert code(client.admit("ns", QUERY, kind, components)) == (422, expected)
    assert client.holds_nothing()


def test_rule_4_a_descriptor_that_does_not_fit_is_refused_with_its_field(
    client: Client, hybrid: list[Sample]
) -> None:
    sample = hybrid[0]
    sizes = {name: len(data) for name, data in sample.components.items()}
    good = sample.kv_descriptor or {}
    for change, field in (
        ({"payload_bytes": 1}, "kv_descriptor.payload_bytes"),
        ({"token_start": 1}, "kv_descriptor.token_start"),
        ({"token_count": 127}, "kv_descriptor.token_count"),
        ({"flags": 2}, "kv_descriptor.k_idx_row_bytes"),
        ({"k_idx_row_bytes": 8}, "kv_descriptor.k_idx_row_bytes"),
        ({"codec": 7}, "kv_descriptor.codec"),
        ({"component_count": 1}, "kv_descriptor.component_count"),
    ):
        refused = client.admit(
            "ns", sample.tokens, sample.kind, sizes, kv_descriptor={**good, **change}
        )
        assert code(refused) == (422, "invalid_descriptor")
        assert refused.json()["field"] == field


def test_rule_4_the_composite_sliding_window_form_is_taken(client: Client) -> None:
    tokens, kv = list(range(64)), noise("kv", 64 * 32 + 16 * 32)
    descriptor = {
        "version": 2,
        "layer_start": 0,
        "layer_end": 2,
        "token_start": 0,
        "token_count": 64,
        "layer_count": 2,
        "k_type": 1,
        "v_type": 1,
        "k_row_bytes": 16,
        "v_row_bytes": 16,
        "v_element_bytes": 2,
        "k_idx_row_bytes": 0,
        "payload_bytes": len(kv),
        "flags": 0,
        "codec": "composite",
        "component_count": 2,
        "components": [
            {"offset": 0, "payload_bytes": 2048, "token_start": 0, "token_count": 64},
            {"offset": 2048, "payload_bytes": 512, "token_start": 48, "token_count": 16},
        ],
    }
    client.record("ns", tokens, "kv", {"kv": kv}, kv_descriptor=descriptor)
    assert client.restore("ns", tokens).content == kv
    descriptor["components"][1]["token_count"] = 15  # type: ignore[index]
    refused = client.admit("x", tokens, "kv", {"kv": len(kv)}, kv_descriptor=descriptor)
    assert code(refused) == (422, "invalid_descriptor")


# ---- rule 5: deterministic failures quarantine exactly that state --------------------------


@pytest.mark.parametrize("failure_class", ["integrity", "invalid_data", "unsupported"])
def test_rule_5_a_deterministic_client_failure_quarantines(
    client: Client, chain: dict[int, str], failure_class: str
) -> None:
    lease = client.lookup("ns", QUERY, acquire=True)["lease"]["lease_id"]
    answer = client.fail(lease, failure_class).json()
    assert (answer["state_id"], answer["quarantined"]) == (chain[30], True)
    assert client.lookup("ns", QUERY)["state"]["state_id"] == chain[20]
    evidence = client.get(f"/admin/v1/states/{chain[30]}").json()["evidence"]
    assert (evidence["failure_class"], evidence["reported_by"]) == (failure_class, "client")
    assert evidence["lease_id"] == lease


@pytest.mark.parametrize(
    "failure_class", ["unavailable", "io", "runtime", "timeout", "cancelled", "internal"]
)
def test_rule_5_a_failure_that_may_be_transient_costs_the_state_nothing(
    client: Client, chain: dict[int, str], failure_class: str
) -> None:
    lease = client.lookup("ns", QUERY, acquire=True)["lease"]["lease_id"]
    assert client.fail(lease, failure_class).json()["quarantined"] is False
    assert client.lookup("ns", QUERY)["state"]["state_id"] == chain[30]


def test_rule_5_a_report_never_hits_a_newer_recording_of_the_prefix(client: Client) -> None:
    old = client.record_full("ns", QUERY, noise("old"))
    lease = client.lookup("ns", QUERY, acquire=True)["lease"]["lease_id"]
    new = client.record_full("ns", QUERY, noise("new"), replace=True)
    assert client.fail(lease, "integrity").json()["state_id"] == old
    found = client.restore("ns", QUERY)
    assert state_header(found)[0] == new
    assert found.content == noise("new")


def test_rule_5_the_same_call_goes_on_through_shorter_prefixes_to_the_next_candidate(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    client.record_full("other", [7, 8], noise("other"))
    for n in (10, 20, 30):
        flip_block(server.data, noise(n))
    answer = client.post(
        "/v1/restore", json={"candidates": [prefix("ns", QUERY), prefix("other", [7, 8, 9])]}
    )
    assert answer.content == noise("other")
    assert state_header(answer)[1]["candidate"] == 1
    assert client.stats()["quarantined"] == 3


def test_rule_5_a_failed_quarantine_says_both(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    from pysqlite3 import dbapi2

    flip_block(server.data, noise(30))
    connection = dbapi2.connect(str(server.data / "metadata.db"), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    answer = client.restore("ns", QUERY)
    connection.execute("ROLLBACK")
    connection.close()
    assert code(answer) == (503, "quarantine_failed")
    assert "block_damaged" in answer.json()["detail"]
    assert "could not be quarantined" in answer.json()["detail"]
    assert client.restore("ns", QUERY).content == noise(20)


# ---- rule 6: candidates in order, kinds accepted -------------------------------------------


def test_rule_6_the_first_candidate_with_a_usable_state_wins(client: Client) -> None:
    client.record_full("a", [1], b"a")
    client.record_full("b", [1, 2, 3], b"b")
    for order, winner in ((("x", "a", "b"), b"a"), (("b", "a"), b"b")):
        body = {"candidates": [prefix(name, [1, 2, 3]) for name in order]}
        answer = client.post("/v1/restore", json=body)
        assert answer.content == winner


def test_rule_6_a_kind_that_is_not_accepted_is_passed_over_for_the_next_shorter(
    client: Client, hybrid: list[Sample]
) -> None:
    tokens = hybrid[1].tokens
    client.record_full("ns", tokens[:50], b"full")
    client.record_sample("ns", hybrid[0])
    answer = client.restore("ns", tokens, accept_kinds=["full_state"])
    assert answer.content == b"full"
    assert client.restore("ns", tokens).content == hybrid[0].payload
    assert client.stats()["quarantined"] == 0
    missed = client.restore("ns", tokens[:128], accept_kinds=["kv"])
    assert miss_header(missed) == [("kind_not_accepted", {})]


def test_rule_6_recurrent_only_is_served_only_when_named(client: Client) -> None:
    client.record("ns", [1, 2], "recurrent_only", {"recurrent": b"r"})
    assert client.lookup("ns", [1, 2])["hit"] is False
    assert client.restore("ns", [1, 2], accept_kinds=["recurrent_only"]).content == b"r"


def test_rule_6_of_equally_long_states_the_kind_named_first_wins(client: Client) -> None:
    client.record_full("ns", [1, 2], b"f")
    client.record("ns", [1, 2], "recurrent_only", {"recurrent": b"r"})
    for kinds, winner in (
        (["recurrent_only", "full_state"], b"r"),
        (["full_state", "recurrent_only"], b"f"),
    ):
        assert client.restore("ns", [1, 2], accept_kinds=kinds).content == winner


# ---- rule 8: a leased state is never evicted -----------------------------------------------


def test_rule_8_a_leased_state_is_never_evicted(start: ServerFactory) -> None:
    server = start(budget_bytes="2MiB")
    with Client(server.url) as client:
        leased = client.record_full("ns", [0], noise("leased", 400_000))
        lease = client.lookup("ns", [0], acquire=True, ttl_s=600)["lease"]["lease_id"]
        for n in range(1, 12):
            client.record_full("ns", [n], noise(n, 400_000))
            assert client.stats()["stored_bytes"] <= 2 << 20
        assert client.restore("ns", [0]).content == noise("leased", 400_000)
        gone = client.post("/admin/v1/evictions", json={"state_ids": [leased]}).json()
        assert (gone["evicted"], gone["kept_leased"]) == ([], [leased])
        assert client.release(lease, "restored").status_code == 200
        gone = client.post("/admin/v1/evictions", json={"state_ids": [leased]}).json()
        assert gone["evicted"] == [leased]


def test_rule_8_a_lease_whose_holder_vanished_ends_by_itself(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    lease = client.lookup("ns", [1], acquire=True, ttl_s=1)["lease"]["lease_id"]
    time.sleep(1.1)
    assert code(client.post(f"/v1/leases/{lease}/heartbeat", json={})) == (410, "lease_expired")
    path = f"/v1/states/{state_id}/components/full"
    assert code(client.get(path, headers={"Statehold-Lease": lease})) == (410, "lease_expired")
    gone = client.post("/admin/v1/evictions", json={"state_ids": [state_id]}).json()
    assert gone["evicted"] == [state_id]


def test_rule_8_a_heartbeat_keeps_a_lease(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    lease = client.lookup("ns", [1], acquire=True, ttl_s=2)["lease"]["lease_id"]
    for _ in range(3):
        time.sleep(1)
        assert client.post(f"/v1/leases/{lease}/heartbeat", json={}).status_code == 200
    gone = client.post("/admin/v1/evictions", json={"state_ids": [state_id]}).json()
    assert gone["kept_leased"] == [state_id]


def test_rule_8_the_lease_of_a_response_ends_with_it(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    client.restore("ns", [1])
    client.get(f"/v1/states/{state_id}/components/full")
    assert client.stats()["leases_held"] == 0


def test_rule_8_a_leased_state_that_was_replaced_stays_readable_for_its_holder(
    client: Client,
) -> None:
    old = client.record_full("ns", [1], noise("old"))
    lease = client.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    client.record_full("ns", [1], noise("new"), replace=True)
    path = f"/v1/states/{old}/components/full"
    assert client.get(path, headers={"Statehold-Lease": lease}).content == noise("old")
    assert client.restore("ns", [1]).content == noise("new")
    client.release(lease, "restored")
    deadline = time.monotonic() + 15
    while client.get(f"/v1/states/{old}").status_code != 404:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert client.stats()["live"] == 1


# ---- rule 9: modes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "records", "finds"),
    [
        ("disabled", False, False),
        ("record", True, False),
        ("lookup", False, True),
        ("lookup_record", True, True),
    ],
)
@pytest.mark.parametrize("scope", ["store", "namespace"])
def test_rule_9_modes_hold_for_store_and_namespace_at_run_time(
    client: Client, mode: str, records: bool, finds: bool, scope: str
) -> None:
    client.record_full("ns", [1], b"x")
    if scope == "store":
        client.put("/admin/v1/mode", json={"mode": mode})
    else:
        client.put("/admin/v1/mode", json={"mode": "disabled"})
        client.patch("/admin/v1/namespaces", json={"namespace": "ns", "mode": mode})
    assert client.lookup("ns", [1])["hit"] is finds
    if not finds:
        assert miss_header(client.restore("ns", [1])) == [("lookup_disabled", {})]
    admitted = client.admit("ns", [2], "full_state", {"full": 1})
    assert (admitted.status_code == 201) is records


# ---- rule 10: recording again --------------------------------------------------------------


def test_rule_10_recording_a_held_prefix_again_touches_it_and_keeps_it(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"first")
    again = client.admit("ns", [1], "full_state", {"full": 6})
    assert again.json() == {"admission": "already_recorded", "state_id": state_id}
    assert client.restore("ns", [1]).content == b"first"


# ---- rule 11: never misread ----------------------------------------------------------------


def test_rule_11_a_stored_format_of_another_version_is_a_miss_never_misread(
    server: Server, client: Client, chain: dict[int, str]
) -> None:
    from blake3 import blake3

    digest = blake3(noise(30)).digest()
    for name in ("large", "small"):
        file = server.data / "blocks" / name / "data.mdb"
        image = bytearray(file.read_bytes())
        position = -1
        while (position := image.find(b"SHBK", position + 1)) >= 0:
            if image[position + 24 : position + 56] == digest:
                with file.open("r+b") as handle:
                    handle.seek(position + 4)
                    handle.write(b"\x02")
    assert client.restore("ns", QUERY).content == noise(20)


# ---- rule 12: the budget is hard -----------------------------------------------------------


def test_rule_12_the_budget_is_never_exceeded_and_the_least_recent_goes_first(
    start: ServerFactory,
) -> None:
    server = start(budget_bytes="3MiB", touch_flush_s=0.05)
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        with Client(server.url) as watcher:
            while not done.is_set():
                peak = max(peak, watcher.stats()["stored_bytes"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    with Client(server.url) as client:
        for n in range(40):
            client.record_full("ns", [n], noise(n, 300_000))
            assert client.restore("ns", [0]).content == noise(0, 300_000), "used, so kept"
            time.sleep(0.08)
        done.set()
        watcher.join()
        assert 0 < peak <= 3 << 20
        assert client.lookup("ns", [39])["hit"] is True
        missed = client.lookup("ns", [5])
        assert missed["misses"][0]["reason"] == "evicted_recently"
        assert missed["misses"][0]["evicted_ago"] == "under_minute"
    server.stop()
    assert checked(server.data) == []


def test_rule_12_what_cannot_fit_is_refused_and_nothing_is_dropped_for_it(
    start: ServerFactory,
) -> None:
    with Client(start(budget_bytes="2MiB").url) as client:
        client.record_full("ns", [1], noise(1, 900_000))
        client.record_full("ns", [2], noise(2, 900_000))
        for n in (1, 2):
            client.lookup("ns", [n], acquire=True, ttl_s=600)
        admitted = client.admit("ns", [3], "full_state", {"full": 900_000})
        sent = client.upload(admitted.json()["state_id"], "full", noise(3, 900_000))
        assert code(sent) == (503, "at_capacity")
        assert [client.restore("ns", [n]).content for n in (1, 2)] == [
            noise(1, 900_000),
            noise(2, 900_000),
        ]


def test_rule_12_evidence_gives_way_only_when_nothing_else_is_left(start: ServerFactory) -> None:
    with Client(start(budget_bytes="2MiB").url) as client:
        bad = client.record_full("ns", [1], noise(1, 900_000))
        client.post(f"/admin/v1/states/{bad}/quarantine", json={"reason": "test"})
        client.record_full("ns", [2], noise(2, 900_000))
        client.record_full("ns", [3], noise(3, 900_000))
        assert client.get(f"/admin/v1/states/{bad}").json()["status"] == "quarantined"
        assert client.lookup("ns", [2])["hit"] is False
        client.lookup("ns", [3], acquire=True, ttl_s=600)
        client.record_full("ns", [4], noise(4, 900_000))
        assert client.get(f"/admin/v1/states/{bad}").status_code == 404


def test_rule_12_limits_of_a_namespace_hold_inside_it(start: ServerFactory) -> None:
    with Client(start().url) as client:
        client.record_full("small", [0], noise("s", 100_000))
        client.record_full("other", [0], noise("o", 100_000))
        limits = {"namespace": "small", "max_stored_bytes": 1 << 20}
        assert client.patch("/admin/v1/namespaces", json=limits).status_code == 200
        for n in range(1, 10):
            client.record_full("small", [n], noise(n, 300_000))
            (found,) = client.get("/v1/namespaces", params={"namespace": "small"}).json()[
                "namespaces"
            ]
            assert found["stored_bytes"] <= 1 << 20
        assert client.lookup("other", [0])["hit"] is True
        refused = client.admit("small", [99], "full_state", {"full": 2 << 20})
        assert code(refused) == (413, "oversize")


def test_rule_12_the_entry_cap_holds_for_the_store_and_a_namespace(start: ServerFactory) -> None:
    with Client(start(max_entries=10).url) as client:
        for n in range(25):
            client.record_full("ns", [n], noise(n, 100))
            assert client.stats()["live"] <= 10
        assert client.lookup("ns", [24])["hit"] is True
        client.patch("/admin/v1/namespaces", json={"namespace": "ns", "max_entries": 3})
        client.record_full("ns", [100], b"x")
        (found,) = client.get("/v1/namespaces", params={"namespace": "ns"}).json()["namespaces"]
        assert found["entries"] <= 3
        assert client.lookup("ns", [100])["hit"] is True


@pytest.fixture(autouse=True)
def _sound(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """After each test that did no damage, every figure and reference agrees."""
    yield
    damaging = ("flip", "manifest", "rule_1_", "rule_2_", "rule_11", "failed_quarantine", "goes_on")
    if any(word in request.node.name for word in damaging) or not (tmp_path / "data").exists():
        return
    assert checked(tmp_path / "data", allow_unowned=True) == []


def test_the_lease_header_of_a_restore_takes_the_outcome(client: Client) -> None:
    client.record_full("ns", [1], b"x")
    lease = lease_header(client.restore("ns", [1]))
    answer = client.release(lease, "restored", import_ms={"full": 1.5})
    assert answer.json()["repeated"] is False
    assert client.counter("import_count", "full") == 1
    assert client.counter("import_us_total", "full") == 1500
