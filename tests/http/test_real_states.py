"""The main job on real states: what was recorded is found by its longest prefix and comes back exactly."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from blake3 import blake3

from tests.conftest import Sample
from tests.support.client import Client, code, state_header


def _record_all(client: Client, samples: list[Sample]) -> list[str]:
    return [client.record_sample("ns", sample) for sample in samples]


@pytest.mark.parametrize("family", ["hybrid", "smollm2"])
def test_growing_states_are_found_and_restored_exactly(
    client: Client, family: str, request: pytest.FixtureRequest
) -> None:
    samples: list[Sample] = request.getfixturevalue(family)
    ids = _record_all(client, samples)
    tokens = samples[-1].tokens
    longest = samples[-1]
    queries = [(tokens + [5] * 44, len(samples) - 1), (tokens, len(samples) - 1)]
    if len(samples) == 3:
        queries.append((tokens[:250], 1))
    queries.append((tokens[:150] if len(samples) > 1 else tokens, 0))
    for query, expected in queries:
        found = client.lookup("ns", query)
        assert found["state"]["state_id"] == ids[expected]
        answer = client.restore("ns", query)
        assert answer.status_code == 200
        assert answer.content == samples[expected].payload
        state_id, facts = state_header(answer)
        assert state_id == ids[expected]
        assert facts["token-count"] == len(samples[expected].tokens)
        assert facts["logical-bytes"] == len(samples[expected].payload)
        assert facts["entries"] == len(samples[expected].components)
    assert client.lookup("ns", tokens[:100])["hit"] is False
    assert client.restore("ns", tokens[:100]).status_code == 204
    assert longest.kind == client.lookup("ns", tokens)["state"]["kind"]


def test_a_query_that_differs_in_token_150_finds_128(client: Client, hybrid: list[Sample]) -> None:
    ids = _record_all(client, hybrid)
    query = list(hybrid[2].tokens)
    query[150] += 1
    assert client.lookup("ns", query)["state"]["state_id"] == ids[0]
    assert client.restore("ns", query).content == hybrid[0].payload


def test_each_component_comes_back_with_its_digest(client: Client, hybrid: list[Sample]) -> None:
    state_id = client.record_sample("ns", hybrid[0])
    found = client.lookup("ns", hybrid[0].tokens, acquire=True)
    lease = found["lease"]["lease_id"]
    for component in found["components"]:
        data = hybrid[0].components[component["name"]]
        path = f"/v1/states/{state_id}/components/{component['name']}"
        answer = client.get(path, headers={"Statehold-Lease": f'"{lease}"'})
        assert answer.content == data
        assert component["digest"] == blake3(data).hexdigest()
        assert answer.headers["etag"] == f'"{component["digest"]}"'
    shown = client.get(f"/v1/states/{state_id}").json()
    assert shown["kv_descriptor"] == hybrid[0].kv_descriptor


def test_unknown_descriptor_keys_are_kept_and_given_back(
    client: Client, hybrid: list[Sample]
) -> None:
    descriptor = {**(hybrid[0].kv_descriptor or {}), "vendor": {"x": [1, "é"]}}
    state_id = client.record(
        "ns", hybrid[0].tokens, hybrid[0].kind, hybrid[0].components, kv_descriptor=descriptor
    )
    assert client.get(f"/v1/states/{state_id}").json()["kv_descriptor"] == descriptor


def test_logits_travel_with_any_kind(client: Client) -> None:
    components = {"full": b"state" * 100, "logits": b"l" * 64}
    client.record("ns", [1, 2, 3], "full_state", components)
    answer = client.restore("ns", [1, 2, 3, 4])
    assert answer.content == components["full"] + components["logits"]
    assert state_header(answer)[1]["entries"] == 2


def test_components_in_any_order_of_announcement_come_back_in_wire_order(client: Client) -> None:
    components = {"logits": b"l" * 64, "full": b"f" * 3_000_000}
    client.record("ns", [1], "full_state", components)
    assert client.restore("ns", [1]).content == components["full"] + components["logits"]


@pytest.mark.parametrize(
    "size", [1, 63, 1 << 16, (1 << 20) - 80, 1 << 20, (4 << 20) + 1, 9_999_999]
)
def test_every_size_comes_back(client: Client, size: int) -> None:
    data = hashlib.shake_128(str(size).encode()).digest(size)
    client.record_full("ns", [size], data)
    assert client.restore("ns", [size]).content == data


def test_states_survive_a_clean_restart(
    tmp_path: Path, start: object, hybrid: list[Sample]
) -> None:
    server = start()  # type: ignore[operator]
    with Client(server.url) as client:
        _record_all(client, hybrid)
    server.stop()
    server = start()  # type: ignore[operator]
    with Client(server.url) as client:
        assert client.get("/readyz").json()["recovered"]["was_clean"] is True
        assert client.restore("ns", hybrid[2].tokens).content == hybrid[2].payload


def test_token_arrays_and_base64_mean_the_same(client: Client) -> None:
    tokens = [-(2**31), -1, 0, 1, 2**31 - 1]
    client.record_full("ns", tokens, b"x")
    answer = client.post(
        "/v1/lookup", json={"candidates": [{"namespace": "ns", "tokens": [*tokens, 7]}]}
    )
    assert answer.json()["hit"] is True
    answer = client.post(
        "/v1/lookup", json={"candidates": [{"namespace": "ns", "tokens": tokens, "tokens_b64": ""}]}
    )
    assert code(answer) == (422, "invalid_request")
