"""Token windows: growing prefixes share their blocks, and wire order comes back bit for bit."""

from __future__ import annotations

import json
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Sample, ServerFactory
from tests.support import native
from tests.support.client import Client, code
from tests.support.damage import checked, flip_block
from tests.support.server import Server


def amplification(client: Client) -> float:
    found = client.get("/admin/v1/stats").json()["write_amplification"]
    assert found["ratio"] == pytest.approx(found["new_bytes"] / found["new_row_bytes"], abs=1e-3)
    return float(found["ratio"])


def conversation(layers: int, turns: int = 10) -> tuple[list[int], Any]:
    """The ten-turn conversation of the design, with fewer layers: tokens, and KV of n tokens."""
    rows = 2000 + 300 * turns
    rng = np.random.default_rng(7)
    keys_and_values = rng.integers(0, 256, (2 * layers, rows, 2048), dtype=np.uint8)
    tokens = [int(token) for token in rng.integers(0, 50_000, rows)]
    return tokens, lambda count: keys_and_values[:, :count].tobytes()


def descriptor(layers: int, count: int) -> dict[str, Any]:
    return {
        "version": 1,
        "layer_start": 0,
        "layer_end": layers,
        "layer_count": layers,
        "token_start": 0,
        "token_count": count,
        "k_type": 1,
        "v_type": 1,
        "k_row_bytes": 2048,
        "v_row_bytes": 2048,
        "v_element_bytes": 2,
        "k_idx_row_bytes": 0,
        "payload_bytes": 2 * layers * 2048 * count,
        "flags": 0,
        "codec": 0,
        "component_count": 0,
    }


@pytest.mark.parametrize("family", ["hybrid", "smollm2"])
@pytest.mark.parametrize("given", [True, False], ids=["given", "derived"])
def test_real_growing_states_store_little_more_than_their_new_rows(
    client: Client, family: str, given: bool, request: pytest.FixtureRequest
) -> None:
    """By the client's geometry, by the KV descriptor's, and by that of the slot file itself."""
    samples: list[Sample] = request.getfixturevalue(family)
    for sample in samples:
        geometry = {name: g for name, g in sample.geometry.items() if "runs" in g}
        client.record_sample("ns", sample, **({"geometry": geometry} if given else {}))
    assert amplification(client) <= 1.15
    for sample in samples:
        assert client.restore("ns", sample.tokens).content == sample.payload


def test_ten_turns_of_a_conversation_are_stored_nearly_once(client: Client) -> None:
    """300 tokens a turn after 2,000, in windows that are no divisor of a turn."""
    layers = 2
    tokens, kv = conversation(layers)
    whole_bytes = 0
    for turn in range(11):
        count = 2000 + 300 * turn
        data = kv(count)
        whole_bytes += len(data)
        client.record(
            "ns", tokens[:count], "kv", {"kv": data}, kv_descriptor=descriptor(layers, count)
        )
    assert amplification(client) <= 1.15
    found = client.get("/v1/namespaces").json()["namespaces"][0]
    assert found["write_amplification"] == client.stats()["write_amplification"]
    assert found["stored_bytes"] < 0.16 * whole_bytes
    for turn in (0, 5, 10):
        count = 2000 + 300 * turn
        assert client.restore("ns", tokens[:count]).content == kv(count)


def test_windows_depend_on_the_shape_of_the_model_alone(client: Client) -> None:
    """The same row bytes make the same windows, however long the state."""
    for count in (65, 129, 6400):
        admitted = client.admit(
            "ns",
            list(range(count)),
            "kv",
            {"kv": 4096 * count},
            kv_descriptor=descriptor(1, count),
        )
        (layout,) = admitted.json()["layouts"]
        assert layout["window_rows"] == 64
        assert layout["block_count"] == -(-count // 64)


def test_ranges_of_a_windowed_component_are_exact(client: Client, smollm2: list[Sample]) -> None:
    sample = smollm2[-1]
    state_id = client.record_sample("ns", sample, geometry=sample.geometry)
    path = f"/v1/states/{state_id}/components/full"
    rng = random.Random(5)
    for _ in range(60):
        start = rng.randrange(len(sample.payload))
        end = min(len(sample.payload), start + rng.choice([1, 100, 50_000, 3_000_000]))
        answer = client.get(path, headers={"Range": f"bytes={start}-{end - 1}"})
        assert answer.status_code == 206
        assert answer.content == sample.payload[start:end]


def test_a_state_larger_than_the_memory_for_restores_is_given_back_in_bands(
    start: ServerFactory, smollm2: list[Sample]
) -> None:
    with Client(start(restore_buffer_bytes="1MiB").url) as client:
        sample = smollm2[-1]
        client.record_sample("ns", sample, geometry=sample.geometry)
        for _ in range(3):
            assert client.restore("ns", sample.tokens).content == sample.payload


@pytest.mark.parametrize("memory", ["1MiB", "256MiB"], ids=["bands", "whole"])
def test_a_flipped_byte_in_a_window_is_passed_over_for_the_shorter_prefix(
    start: ServerFactory, hybrid: list[Sample], memory: str
) -> None:
    server = start(restore_buffer_bytes=memory, least_gain="0.9")
    with Client(server.url) as client:
        for sample in hybrid:
            client.record_sample("ns", sample)
        last = native.cut(hybrid[2].components["kv"], hybrid[2].geometry["kv"])[3]
        flip_block(server.data, last)
        assert client.restore("ns", hybrid[2].tokens).content == hybrid[1].payload
        assert client.stats()["quarantined"] == 1


def _with_version(data: bytes, version: int) -> bytes:
    return data[:4] + struct.pack("<I", version) + data[8:]


def test_slot_files_of_an_unknown_version_still_share_most_of_their_rows(
    client: Client, smollm2: list[Sample]
) -> None:
    """Cut where their content says, because their headers shift what follows."""
    if len(smollm2) == 1:
        pytest.skip("needs the growing samples of the shared data")
    total = 0
    for sample in smollm2:
        data = _with_version(sample.payload, 4)
        total += len(data)
        client.record_full("ns", sample.tokens, data)
        assert client.restore("ns", sample.tokens).content == data
    assert client.stats()["block_raw_bytes"] < 0.75 * total
    assert client.counter("geometry", "slot_file_version") == len(smollm2)


def test_a_slot_file_cut_anywhere_is_stored_and_given_back_as_it_is(
    client: Client, smollm2: list[Sample]
) -> None:
    data = smollm2[0].payload
    places = [8, 12, 20, 24, 536, 540, 544, 548, 2084, 2092, 2104, 51_256, 51_268, len(data) - 1]
    for token, place in enumerate(places):
        client.record_full("ns", [token], data[:place])
        assert client.restore("ns", [token]).content == data[:place]


BAD_GEOMETRY: dict[str, Any] = {
    "overlap": {"rows": 4, "runs": [{"offset": 0, "stride": 8}, {"offset": 31, "stride": 8}]},
    "same place": {"rows": 4, "runs": [{"offset": 0, "stride": 8}, {"offset": 0, "stride": 8}]},
    "leaves": {"rows": 4, "runs": [{"offset": 1000, "stride": 8}]},
    "leaves by one": {"rows": 4, "runs": [{"offset": 993, "stride": 8}]},
    "overflow": {"rows": 1 << 40, "runs": [{"offset": 0, "stride": 1 << 30}]},
    "overflow to zero": {"rows": 1 << 32, "runs": [{"offset": 0, "stride": 1 << 32}]},
    "huge offset": {"rows": 1, "runs": [{"offset": (1 << 63) - 1, "stride": 1}]},
    "beyond 64 bits": {"rows": 1, "runs": [{"offset": 1 << 64, "stride": 1}]},
    "no runs": {"rows": 4, "runs": []},
    "runs missing": {"rows": 4},
    "rows missing": {"runs": [{"offset": 0, "stride": 8}]},
    "no stride": {"rows": 4, "runs": [{"offset": 0}]},
    "zero stride": {"rows": 4, "runs": [{"offset": 0, "stride": 0}]},
    "zero rows": {"rows": 0, "runs": [{"offset": 0, "stride": 8}]},
    "negative": {"rows": 4, "runs": [{"offset": -8, "stride": 8}]},
    "float": {"rows": 4.0, "runs": [{"offset": 0, "stride": 8}]},
    "bool": {"rows": True, "runs": [{"offset": 0, "stride": 8}]},
    "text": {"rows": "4", "runs": [{"offset": 0, "stride": 8}]},
    "element": {"rows": 4, "runs": [{"offset": 0, "stride": 8}], "element": "f12"},
    "element list": {"rows": 4, "runs": [{"offset": 0, "stride": 8}], "element": ["f16"]},
    "run no object": {"rows": 4, "runs": [[0, 8]]},
    "rows short of all": {"rows": 4, "runs": [{"offset": 0, "stride": 8, "first_row": 1}]},
    "first row beyond": {"rows": 4, "runs": [{"offset": 0, "stride": 8, "first_row": 5}]},
}


@pytest.mark.parametrize("name", list(BAD_GEOMETRY))
def test_a_geometry_that_does_not_fit_is_refused_and_leaves_nothing(
    client: Client, name: str
) -> None:
    answer = client.admit(
        "ns", [1], "full_state", {"full": 1024}, geometry={"full": BAD_GEOMETRY[name]}
    )
    assert code(answer) == (422, "invalid_geometry")
    assert answer.json()["field"].startswith("geometry")
    assert client.holds_nothing()


def test_a_million_runs_are_refused_quickly(client: Client) -> None:
    runs = [{"offset": n, "stride": 1} for n in range(1_000_000)]
    body = {
        **{"namespace": "ns", "tokens": [1], "kind": "full_state"},
        "components": [{"name": "full", "bytes": 1 << 24}],
        "geometry": {"full": {"rows": 1, "runs": runs}},
    }
    answer = client.post("/v1/records", json=body)
    assert code(answer) == (413, "body_too_large")
    irregular = [{"offset": 40 * n + n % 7, "stride": 1} for n in range(100_000)]
    body["geometry"] = {"full": {"rows": 1, "runs": irregular}}
    started = time.monotonic()
    answer = client.post("/v1/records", json=body)
    assert code(answer) == (422, "invalid_geometry")
    assert time.monotonic() - started < 30


def test_a_geometry_of_a_component_that_was_not_announced_is_refused(client: Client) -> None:
    geometry = {"logits": {"rows": 1, "runs": [{"offset": 0, "stride": 1}]}}
    answer = client.admit("ns", [1], "full_state", {"full": 8}, geometry=geometry)
    assert code(answer) == (422, "invalid_geometry")


def test_a_descriptor_that_does_not_say_the_layout_costs_nothing_but_duplicates(
    client: Client,
) -> None:
    odd = {**descriptor(2, 10), "payload_bytes": 4097}
    data = os.urandom(4097)
    client.record("ns", list(range(10)), "kv", {"kv": data}, kv_descriptor=odd)
    assert client.restore("ns", list(range(10))).content == data
    assert client.counter("geometry", "not_derived") == 1


def _spools(server: Server) -> list[str]:
    """Files in the data folder that hold a component on its way, with a name or open without one."""
    links = (str(fd.readlink()) for fd in Path(f"/proc/{server.pid}/fd").iterdir())
    nameless = [link for link in links if str(server.data) in link and "(deleted)" in link]
    return nameless + [str(path) for path in server.data.glob("spool-*")]


def test_an_upload_on_its_way_is_a_file_of_the_process_alone(
    server: Server, client: Client, smollm2: list[Sample]
) -> None:
    sample = smollm2[0]
    sizes = {"full": len(sample.payload)}
    admitted = client.admit("ns", sample.tokens, "full_state", sizes, geometry=sample.geometry)
    state_id = admitted.json()["state_id"]

    def slowly() -> Iterator[bytes]:
        yield sample.payload[:1_000_000]
        until = time.monotonic() + 10
        while not _spools(server) and time.monotonic() < until:
            time.sleep(0.01)
        assert _spools(server)
        yield sample.payload[1_000_000:]

    assert client.upload(state_id, "full", slowly()).status_code == 200
    assert _spools(server) == []


def test_an_upload_that_breaks_off_leaves_no_file_behind(
    start: ServerFactory, smollm2: list[Sample]
) -> None:
    server = start()
    with Client(server.url) as client:
        sample = smollm2[0]
        admitted = client.admit(
            "ns",
            sample.tokens,
            "full_state",
            {"full": len(sample.payload)},
            geometry=sample.geometry,
        )
        state_id = admitted.json()["state_id"]
        answer = client.upload(state_id, "full", iter([sample.payload[:1_000_000]]))
        assert code(answer) == (400, "length_mismatch")
        assert _spools(server) == []
        assert client.upload(state_id, "full", sample.payload).status_code == 200
        assert client.commit(state_id).status_code == 200
        assert client.restore("ns", sample.tokens).content == sample.payload
        client.post("/admin/v1/evictions", json={"state_ids": [state_id]})
        assert client.holds_nothing()
    server.stop()
    assert checked(server.data) == []


def test_windows_survive_a_restart(
    start: ServerFactory, tmp_path: Path, hybrid: list[Sample]
) -> None:
    server = start()
    with Client(server.url) as client:
        for sample in hybrid:
            client.record_sample("ns", sample)
    server.kill()
    server = start()
    with Client(server.url) as client:
        for sample in hybrid:
            assert client.restore("ns", sample.tokens).content == sample.payload
        geometry = json.dumps(hybrid[2].geometry["kv"])
        assert "runs" in geometry
    server.stop()
    assert checked(server.data) == []
