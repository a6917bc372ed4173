"""The quarantine desk: what is out of service and why, proving it again, and its bytes for forensics."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from blake3 import blake3

from storage.cut import FIXED_CUT_BYTES
from tests.conftest import Sample, ServerFactory
from tests.support.client import Client, code
from tests.support.damage import blocks_of, checked, flip_block, flip_value, lose_value, sql
from tests.support.server import Server

_EVERY = ["lookup", "record", "admin:read", "admin:write", "forensics"]
_ABSENT = "01938c0d-e000-7000-8000-000000000000"


def noise(name: object, size: int = 200_000) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


def desk(client: Client, **params: Any) -> dict[str, Any]:
    answer = client.get("/admin/v1/quarantine", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def held(client: Client, **params: Any) -> list[str]:
    return [state["state_id"] for state in desk(client, **params)["states"]]


def verify(client: Client, state_id: str) -> dict[str, Any]:
    answer = client.post(f"/admin/v1/states/{state_id}/verify")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["state_id"] == state_id
    assert found["seconds"] > 0
    return found


def raw(client: Client, state_id: str, component: str = "full") -> httpx.Response:
    answer = client.get(f"/admin/v1/states/{state_id}/components/{component}/raw")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "etag" not in answer.headers
    return answer


def put_in(client: Client, state_id: str, reason: str = "suspected driver bug") -> dict[str, Any]:
    answer = client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": reason})
    assert answer.status_code == 200, answer.text
    evidence: dict[str, Any] = answer.json()["evidence"]
    return evidence


def status_of(client: Client, state_id: str) -> str:
    found: str = client.get(f"/admin/v1/states/{state_id}").json()["status"]
    return found


def token(client: Client, server: Server, *scopes: str, **more: Any) -> tuple[Client, str]:
    made = client.post("/admin/v1/tokens", json={"label": "t", "scopes": list(scopes), **more})
    assert made.status_code == 201, made.text
    theirs = Client(server.url)
    theirs.headers["Authorization"] = f"Bearer {made.json()['secret']}"
    return theirs, made.json()["token_id"]


@pytest.fixture
def operator(server: Server, client: Client) -> Client:
    """An operator of the whole store, whose token is the first."""
    return token(client, server, *_EVERY)[0]


# ---- evidence ------------------------------------------------------------------------------


def test_what_the_service_finds_says_which_block_and_both_digests(
    server: Server, client: Client
) -> None:
    data = noise(1, 3 * FIXED_CUT_BYTES)
    state_id = client.record_full("ns", [1], data)
    second = data[FIXED_CUT_BYTES : 2 * FIXED_CUT_BYTES]
    flip_block(server.data, second)
    assert client.restore("ns", [1]).status_code == 204
    (state,) = desk(client)["states"]
    assert (state["state_id"], state["status"]) == (state_id, "quarantined")
    assert state["components"][0]["digest"] == blake3(data).hexdigest()
    evidence = state["evidence"]
    flipped = bytearray(second)
    flipped[1000] ^= 0x10
    assert evidence["first_bad_block"] == 1
    assert evidence["expected_digest"] == blake3(second).hexdigest()
    assert evidence["actual_digest"] in (None, blake3(flipped).hexdigest())
    assert abs(evidence["at_ms"] / 1000 - time.time()) < 60
    assert (evidence["reported_by"], evidence["component"]) == ("service", "full")
    for name in ("lease_id", "client", "verified_at_ms", "intact"):
        assert evidence[name] is None
    assert client.get(f"/admin/v1/states/{state_id}").json() == state


def test_a_report_names_the_lease_and_the_token_of_who_made_it(
    server: Server, operator: Client
) -> None:
    gateway, gateway_id = token(operator, server, "lookup", "record")
    state_id = gateway.record_full("ns", [1], b"x")
    lease = gateway.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    assert gateway.fail(lease, "invalid_data").json()["quarantined"]
    (state,) = desk(operator)["states"]
    evidence = state["evidence"]
    assert state["state_id"] == state_id
    assert (evidence["failure_class"], evidence["reported_by"]) == ("invalid_data", "client")
    assert (evidence["client"], evidence["lease_id"]) == (gateway_id, lease)


def test_an_operators_evidence_names_the_operator(server: Server, operator: Client) -> None:
    colleague, colleague_id = token(operator, server, "admin:write")
    evidence = put_in(colleague, operator.record_full("ns", [1], b"x"))
    assert (evidence["reported_by"], evidence["client"]) == ("operator", colleague_id)
    assert evidence["reason"] == "suspected driver bug"


def test_without_tokens_nobody_is_named(client: Client) -> None:
    assert put_in(client, client.record_full("ns", [1], b"x"))["client"] is None
    client.record_full("ns", [2], b"y")
    client.fail(client.lookup("ns", [2], acquire=True)["lease"]["lease_id"], "integrity")
    assert [state["evidence"]["client"] for state in desk(client)["states"]] == [None, None]


# ---- the list ------------------------------------------------------------------------------


def test_the_list_is_newest_first_and_pages_give_every_state_once(client: Client) -> None:
    ids = [client.record_full("ns", [n, 1], noise(n, 50)) for n in range(7)]
    order = [3, 0, 6, 2, 5, 1, 4]
    for n in order:
        put_in(client, ids[n])
    wanted = [ids[n] for n in reversed(order)]
    at = [state["evidence"]["at_ms"] for state in desk(client)["states"]]
    assert at == sorted(at, reverse=True)
    assert sorted(held(client)) == sorted(ids)
    if len(set(at)) == len(at):
        assert held(client) == wanted
    for limit in (1, 2, 3, 7, 8):
        found: list[str] = []
        after = None
        while True:
            page = desk(client, limit=limit, **({} if after is None else {"after": after}))
            found += [state["state_id"] for state in page["states"]]
            after = page["next"]
            if after is None:
                break
        assert found == held(client), limit
    client.post(f"/admin/v1/states/{ids[0]}/release")
    client.delete(f"/admin/v1/states/{ids[1]}")
    assert sorted(held(client)) == sorted(ids[2:])


def test_states_of_one_moment_are_paged_by_their_ids(server: Server, client: Client) -> None:
    ids = [client.record_full("ns", [n, 1], noise(n, 50)) for n in range(5)]
    for state_id in ids:
        put_in(client, state_id)
    sql(server.data, "UPDATE quarantine SET at_ms = 1234567890123")
    assert held(client) == ids[::-1]
    first = desk(client, limit=2)
    assert held(client, limit=2, after=first["next"]) == ids[2:0:-1]


def test_the_list_is_filtered_by_namespace_class_and_tenant(
    server: Server, operator: Client
) -> None:
    theirs, _ = token(operator, server, "record", tenant="search")
    ids = {
        "a": operator.record_full("a", [1], noise(1)),
        "b": operator.record_full("b", [1], noise(2)),
        "of search": theirs.record_full("a", [1], noise(3)),
    }
    put_in(operator, ids["a"])
    flip_block(server.data, noise(2))
    assert operator.restore("b", [1]).status_code == 204
    put_in(operator, ids["of search"])
    assert sorted(held(operator)) == sorted(ids.values())
    classes = ("block_damaged", "operator", "integrity")
    found = {name: held(operator, **{"class": name}) for name in classes}
    assert found == {
        "block_damaged": [ids["b"]],
        "operator": [ids["of search"], ids["a"]],
        "integrity": [],
    }
    assert held(operator, namespace="a") == [ids["a"]]
    assert held(operator, namespace="a", tenant="search") == [ids["of search"]]
    assert held(operator, namespace="b", tenant="search") == []
    assert held(operator, tenant="search") == [ids["of search"]]
    assert held(operator, tenant="default") == [ids["b"], ids["a"]]
    assert held(operator, tenant="nobody") == held(operator, namespace="nothing") == []
    assert held(operator, namespace="b", **{"class": "operator"}) == []
    (state,) = desk(operator, tenant="search")["states"]
    assert (state["namespace"], state["tenant"]) == ("a", "search")


def test_a_quarantined_state_is_listed_with_its_descriptor_and_components(
    client: Client, hybrid: list[Sample]
) -> None:
    put_in(client, client.record_sample("ns", hybrid[0]))
    (state,) = desk(client)["states"]
    assert state["kv_descriptor"] == hybrid[0].kv_descriptor
    assert [(part["name"], part["bytes"]) for part in state["components"]] == [
        (name, len(data)) for name, data in hybrid[0].components.items()
    ]


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": 1001},
        {"limit": "x"},
        {"after": ""},
        {"after": "x"},
        {"after": "ü"},
        {"after": "MTIz"},
        {"after": _ABSENT},
        {"after": "A" * 1000},
        {"namespace": "n" * 257},
        {"class": "c" * 65},
        {"tenant": "t" * 65},
    ],
    ids=str,
)
def test_absurd_filters_are_refused(client: Client, params: dict[str, Any]) -> None:
    answer = client.get("/admin/v1/quarantine", params=params)
    assert code(answer) == (422, "invalid_request")


@pytest.mark.parametrize("name", ["", "a\u001fb", "\u0000"])
def test_a_namespace_that_nothing_can_have_is_refused(client: Client, name: str) -> None:
    answer = client.get("/admin/v1/quarantine", params={"namespace": name})
    assert code(answer) == (422, "invalid_namespace")


def test_a_bound_caller_sees_and_touches_only_its_own(server: Server, operator: Client) -> None:
    record_theirs, _ = token(operator, server, "record", tenant="search")
    ids = {
        "own": record_theirs.record_full("chat-1", [1], noise(1)),
        "besides": record_theirs.record_full("batch", [1], noise(2)),
        "of others": operator.record_full("chat-1", [1], noise(3)),
    }
    for state_id in ids.values():
        put_in(operator, state_id)
    for bound, wanted in (
        ({"tenant": "search"}, ["own", "besides"]),
        ({"tenant": "search", "namespaces": ["chat-*"]}, ["own"]),
        ({"namespaces": ["chat-*"]}, ["of others"]),
        ({"tenant": "nobody"}, []),
    ):
        caller, _ = token(operator, server, *_EVERY, **bound)
        assert sorted(held(caller)) == sorted(ids[name] for name in wanted), bound
        for limit in (1, 2):  # pages are full although others' states lie between
            assert len(held(caller, limit=limit)) == min(limit, len(wanted))
        for name, state_id in ids.items():
            path = f"/admin/v1/states/{state_id}"
            answers = [
                caller.post(f"{path}/verify"),
                caller.get(f"{path}/components/full/raw"),
            ]
            nothing = [
                caller.post(f"/admin/v1/states/{_ABSENT}/verify"),
                caller.get(f"/admin/v1/states/{_ABSENT}/components/full/raw"),
            ]
            for answer, absent in zip(answers, nothing, strict=True):
                assert code(absent) == (404, "state_not_found")
                if name in wanted:
                    assert answer.status_code == 200
                    continue
                assert code(answer) == (404, "state_not_found")
                ours, theirs = answer.json(), absent.json()
                assert ours.pop("request_id") != theirs.pop("request_id")
                assert ours == theirs
    caller, _ = token(operator, server, "admin:read", tenant="search", namespaces=["chat-*"])
    assert held(caller, tenant="search") == [ids["own"]]
    for params in ({"namespace": "batch"}, {"tenant": "default"}, {"tenant": "nobody"}):
        answer = caller.get("/admin/v1/quarantine", params=params)
        assert code(answer) == (403, "forbidden"), params


# ---- verification --------------------------------------------------------------------------


def test_an_intact_live_state_is_proven_whole_and_stays_in_service(
    client: Client, hybrid: list[Sample]
) -> None:
    state_id = client.record_sample("ns", hybrid[0])
    before = client.get(f"/admin/v1/states/{state_id}").json()
    found = verify(client, state_id)
    assert (found["intact"], found["evidence"]) == (True, None)
    assert found["verified_bytes"] == len(hybrid[0].payload)
    assert client.get(f"/admin/v1/states/{state_id}").json() == before
    assert client.stats()["leases_held"] == 0


def test_a_live_state_that_fails_goes_out_of_service(server: Server, client: Client) -> None:
    data = noise(1, 3 * FIXED_CUT_BYTES)
    state_id = client.record_full("ns", [1], data)
    other = client.record_full("ns", [2], noise(2))
    flip_block(server.data, data[2 * FIXED_CUT_BYTES :])
    found = verify(client, state_id)
    assert not found["intact"]
    assert found["verified_bytes"] == 2 * FIXED_CUT_BYTES
    assert (found["evidence"]["failure_class"], found["evidence"]["first_bad_block"]) == (
        "block_damaged",
        2,
    )
    assert held(client) == [state_id]
    assert status_of(client, other) == "live"
    assert client.restore("ns", [1]).status_code == 204


def test_what_was_put_in_by_hand_gets_the_evidence_of_what_is_found(
    server: Server, operator: Client
) -> None:
    data = noise(1)
    state_id = operator.record_full("ns", [1], data)
    before = put_in(operator, state_id, "smells")
    flip_block(server.data, data)
    found = verify(operator, state_id)
    evidence = found["evidence"]
    assert not found["intact"]
    assert evidence == {
        **before,
        "failure_class": "block_damaged",
        "component": "full",
        "first_bad_block": 0,
        "expected_digest": blake3(data).hexdigest(),
        "actual_digest": evidence["actual_digest"],
        "verified_at_ms": evidence["verified_at_ms"],
        "intact": False,
    }
    assert evidence["verified_at_ms"] >= before["at_ms"]
    assert desk(operator)["states"][0]["evidence"] == evidence
    lose_value(server.data, blake3(data).digest())
    again = verify(operator, state_id)["evidence"]
    assert again["failure_class"] == "block_missing"
    assert (again["reason"], again["at_ms"]) == ("smells", before["at_ms"])
    assert status_of(operator, state_id) == "quarantined"


def test_what_the_service_had_found_is_said_anew(server: Server, client: Client) -> None:
    data = noise(1)
    state_id = client.record_full("ns", [1], data)
    flip_block(server.data, data)
    before = verify(client, state_id)["evidence"]
    lose_value(server.data, blake3(data).digest())
    after = verify(client, state_id)["evidence"]
    assert (before["failure_class"], after["failure_class"]) == ("block_damaged", "block_missing")
    assert before["reason"] != after["reason"]
    assert before["actual_digest"] != after["actual_digest"] or before["actual_digest"] is None
    assert after["at_ms"] == before["at_ms"]


def test_a_quarantined_state_that_is_intact_stays_until_it_is_released(client: Client) -> None:
    state_id = client.record_full("ns", [1], noise(1))
    before = put_in(client, state_id)
    found = verify(client, state_id)
    assert (found["intact"], found["verified_bytes"]) == (True, 200_000)
    verified_at = found["evidence"]["verified_at_ms"]
    assert found["evidence"] == {**before, "verified_at_ms": verified_at, "intact": True}
    assert held(client) == [state_id]
    assert client.restore("ns", [1]).status_code == 204
    assert client.post(f"/admin/v1/states/{state_id}/release").status_code == 200
    assert client.restore("ns", [1]).content == noise(1)
    assert held(client) == []


def test_a_damaged_state_is_whole_again_once_its_block_was_recorded_anew(
    server: Server, client: Client
) -> None:
    state_id = client.record_full("ns", [1], noise(1))
    flip_block(server.data, noise(1))
    assert not verify(client, state_id)["intact"]
    client.record_full("ns", [2], noise(1))
    found = verify(client, state_id)
    assert found["intact"]
    assert found["evidence"]["failure_class"] == "block_damaged"
    assert client.post(f"/admin/v1/states/{state_id}/release").status_code == 200
    assert client.restore("ns", [1]).content == noise(1)


def test_a_release_that_fails_keeps_what_it_found(server: Server, client: Client) -> None:
    state_id = client.record_full("ns", [1], noise(1))
    put_in(client, state_id)
    flip_block(server.data, noise(1))
    answer = client.post(f"/admin/v1/states/{state_id}/release")
    assert code(answer) == (409, "still_failing")
    evidence = desk(client)["states"][0]["evidence"]
    assert (evidence["failure_class"], evidence["intact"]) == ("block_damaged", False)


def test_rows_that_are_not_those_recorded_fail_before_any_block_is_read(
    server: Server, client: Client
) -> None:
    state_id = client.record_full("ns", [1], noise(1))
    sql(server.data, "UPDATE state SET page_id = 'other' WHERE state_id = ?", state_id)
    found = verify(client, state_id)
    assert (found["intact"], found["verified_bytes"]) == (False, 0)
    assert found["evidence"]["failure_class"] == "manifest_mismatch"
    assert status_of(client, state_id) == "quarantined"


def test_a_recording_and_what_is_not_there_cannot_be_verified(client: Client) -> None:
    recording = client.admit("ns", [1], "full_state", {"full": 5}).json()["state_id"]
    for state_id, wanted in (
        (recording, (409, "state_not_live")),
        (_ABSENT, (404, "state_not_found")),
        ("no-id", (422, "invalid_request")),
    ):
        path = f"/admin/v1/states/{state_id}"
        assert code(client.post(f"{path}/verify")) == wanted
        assert code(client.get(f"{path}/components/full/raw")) == wanted


def test_verifying_and_looking_go_on_side_by_side(server: Server, client: Client) -> None:
    """Every state once a turn, while others are recorded, restored and evicted."""
    ids = [client.record_full("ns", [n, 1], noise(n, 2_000_000)) for n in range(4)]
    client.patch("/admin/v1/limits", json={"max_entries": 12})
    failures: list[str] = []
    stop = threading.Event()

    def churn() -> None:
        with Client(server.url) as other:
            for n in range(100, 10_000):
                if stop.is_set():
                    return
                other.record_full("ns", [n, 1], noise(n, 300_000))
                if other.restore("ns", [n, 1]).content != noise(n, 300_000):
                    failures.append("other bytes")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(5):
            for state_id in ids:
                answer = client.post(f"/admin/v1/states/{state_id}/verify")
                if answer.status_code == 200:
                    assert answer.json()["intact"]
                else:
                    assert code(answer) == (404, "state_not_found")
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert held(client) == []
    assert checked(server.data, allow_unowned=True) == []


# ---- raw bytes -----------------------------------------------------------------------------


@pytest.mark.parametrize("taken_out", [True, False], ids=["quarantined", "live"])
def test_an_intact_component_is_given_as_it_was_recorded(
    client: Client, hybrid: list[Sample], taken_out: bool
) -> None:
    sample = hybrid[2]
    state_id = client.record_sample("ns", sample)
    if taken_out:
        put_in(client, state_id)
    for name, data in sample.components.items():
        answer = raw(client, state_id, name)
        assert answer.content == data
        assert "statehold-damaged-blocks" not in answer.headers
        assert answer.headers["statehold-manifest"] == "intact"
        assert f"{state_id}.{name}" in answer.headers["content-disposition"]
    assert status_of(client, state_id) == ("quarantined" if taken_out else "live")
    assert code(client.get(f"/admin/v1/states/{state_id}/components/full/raw")) == (
        404,
        "component_not_found",
    )


@pytest.mark.parametrize("how", [flip_value, lose_value])
def test_blocks_that_cannot_be_read_are_zeros_and_are_named(
    server: Server, client: Client, how: Callable[..., None]
) -> None:
    data = noise(1, 4 * FIXED_CUT_BYTES + 5000)
    state_id = client.record_full("ns", [1], data)
    put_in(client, state_id)
    digests = blocks_of(server.data, state_id, "full")
    assert len(digests) == 5
    wanted = bytearray(data)
    for seq in (1, 4):
        how(server.data, digests[seq])
        start = seq * FIXED_CUT_BYTES
        end = min(start + FIXED_CUT_BYTES, len(data))
        wanted[start:end] = bytes(end - start)
    answer = raw(client, state_id)
    assert answer.content == wanted
    assert answer.headers["statehold-damaged-blocks"] == "1,4"
    assert answer.headers["statehold-manifest"] == "intact"
    assert verify(client, state_id)["evidence"]["first_bad_block"] == 1


@pytest.mark.parametrize("memory", ["64MiB", "1MiB"], ids=["at once", "in bands"])
def test_a_token_window_that_cannot_be_read_is_zeros_at_its_rows(
    start: ServerFactory, memory: str
) -> None:
    """Wire order has bytes of every window in every run; the frame between them stays."""
    server = start(restore_buffer_bytes=memory)
    rows, first, second, frame = 1000, 3072, 1024, 64
    runs = [
        {"offset": frame, "stride": first},
        {"offset": 2 * frame + rows * first, "stride": second},
    ]
    size = 3 * frame + rows * (first + second)
    data = noise("windows", size)
    with Client(server.url) as client:
        state_id = client.record_full(
            "ns", list(range(rows)), data, geometry={"full": {"rows": rows, "runs": runs}}
        )
        window = 7
        flip_value(server.data, blocks_of(server.data, state_id, "full")[window])
        answer = raw(client, state_id)
        assert status_of(client, state_id) == "quarantined"
        assert raw(client, state_id).content == answer.content
    wanted = np.frombuffer(data, np.uint8).copy()
    for run in runs:
        begin = run["offset"] + 64 * window * run["stride"]
        wanted[begin : begin + 64 * run["stride"]] = 0
    assert answer.content == wanted.tobytes()
    assert answer.headers["statehold-damaged-blocks"] == str(window)


def test_many_damaged_blocks_are_named_up_to_a_hundred_and_counted(
    server: Server, client: Client
) -> None:
    rows = 64 * 120
    runs = [{"offset": 0, "stride": 256}]
    data = noise("many", rows * 256)
    state_id = client.record_full(
        "ns", list(range(rows)), data, geometry={"full": {"rows": rows, "runs": runs}}
    )
    digests = blocks_of(server.data, state_id, "full")
    assert len(digests) == 120
    for digest in digests[5:]:
        lose_value(server.data, digest)
    answer = raw(client, state_id)
    named = answer.headers["statehold-damaged-blocks"].split(",")
    assert named == [*map(str, range(5, 105)), "+15"]
    assert answer.content == data[: 5 * 64 * 256] + bytes(115 * 64 * 256)
    assert held(client) == [state_id]


def test_a_block_that_fails_after_the_headers_is_zeros_as_well(
    server: Server, client: Client
) -> None:
    count = 64
    data = noise("later", count * FIXED_CUT_BYTES)
    state_id = client.record_full("ns", [1], data)
    put_in(client, state_id)
    digests = blocks_of(server.data, state_id, "full")
    path = f"/admin/v1/states/{state_id}/components/full/raw"
    with client.stream("GET", path) as answer:
        assert answer.status_code == 200
        assert "statehold-damaged-blocks" not in answer.headers
        lose_value(server.data, digests[-1])
        flip_value(server.data, digests[-2])
        found = b"".join(answer.iter_raw())
    whole = (count - 2) * FIXED_CUT_BYTES
    assert found[:whole] == data[:whole]
    assert found[whole:] == bytes(2 * FIXED_CUT_BYTES)


def test_a_download_whose_state_is_purged_is_broken_off_not_filled_up(
    server: Server, client: Client
) -> None:
    data = noise("purged", 64 * FIXED_CUT_BYTES)
    state_id = client.record_full("ns", [1], data)
    put_in(client, state_id)
    path = f"/admin/v1/states/{state_id}"
    found = bytearray()
    with (
        pytest.raises(httpx.RemoteProtocolError),
        Client(server.url) as other,
        other.stream("GET", f"{path}/components/full/raw") as answer,
    ):
        assert client.delete(path).status_code == 204
        for chunk in answer.iter_raw():
            found += chunk
    assert len(found) < len(data)
    assert found == data[: len(found)]
    assert code(client.get(f"{path}/components/full/raw")) == (404, "state_not_found")


def test_rows_that_are_not_those_recorded_are_given_and_said_to_be_so(
    server: Server, client: Client
) -> None:
    state_id = client.record_full("ns", [1], noise(1))
    sql(server.data, "UPDATE state SET page_id = 'other' WHERE state_id = ?", state_id)
    answer = raw(client, state_id)
    assert answer.headers["statehold-manifest"] == "damaged"
    assert answer.content == noise(1)
    (state,) = desk(client)["states"]
    assert state["evidence"]["failure_class"] == "manifest_mismatch"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE component SET raw_bytes = raw_bytes + 1",
        "UPDATE block SET raw_bytes = 1 << 50; UPDATE component SET raw_bytes = 1 << 50",
        "UPDATE block SET raw_bytes = -5; UPDATE component SET raw_bytes = -5",
        "UPDATE component SET geometry = X'0001'",
        "DELETE FROM state_block",
    ],
)
def test_rows_that_contradict_each_other_are_no_component(
    server: Server, client: Client, damage: str
) -> None:
    state_id = client.record_full("ns", [1], noise(1))
    for statement in damage.split(";"):
        sql(server.data, statement)
    answer = client.get(f"/admin/v1/states/{state_id}/components/full/raw")
    assert code(answer) == (409, "component_unreadable")
    assert not verify(client, state_id)["intact"]


def test_raw_bytes_need_their_own_scope_and_every_look_is_audited(
    server: Server, operator: Client
) -> None:
    state_id = operator.record_full("ns", [1], noise(1))
    put_in(operator, state_id)
    path = f"/admin/v1/states/{state_id}/components/full/raw"
    others, _ = token(operator, server, "lookup", "record", "admin:read", "admin:write")
    assert code(others.get(path)) == (403, "forbidden")
    assert code(others.get(path.replace(state_id, _ABSENT))) == (403, "forbidden")
    expert, expert_id = token(operator, server, "forensics")
    assert raw(expert, state_id).content == noise(1)
    assert code(expert.get("/admin/v1/quarantine")) == (403, "forbidden")
    assert code(expert.post(f"/admin/v1/states/{state_id}/verify")) == (403, "forbidden")
    assert code(expert.get(path.replace("/full/", "/kv/"))) == (404, "component_not_found")
    action = "GET /admin/v1/states/{state_id}/components/{name}/raw"
    entries = operator.get("/admin/v1/audit", params={"action": action}).json()["entries"]
    assert [(entry["actor"], entry["outcome"]) for entry in entries] == [
        (expert_id, "component_not_found"),
        (expert_id, "done"),
    ]
    assert entries[1]["target"] == f"{state_id} full"


def test_a_download_that_nobody_reads_on_gives_everything_back(
    start: ServerFactory,
) -> None:
    server = start(restore_buffer_bytes="8MiB", idle_timeout_s=1)
    rows, stride = 4096, 4096
    data = noise("stalled", rows * stride)
    geometry = {"full": {"rows": rows, "runs": [{"offset": 0, "stride": stride}]}}
    with Client(server.url) as client:
        state_id = client.record_full("ns", list(range(rows)), data, geometry=geometry)
        put_in(client, state_id)
        path = f"/admin/v1/states/{state_id}/components/full/raw"
        for _ in range(6):  # more than the memory for bands would do, were it not given back
            with Client(server.url) as other, other.stream("GET", path) as answer:
                assert answer.status_code == 200
                next(answer.iter_raw())
        assert raw(client, state_id).content == data
