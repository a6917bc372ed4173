"""Reading in steps: leases, ranges, entity tags, one-round-trip restore and what it reports."""

from __future__ import annotations

import re

import pytest

from tests.conftest import Sample
from tests.support.client import Client, code, lease_header, miss_header, prefix, state_header

DATA = bytes(range(256)) * 10_000  # 2,560,000 bytes: three blocks
PATH = "/v1/states/{}/components/full"


@pytest.fixture
def path(client: Client) -> str:
    return PATH.format(client.record_full("ns", [1, 2, 3], DATA))


@pytest.mark.parametrize(
    ("value", "first", "behind"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-", 0, len(DATA)),
        ("bytes=1048400-1048600", 1048400, 1048601),
        ("bytes=-1", len(DATA) - 1, len(DATA)),
        ("bytes=-99999999", 0, len(DATA)),
        ("bytes=2000000-99999999", 2_000_000, len(DATA)),
        (f"bytes={len(DATA) - 1}-", len(DATA) - 1, len(DATA)),
    ],
)
def test_a_range_gives_exactly_its_bytes(
    client: Client, path: str, value: str, first: int, behind: int
) -> None:
    answer = client.get(path, headers={"Range": value})
    assert answer.status_code == 206
    assert answer.content == DATA[first:behind]
    assert answer.headers["content-range"] == f"bytes {first}-{behind - 1}/{len(DATA)}"


@pytest.mark.parametrize(
    "value", [f"bytes={len(DATA)}-", "bytes=99999999-", "bytes=-0", "bytes=0-1,5-6", "bytes=,"]
)
def test_a_range_beyond_the_end_or_several_ranges_get_416(
    client: Client, path: str, value: str
) -> None:
    answer = client.get(path, headers={"Range": value})
    assert code(answer) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(DATA)}"


@pytest.mark.parametrize("value", ["bytes=5-1", "bytes", "lines=1-2", "bytes=a-b", "bytes=--1", ""])
def test_a_malformed_range_is_ignored(client: Client, path: str, value: str) -> None:
    answer = client.get(path, headers={"Range": value})
    assert answer.status_code == 200
    assert answer.content == DATA


def test_entity_tags_are_strong_and_spare_the_bytes(client: Client, path: str) -> None:
    etag = client.get(path).headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{64}"', etag)
    for value in (etag, f'"x", {etag}', "*", f"W/{etag}"):
        answer = client.get(path, headers={"If-None-Match": value})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
    assert client.get(path, headers={"If-None-Match": '"x"'}).status_code == 200


def test_if_range_gives_the_range_only_of_the_same_bytes(client: Client, path: str) -> None:
    etag = client.get(path).headers["etag"]
    same = client.get(path, headers={"Range": "bytes=5-9", "If-Range": etag})
    assert (same.status_code, same.content) == (206, DATA[5:10])
    other = client.get(path, headers={"Range": "bytes=5-9", "If-Range": '"other"'})
    assert (other.status_code, other.content) == (200, DATA)


def test_head_says_what_get_would(client: Client, path: str) -> None:
    head, get = client.head(path), client.get(path)
    for name in ("content-length", "etag", "accept-ranges", "content-type"):
        assert head.headers[name] == get.headers[name]
    assert head.content == b""
    part = client.head(path, headers={"Range": "bytes=0-9"})
    assert (part.status_code, part.headers["content-length"]) == (206, "10")
    assert code(client.get(path.replace("full", "kv"))) == (404, "component_not_found")


def test_states_are_never_cached_on_the_way(client: Client, path: str) -> None:
    for answer in (client.get(path), client.restore("ns", [1, 2, 3]), client.restore("ns", [9])):
        assert answer.headers["cache-control"] == "private, no-store"


def test_a_restore_reports_what_it_gave(client: Client, hybrid: list[Sample]) -> None:
    state_id = client.record_sample("ns", hybrid[1], page_id="page-192")
    answer = client.restore("ns", hybrid[2].tokens)
    found, facts = state_header(answer)
    assert found == state_id
    assert facts == {
        "page-id": "page-192",
        "kind": "kv_recurrent",
        "token-count": 192,
        "logical-bytes": len(hybrid[1].payload),
        "entries": 2,
        "blocks": 4,  # three token windows and the recurrent part
        "candidate": 0,
    }
    timing = dict(re.findall(r"(\w+);dur=([\d.]+)", answer.headers["server-timing"]))
    assert 0 < float(timing["lookup"]) < 5000
    assert 0 < float(timing["reconstruct"]) < 5000
    assert answer.headers["cache-status"] == "Statehold; hit"
    assert int(answer.headers["content-length"]) == len(hybrid[1].payload)


def test_the_default_page_id_is_the_proof_of_the_prefix(client: Client) -> None:
    client.record_full("a", [1], b"x")
    client.record_full("b", [1], b"x")
    pages = {client.lookup(ns, [1])["state"]["page_id"] for ns in "ab"}
    assert len(pages) == 2
    assert all(re.fullmatch("[0-9a-f]{64}", page) for page in pages)


# ---- peek, acquire, release ----------------------------------------------------------------


def test_a_peek_holds_nothing_and_does_not_count_as_use(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    for _ in range(3):
        found = client.lookup("ns", [1])
        assert "lease" not in found
    assert client.stats()["leases_held"] == 0
    assert client.get(f"/admin/v1/states/{state_id}").json()["hits"] == 0


def test_acquire_holds_and_release_ends(client: Client, path: str) -> None:
    found = client.lookup("ns", [1, 2, 3], acquire=True, ttl_s=5)
    assert found["lease"]["ttl_ms"] == 5000
    assert [c["name"] for c in found["components"]] == ["full"]
    lease = found["lease"]["lease_id"]
    assert client.stats()["leases_held"] == 1
    assert client.get(path, headers={"Statehold-Lease": lease}).content == DATA
    released = client.release(lease, "restored", import_ms={"full": 12.5})
    assert released.json() == {
        "state_id": found["state"]["state_id"],
        "quarantined": False,
        "lease_expired": False,
        "repeated": False,
    }
    assert client.stats()["leases_held"] == 0
    gone = client.get(path, headers={"Statehold-Lease": lease})
    assert code(gone) == (409, "lease_released")


def test_release_twice_is_the_same_answer_and_another_outcome_is_a_conflict(
    client: Client, path: str
) -> None:
    lease = client.lookup("ns", [1, 2, 3], acquire=True)["lease"]["lease_id"]
    assert client.release(lease, "restored").json()["repeated"] is False
    assert client.release(lease, "restored").json()["repeated"] is True
    assert code(client.release(lease, "unused")) == (409, "lease_released")
    assert code(client.post(f"/v1/leases/{lease}/heartbeat", json={})) == (409, "lease_released")


def test_a_lease_is_good_for_its_own_state_only(client: Client, path: str) -> None:
    client.record_full("ns", [9], b"other")
    lease = client.lookup("ns", [9], acquire=True)["lease"]["lease_id"]
    answer = client.get(path, headers={"Statehold-Lease": lease})
    assert code(answer) == (404, "lease_not_found")


def test_the_outcome_of_an_expired_lease_still_counts(client: Client) -> None:
    import time

    client.record_full("ns", [1], b"x")
    lease = client.lookup("ns", [1], acquire=True, ttl_s=1)["lease"]["lease_id"]
    time.sleep(1.1)
    answer = client.fail(lease, "integrity").json()
    assert (answer["lease_expired"], answer["quarantined"]) == (True, True)
    assert client.lookup("ns", [1])["hit"] is False


def test_a_lease_lasts_no_longer_than_the_server_allows(client: Client, path: str) -> None:
    found = client.lookup("ns", [1, 2, 3], acquire=True, ttl_s=86_400)
    assert found["lease"]["ttl_ms"] == 3_600_000


# ---- misses --------------------------------------------------------------------------------


def test_a_miss_says_never_seen(client: Client) -> None:
    client.record_full("ns", [1, 2], b"x")
    for namespace, tokens in (("ns", [2]), ("ns", [1]), ("other", [1, 2])):
        assert client.lookup(namespace, tokens)["misses"] == [{"reason": "never_seen"}]


def test_a_miss_says_evicted_recently_and_how_long_ago(client: Client) -> None:
    state_id = client.record_full("ns", [1, 2], b"x")
    client.post("/admin/v1/evictions", json={"state_ids": [state_id]})
    answer = client.restore("ns", [1, 2, 3])
    assert miss_header(answer) == [("evicted_recently", {"evicted-ago": "under_minute"})]


def test_a_miss_says_quarantined(client: Client) -> None:
    state_id = client.record_full("ns", [1, 2], b"x")
    client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "test"})
    assert client.lookup("ns", [1, 2, 3])["misses"] == [{"reason": "quarantined"}]


def test_a_miss_says_identity_mismatch_and_which_fields_differ(client: Client) -> None:
    identity = {"model_id": "m", "weights_digest": "w", "kv": {"k": "f16", "v": "f16"}}
    client.post("/v1/namespaces", json={"namespace": "a", "identity": identity})
    other = {**identity, "kv": {"k": "q8_0", "v": "f16"}, "ctx": 4096}
    client.post("/v1/namespaces", json={"namespace": "b", "identity": other})
    client.record_full("a", [1, 2], b"x")
    (miss,) = client.lookup("b", [1, 2, 3])["misses"]
    assert miss == {
        "reason": "identity_mismatch",
        "held_in_namespace": "a",
        "differing_fields": ["ctx", "kv.k"],
    }
    assert client.restore("b", [1, 2, 3]).status_code == 204, "named, never served"


def test_each_candidate_gets_its_reason(client: Client) -> None:
    client.record_full("ns", [1], b"x")
    body = {
        "candidates": [prefix("ns", [1]), prefix("nope", [1])],
        "accept_kinds": ["kv"],
    }
    reasons = [miss["reason"] for miss in client.post("/v1/lookup", json=body).json()["misses"]]
    assert reasons == ["kind_not_accepted", "never_seen"]
    assert client.counter("misses", "kind_not_accepted") == 1


def test_a_restore_can_report_a_failed_import_of_its_response(client: Client) -> None:
    client.record_full("ns", [1], b"x")
    lease = lease_header(client.restore("ns", [1]))
    assert client.fail(lease, "invalid_data").json()["quarantined"] is True
    assert client.restore("ns", [1]).status_code == 204
