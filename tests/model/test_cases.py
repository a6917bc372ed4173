"""Faults that the machine and the races have found, each in as few steps as it takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.payloads import Payload, make, shortened, tokens_of
from tests.support import native
from tests.support.client import Client, code, prefix, state_header
from tests.support.damage import checked, flip_block, lose_value
from tests.support.server import Server

PATH = "/admin/v1/states"


def quarantine(client: Client, state_id: str) -> None:
    answer = client.post(f"{PATH}/{state_id}/quarantine", json={"reason": "test"})
    assert answer.status_code == 200, answer.text


def limit(client: Client, **limits: int) -> None:
    answer = client.patch("/admin/v1/namespaces", json={"namespace": "ns", **limits})
    assert answer.status_code == 200, answer.text


def hold(client: Client, tokens: list[int]) -> str:
    lease: str = client.lookup("ns", tokens, acquire=True)["lease"]["lease_id"]
    return lease


def record(client: Client, tokens: tuple[int, ...], payload: Payload) -> str:
    return client.record("ns", tokens, payload.kind, payload.components, **payload.announced())


def test_a_purge_says_that_somebody_holds_the_state(client: Client) -> None:
    """It answered 204 and left the state where it was."""
    state_id = client.record_full("ns", [1], b"x")
    lease = hold(client, [1])
    quarantine(client, state_id)
    assert code(client.delete(f"{PATH}/{state_id}")) == (409, "state_leased")
    assert client.get(f"{PATH}/{state_id}").json()["status"] == "quarantined"
    client.release(lease, "unused")
    assert client.delete(f"{PATH}/{state_id}").status_code == 204
    assert code(client.get(f"{PATH}/{state_id}")) == (404, "state_not_found")


def test_a_release_from_quarantine_keeps_to_the_limit_on_entries(client: Client) -> None:
    """It put one more state into service than the limit allows."""
    client.record_full("ns", [1], b"x")
    limit(client, max_entries=1)
    first = client.lookup("ns", [1])["state"]["state_id"]
    quarantine(client, first)
    second = client.record_full("ns", [2], b"y")
    assert client.post(f"{PATH}/{first}/release").json()["status"] == "live"
    assert client.stats()["live"] == 1
    assert code(client.get(f"{PATH}/{second}")) == (404, "state_not_found")


def test_a_release_that_finds_no_room_leaves_the_state_in_quarantine(client: Client) -> None:
    first = client.record_full("ns", [1], b"x")
    limit(client, max_entries=1)
    quarantine(client, first)
    client.record_full("ns", [2], b"y")
    hold(client, [2])
    assert code(client.post(f"{PATH}/{first}/release")) == (503, "at_capacity")
    assert client.get(f"{PATH}/{first}").json()["status"] == "quarantined"


@pytest.mark.parametrize("successor_evicted", [False, True])
def test_a_replaced_state_is_not_put_back_into_service(
    client: Client, successor_evicted: bool
) -> None:
    """It was told to be live again, could not be found, and went a moment later."""
    old = client.record_full("ns", [1], b"x")
    lease = hold(client, [1])
    new = client.record_full("ns", [1], b"y", replace=True)
    assert client.fail(lease, "integrity").json()["quarantined"] is True
    if successor_evicted:
        client.post("/admin/v1/evictions", json={"state_ids": [new]})
    assert code(client.post(f"{PATH}/{old}/release")) == (409, "newer_recording")
    assert client.delete(f"{PATH}/{old}").status_code == 204


def test_a_report_sent_again_does_not_undo_an_operators_release(client: Client) -> None:
    """The retry of a release took a state that had been verified since out of service once more."""
    state_id = client.record_full("ns", [1], b"x")
    lease = hold(client, [1])
    for repeated in (False, True):
        body = client.fail(lease, "integrity").json()
        assert (body["quarantined"], body["repeated"]) == (True, repeated)
    assert client.post(f"{PATH}/{state_id}/release").status_code == 200
    body = client.fail(lease, "integrity").json()
    assert (body["quarantined"], body["repeated"]) == (False, True)
    assert client.lookup("ns", [1])["hit"] is True


def test_a_replacement_needs_no_room_but_its_predecessors(client: Client) -> None:
    """At the limit on entries it evicted the least recently used state of all."""
    bystander = client.record_full("ns", [1], b"x")
    client.record_full("ns", [2], b"y")
    limit(client, max_entries=2)
    client.record_full("ns", [2], b"z", replace=True)
    assert client.get(f"{PATH}/{bystander}").json()["status"] == "live"
    assert client.restore("ns", [2]).content == b"z"


def test_asking_what_is_needed_makes_room(client: Client) -> None:
    """Blocks that the tenant had brought elsewhere were refused while room could be made."""
    shared = make("plain", (1,), 0).body
    client.record_full("elsewhere", [1], shared)
    client.record_full("ns", [1], make("plain", (1,), 1).body)
    limit(client, max_stored_bytes=100_000)
    admitted = client.admit("ns", [2], "full_state", {"full": len(shared)})
    assert admitted.status_code == 201, admitted.text
    state_id = admitted.json()["state_id"]
    asked = {"digests": [native.digest(shared).hex()]}
    answer = client.post(f"/v1/records/{state_id}/components/full/need", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["need"] == []
    assert client.commit(state_id).status_code == 200
    assert client.restore("ns", [2]).content == shared
    assert client.lookup("ns", [1])["hit"] is False


def _usable(client: Client, query: tuple[int, ...]) -> tuple[Any, int]:
    asked = {**prefix("ns", query), "allow_truncated": True, "accept_kinds": ["kv"]}
    body = client.post("/v1/explain", json=asked).json()
    return (body.get("usable") or {}).get("state_id"), body["usable_tokens"]


def test_a_dense_state_is_found_where_another_kind_goes_further(client: Client) -> None:
    """Only what lies behind the last parting was looked at, though nothing there could serve."""
    short, long, query = (tokens_of(path, 0) for path in ((0, 1), (0, 0, 1), (0, 0, 0)))
    payload = make("dense", short, 0)
    state_id = record(client, short, payload)
    record(client, long, make("hybrid", long, 0))
    kept = len(tokens_of((0,), 0))
    answer = client.restore("ns", query, allow_truncated=True, accept_kinds=["kv"])
    assert state_header(answer)[0] == state_id
    assert answer.content == shortened(payload, kept)[0]
    assert _usable(client, query) == (state_id, kept)


def test_after_a_quarantine_the_next_best_dense_state_is_cut(client: Client) -> None:
    """A restore that put the nearest state aside went on to a miss."""
    short, long, query = (tokens_of(path, 0) for path in ((0, 1), (0, 0, 1), (0, 0, 0)))
    payload = make("dense", short, 0)
    state_id = record(client, short, payload)
    quarantine(client, record(client, long, make("dense", long, 1)))
    kept = len(tokens_of((0,), 0))
    answer = client.restore("ns", query, allow_truncated=True)
    assert state_header(answer)[0] == state_id
    assert answer.content == shortened(payload, kept)[0]
    assert _usable(client, query) == (state_id, kept)
    assert _usable(client, long) == (state_id, kept)


def test_the_check_names_damage_in_what_is_being_recorded(server: Server, client: Client) -> None:
    """It passed over whatever only a recording owned, of which some may not be written yet."""
    raw = make("plain", (1,), 0).body
    state_id = client.admit("ns", [1], "full_state", {"full": len(raw)}).json()["state_id"]
    assert client.upload(state_id, "full", raw).status_code == 200
    assert checked(server.data) == []
    flip_block(server.data, raw)
    assert checked(server.data) == [f"block {native.digest(raw).hex()} is damaged"]
    lose_value(server.data, native.digest(raw))
    assert checked(server.data) == []
