"""What operators and everybody else can see and change: namespaces, admin desks, health."""

from __future__ import annotations

import time

import pytest

from tests.conftest import ServerFactory
from tests.support.client import Client, code
from tests.support.damage import sql

IDENTITY = {"model_id": "m", "weights_digest": "sha256:00", "layers": [0, 6]}


def _register(client: Client, **body: object) -> dict[str, object]:
    answer = client.post("/v1/namespaces", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


# ---- namespaces ----------------------------------------------------------------------------


def test_a_namespace_is_made_on_first_use_and_warns_that_it_is_not_registered(
    client: Client,
) -> None:
    client.record_full("used", [1], b"x")
    (found,) = client.get("/v1/namespaces").json()["namespaces"]
    assert (found["namespace"], found["identity"]) == ("used", None)
    assert found["warnings"] == ["no_identity_registered"]
    assert (found["entries"], found["logical_bytes"]) == (1, 1)


def test_registering_hashes_the_canonical_document(client: Client) -> None:
    first = _register(client, namespace="n", identity=IDENTITY)
    again = _register(client, namespace="n", identity=dict(reversed(IDENTITY.items())))
    assert first["identity_digest"] == again["identity_digest"]
    assert first["warnings"] == []
    other = client.post("/v1/namespaces", json={"namespace": "n", "identity": {**IDENTITY, "x": 1}})
    assert code(other) == (409, "identity_conflict")


def test_an_identity_without_weights_digest_needs_the_flag_and_warns_in_every_listing(
    client: Client,
) -> None:
    body = {"namespace": "n", "identity": {"model_id": "m"}}
    assert code(client.post("/v1/namespaces", json=body)) == (422, "weights_digest_missing")
    assert client.get("/v1/namespaces").json()["namespaces"] == []
    found = _register(client, **body, allow_missing_weights_digest=True)
    assert found["warnings"] == ["identity_without_weights_digest"]
    for params in ({}, {"namespace": "n"}):
        (listed,) = client.get("/v1/namespaces", params=params).json()["namespaces"]
        assert listed["warnings"] == ["identity_without_weights_digest"]


def test_an_identity_cannot_be_hung_on_states_recorded_without_one(client: Client) -> None:
    client.record_full("n", [1], b"x")
    answer = client.post("/v1/namespaces", json={"namespace": "n", "identity": IDENTITY})
    assert code(answer) == (409, "namespace_in_use")


def test_namespaces_are_listed_in_pages(client: Client) -> None:
    for n in range(5):
        _register(client, namespace=f"n{n}", identity=IDENTITY)
    names, after = [], None
    while True:
        params = {"limit": 2} | ({"after": after} if after else {})
        page = client.get("/v1/namespaces", params=params).json()
        names += [found["namespace"] for found in page["namespaces"]]
        after = page["next"]
        if after is None:
            break
    assert names == [f"n{n}" for n in range(5)]


def test_limits_go_back_to_the_store_with_null(client: Client) -> None:
    client.record_full("n", [1], b"x")
    changed = client.patch("/admin/v1/namespaces", json={"namespace": "n", "min_tokens": 7})
    assert changed.json()["min_tokens"] == 7
    assert code(client.admit("n", [2], "full_state", {"full": 1})) == (422, "too_short")
    client.patch("/admin/v1/namespaces", json={"namespace": "n", "min_tokens": None})
    assert client.admit("n", [2], "full_state", {"full": 1}).status_code == 201
    unknown = client.patch("/admin/v1/namespaces", json={"namespace": "?", "min_tokens": 7})
    assert code(unknown) == (404, "namespace_not_found")
    assert code(client.patch("/admin/v1/namespaces", json={"namespace": "n"})) == (
        422,
        "invalid_request",
    )


def test_the_tree_is_shown_as_text_without_token_ids(client: Client) -> None:
    tokens = [70_001, 70_002, 70_003, 70_004]
    client.record_full("ns", tokens[:2], b"a")
    client.record_full("ns", tokens, b"b")
    client.record_full("ns", [*tokens[:3], 9], b"c")
    shown = client.get("/admin/v1/tree", params={"namespace": "ns"}).text
    depths = [line.split("  live")[0].rstrip() for line in shown.splitlines()]
    assert depths == ["0", "  2 (+2)", "    3 (+1)", "      4 (+1)", "      4 (+1)"]
    assert "7000" not in shown


# ---- states and quarantine -----------------------------------------------------------------


def test_states_are_listed_filtered_and_in_pages(client: Client) -> None:
    ids = [client.record_full(f"ns{n % 2}", [n], b"x") for n in range(6)]
    client.post(f"/admin/v1/states/{ids[0]}/quarantine", json={"reason": "r"})
    pending = client.admit("ns0", [99], "full_state", {"full": 1}).json()["state_id"]

    def listed(**params: object) -> list[str]:
        page = client.get("/admin/v1/states", params=params).json()  # type: ignore[arg-type]
        return [found["state_id"] for found in page["states"]]

    assert listed() == [*ids, pending]
    assert listed(namespace="ns0") == [ids[0], ids[2], ids[4], pending]
    assert listed(status="quarantined") == [ids[0]]
    assert listed(status="recording") == [pending]
    assert listed(kind="kv") == []
    assert listed(namespace="nope") == []
    first = client.get("/admin/v1/states", params={"limit": 4}).json()
    assert listed(after=first["next"]) == [*ids[4:], pending]


def test_an_operator_quarantines_and_releases_a_state(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    path = f"/admin/v1/states/{state_id}"
    taken = client.post(f"{path}/quarantine", json={"reason": "suspect"}).json()
    assert taken["status"] == "quarantined"
    assert taken["evidence"]["reason"] == "suspect"
    assert taken["evidence"]["reported_by"] == "operator"
    assert client.lookup("ns", [1])["hit"] is False
    assert code(client.post(f"{path}/quarantine", json={"reason": "x"})) == (409, "state_not_live")
    assert client.post(f"{path}/release").json()["status"] == "live"
    assert client.restore("ns", [1]).content == b"x"
    assert code(client.post(f"{path}/release")) == (409, "state_not_quarantined")


def test_a_state_that_still_fails_is_not_released(client: Client, server: object) -> None:
    state_id = client.record_full("ns", [1], b"x")
    path = f"/admin/v1/states/{state_id}"
    client.post(f"{path}/quarantine", json={"reason": "suspect"})
    data = server.data  # type: ignore[attr-defined]
    sql(data, "UPDATE state SET manifest_digest = zeroblob(32) WHERE state_id = ?", state_id)
    assert code(client.post(f"{path}/release")) == (409, "still_failing")


def test_a_state_is_not_released_beside_a_newer_recording(client: Client) -> None:
    old = client.record_full("ns", [1], b"x")
    client.post(f"/admin/v1/states/{old}/quarantine", json={"reason": "r"})
    new = client.record_full("ns", [1], b"y")
    assert code(client.post(f"/admin/v1/states/{old}/release")) == (409, "newer_recording")
    assert client.lookup("ns", [1])["state"]["state_id"] == new


def test_a_quarantined_state_is_purged_and_a_live_one_is_not(client: Client) -> None:
    state_id = client.record_full("ns", [1], b"x")
    path = f"/admin/v1/states/{state_id}"
    assert code(client.delete(path)) == (409, "state_not_quarantined")
    client.post(f"{path}/quarantine", json={"reason": "r"})
    assert client.delete(path).status_code == 204
    assert code(client.get(path)) == (404, "state_not_found")
    assert client.holds_nothing()


# ---- health and figures --------------------------------------------------------------------


def test_healthz_and_readyz_say_how_it_stands(client: Client) -> None:
    assert client.get("/healthz").json()["status"] == "alive"
    ready = client.get("/readyz").json()
    assert (ready["ready"], ready["degraded"]) == (True, [])
    assert tuple(map(int, ready["sqlite_version"].split("."))) >= (3, 51, 3)
    client.put("/admin/v1/mode", json={"mode": "disabled"})
    assert client.get("/readyz").json()["degraded"] == ["mode is disabled"]


def test_stats_add_up(client: Client) -> None:
    data = bytes(100) + b"".join(n.to_bytes(4, "little") for n in range(100_000))
    client.record_full("a", [1], data)
    client.record_full("b", [1], data)
    found = client.stats()
    assert (found["live"], found["namespaces"], found["block_count"]) == (2, 2, 1)
    assert found["logical_bytes"] == 2 * len(data)
    assert found["block_raw_bytes"] == len(data)
    assert found["block_stored_bytes"] <= found["stored_bytes"]
    assert client.counter("records", "committed") == 2
    assert client.counter("blocks_deduplicated") == 1


def test_counters_survive_a_restart(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        client.record_full("ns", [1], b"x")
        client.restore("ns", [1])
    server.stop()
    with Client(start().url) as client:
        assert client.counter("records", "committed") == 1
        assert client.counter("lookups", "hit") == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_finishes_what_is_under_way(start: ServerFactory, workers: int) -> None:
    import threading

    server = start(workers=workers)
    data = bytes(range(256)) * 40_000
    got: list[bytes] = []
    with Client(server.url) as client:
        client.record_full("ns", [1], data)

        def slowly() -> None:
            with client.stream(
                "POST",
                "/v1/restore",
                json={"candidates": [{"namespace": "ns", "tokens": [1]}]},
            ) as answer:
                parts = []
                for part in answer.iter_raw(1 << 16):
                    parts.append(part)
                    time.sleep(0.003)
                got.append(b"".join(parts))

        reader = threading.Thread(target=slowly)
        reader.start()
        time.sleep(0.2)
        server.stop()
        reader.join()
    assert got == [data]
    with Client(start().url) as client:
        assert client.get("/readyz").json()["recovered"]["was_clean"] is True
