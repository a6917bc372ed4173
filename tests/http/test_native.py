"""The native block form: have and need both ways, and what a digest alone does not give."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Sample, ServerFactory
from tests.support import native
from tests.support.client import Client, code, prefix, state_header


def need(client: Client, state_id: str, name: str, blocks: list[bytes]) -> Any:
    digests = [native.digest(block).hex() for block in blocks]
    return client.post(f"/v1/records/{state_id}/components/{name}/need", json={"digests": digests})


def send(client: Client, state_id: str, name: str, body: bytes) -> Any:
    return client.put(f"/v1/records/{state_id}/components/{name}/blocks", content=body)


def record(client: Client, namespace: str, sample: Sample, **more: Any) -> tuple[str, int]:
    """Record a sample by its blocks; returns the state id and how many blocks were sent."""
    if sample.kv_descriptor is not None:
        more["kv_descriptor"] = sample.kv_descriptor
    geometry = {n: g for n, g in sample.geometry.items() if "runs" in g}
    sizes = {name: len(data) for name, data in sample.components.items()}
    admitted = client.admit(namespace, sample.tokens, sample.kind, sizes, geometry=geometry, **more)
    assert admitted.status_code == 201, admitted.text
    state_id = admitted.json()["state_id"]
    sent = 0
    for name, data in sample.components.items():
        blocks = native.cut(data, geometry.get(name))
        layout = next(x for x in admitted.json()["layouts"] if x["name"] == name)
        assert layout["block_count"] == len(blocks)
        answer = need(client, state_id, name, blocks)
        assert answer.status_code == 200, answer.text
        wanted = answer.json()["need"]
        assert (answer.json()["blocks_digest"] is None) == bool(wanted)
        if wanted:
            values = {seq: native.value(blocks[seq]) for seq in wanted}
            answer = send(client, state_id, name, native.stream(values))
            assert answer.status_code == 200, answer.text
        sent += len(wanted)
    committed = client.commit(state_id)
    assert committed.status_code == 200, committed.text
    return state_id, sent


@pytest.mark.parametrize("family", ["hybrid", "smollm2"])
def test_what_was_sent_in_blocks_comes_back_in_wire_order(
    client: Client, family: str, request: pytest.FixtureRequest
) -> None:
    samples: list[Sample] = request.getfixturevalue(family)
    for sample in samples:
        record(client, "ns", sample)
        answer = client.restore("ns", sample.tokens)
        assert answer.content == sample.payload


def test_a_growing_state_sends_only_its_new_windows(client: Client, hybrid: list[Sample]) -> None:
    """128, 192 and 256 rows in windows of 64: two, then one, then one; the recurrent part is new."""
    assert [record(client, "ns", sample)[1] for sample in hybrid] == [3, 2, 2]
    assert client.get("/admin/v1/stats").json()["write_amplification"]["ratio"] == 1.0


def test_recording_again_what_is_held_sends_nothing(client: Client, hybrid: list[Sample]) -> None:
    first, _ = record(client, "ns", hybrid[0])
    again, sent = record(client, "ns", hybrid[0], replace=True)
    assert sent == 0
    assert again != first
    assert client.restore("ns", hybrid[0].tokens).content == hybrid[0].payload


def test_both_forms_of_upload_make_the_same_blocks(client: Client, hybrid: list[Sample]) -> None:
    client.record_sample("ns", hybrid[0])
    _, sent = record(client, "ns", hybrid[0], replace=True)
    assert sent == 0


def test_what_was_brought_to_another_namespace_of_the_tenant_need_not_be_sent(
    client: Client, hybrid: list[Sample]
) -> None:
    """Another tenant's: tests/http/test_access.py."""
    record(client, "one", hybrid[0])
    data = hybrid[0].components["recurrent"]
    admitted = client.admit("two", [1], "full_state", {"full": len(data)})
    state_id = admitted.json()["state_id"]
    unknown = client.admit("two", [2], "full_state", {"full": len(data)}).json()["state_id"]
    blocks = native.cut(data, None)
    assert need(client, state_id, "full", blocks).json()["need"] == []
    random = [os.urandom(len(block)) for block in blocks]
    assert need(client, unknown, "full", random).json()["need"] == list(range(len(blocks)))
    assert client.commit(state_id).status_code == 200
    assert client.restore("two", [1]).content == data


def test_a_restore_gives_only_the_blocks_that_the_client_does_not_have(
    client: Client, hybrid: list[Sample]
) -> None:
    client.record_sample("ns", hybrid[0])
    client.record_sample("ns", hybrid[2])
    query: dict[str, Any] = {"candidates": [prefix("ns", hybrid[0].tokens)], "blocks": {}}
    first = client.post("/v1/restore", json=query)
    assert first.headers["content-type"] == native.MEDIA_TYPE
    answer = native.parse(first.content)
    assert native.assemble(answer) == hybrid[0].components
    held = {native.digest(native.decode(v)): native.decode(v) for v in answer.blocks.values()}
    query = {
        "candidates": [prefix("ns", hybrid[2].tokens)],
        "blocks": {"have": [key.hex() for key in held]},
    }
    second = client.post("/v1/restore", json=query)
    answer = native.parse(second.content)
    assert sorted(answer.blocks) == [(0, 2), (0, 3), (1, 0)]
    assert native.assemble(answer, held) == hybrid[2].components
    assert state_header(second)[1]["token-count"] == 256


def test_a_token_range_gives_the_windows_with_those_rows(
    client: Client, hybrid: list[Sample]
) -> None:
    state_id = client.record_sample("ns", hybrid[2])
    answer = client.post(f"/v1/states/{state_id}/blocks", json={"tokens": [100, 129]})
    found = native.parse(answer.content)
    assert sorted(found.blocks) == [(0, 1), (0, 2), (1, 0)]
    windows = native.cut(hybrid[2].components["kv"], hybrid[2].geometry["kv"])
    assert native.decode(found.blocks[0, 1]) == windows[1]


def test_blocks_go_out_as_they_are_stored(client: Client) -> None:
    """Compressed on disk, compressed on the wire."""
    data = b"".join(bytes([n % 7]) * 50 for n in range(60_000))
    state_id = client.record_full("ns", [1], data)
    answer = client.post(f"/v1/states/{state_id}/blocks", json={})
    assert len(answer.content) < len(data) / 4
    assert native.assemble(native.parse(answer.content)) == {"full": data}


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_a_client_may_send_any_codec(client: Client, codec: int) -> None:
    raw = bytes(range(256)) * 41 + b"xyz"
    if codec == 1:
        import zstandard

        payload = zstandard.ZstdCompressor(level=3).compress(raw)
    else:
        payload = raw if codec == 0 else native.planes(raw, 2 * codec - 2, [0])
    state_id = _admitted(client, raw)
    assert need(client, state_id, "full", [raw]).json()["need"] == [0]
    body = native.stream({0: native.value(raw, codec, payload)})
    assert send(client, state_id, "full", body).status_code == 200
    assert client.commit(state_id).status_code == 200
    assert client.restore("ns", [1]).content == raw


def _admitted(client: Client, raw: bytes, token: int = 1) -> str:
    admitted = client.admit("ns", [token], "full_state", {"full": len(raw)})
    assert admitted.status_code == 201, admitted.text
    return str(admitted.json()["state_id"])


RAW = b"0123456789abcdef" * 600


def _bad_streams() -> dict[str, tuple[bytes, int, str]]:
    import struct

    import zstandard

    good = native.value(RAW)
    stream = native.stream({0: good})
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(64 << 20))
    # A frame that does not declare its content size.
    silent = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(bytes(64 << 20))
    flipped = bytearray(good)
    flipped[-1] ^= 1
    lying = struct.pack("<4sBBHQQ32s", b"SHBK", 1, 0, 0, len(RAW), 0, native.digest(b"other"))
    from xxhash import xxh3_64

    lying += struct.pack("<Q", xxh3_64(lying + RAW).intdigest()) + RAW
    generation = bytearray(good)
    generation[16] = 1
    framing, blocks = (400, "invalid_framing"), (422, "invalid_blocks")
    return {
        "empty": (b"", *framing),
        "magic": (b"XXXX" + stream[4:], *framing),
        "version": (stream[:4] + b"\x02" + stream[5:], *framing),
        "reserved": (stream[:5] + b"\x01" + stream[6:], *framing),
        "no frames": (stream[:8] + bytes(4) + stream[12:], *framing),
        "too many frames": (native.stream({0: good}, frames=3), *framing),
        "too few frames": (native.stream({0: good}, frames=1), *framing),
        "a million frames": (native.stream({0: good}, frames=1_000_000), *framing),
        "cut in the head": (stream[:7], *framing),
        "cut in a frame": (stream[:20], *framing),
        "cut in a value": (stream[:1000], *framing),
        "no end": (stream[:-16], *framing),
        "bytes behind the end": (stream + b"x", *framing),
        "kind": (stream[:16] + b"\x09" + stream[17:], *framing),
        "manifest": (stream[:16] + b"\x01" + stream[17:], *framing),
        "component": (stream[:17] + b"\x01" + stream[18:], *framing),
        "seq beyond": (native.stream({1: good}), *framing),
        "payload length": (stream[:24] + struct.pack("<Q", 1 << 62) + stream[32:], *framing),
        "payload of nothing": (stream[:24] + bytes(8) + stream[32:], *framing),
        "flipped byte": (native.stream({0: bytes(flipped)}), *blocks),
        "lying digest": (native.stream({0: lying}), *blocks),
        "other length": (native.stream({0: native.value(RAW[:-1])}), *blocks),
        "bomb": (native.stream({0: native.value(RAW, 1, bomb)}), *blocks),
        "bomb without a size": (native.stream({0: native.value(RAW, 1, silent)}), *blocks),
        "unknown codec": (native.stream({0: native.value(RAW, 77, RAW)}), *blocks),
        "generation": (native.stream({0: bytes(generation)}), *blocks),
        "only an end": (native.stream({}), 422, "blocks_missing"),
    }


@pytest.mark.parametrize("name", list(_bad_streams()))
def test_a_stream_that_is_not_as_specified_is_refused_and_leaves_nothing(
    client: Client, name: str
) -> None:
    body, status, expected = _bad_streams()[name]
    state_id = _admitted(client, RAW)
    assert need(client, state_id, "full", [RAW]).json()["need"] == [0]
    assert code(send(client, state_id, "full", body)) == (status, expected)
    shown = client.get(f"/v1/records/{state_id}").json()
    assert shown["components"][0]["blocks_digest"] is None
    assert need(client, state_id, "full", [RAW]).json()["need"] == [0], "nothing was kept"
    good = send(client, state_id, "full", native.stream({0: native.value(RAW)}))
    assert good.status_code == 200, "and the recording goes on"
    assert client.delete(f"/v1/records/{state_id}").status_code == 204


def test_an_upload_that_stops_after_half_its_blocks_leaves_nothing(client: Client) -> None:
    raw = os.urandom(3 * native.FIXED_BYTES)
    blocks = native.cut(raw, None)
    state_id = _admitted(client, raw)
    assert need(client, state_id, "full", blocks).json()["need"] == [0, 1, 2]
    values = {seq: native.value(blocks[seq]) for seq in (0, 1)}
    body = native.stream(values)
    assert code(send(client, state_id, "full", body)) == (422, "blocks_missing")
    assert need(client, state_id, "full", blocks).json()["need"] == [0, 1, 2]
    assert client.delete(f"/v1/records/{state_id}").status_code == 204
    assert client.stats()["live"] == 0


@pytest.mark.parametrize(
    "digests",
    [["AB" * 32], ["ab" * 31], ["zz" * 32], [7], "ab" * 32, None],
    ids=["case", "short", "no hex", "number", "text", "none"],
)
def test_digests_that_cannot_be_are_refused(client: Client, digests: Any) -> None:
    state_id = _admitted(client, RAW)
    path = f"/v1/records/{state_id}/components/full/need"
    assert code(client.post(path, json={"digests": digests})) == (422, "invalid_request")
    restore = {"candidates": [prefix("ns", [1])], "blocks": {"have": digests}}
    if digests is not None:
        assert code(client.post("/v1/restore", json=restore)) == (422, "invalid_request")


def test_as_many_digests_as_blocks_are_named(client: Client) -> None:
    state_id = _admitted(client, RAW)
    for blocks in ([], [RAW, RAW]):
        assert code(need(client, state_id, "full", blocks)) == (422, "invalid_blocks")
    assert code(need(client, state_id, "kv", [RAW])) == (404, "component_not_announced")


def test_a_block_that_was_not_asked_for_is_refused(client: Client) -> None:
    raw = os.urandom(2 * native.FIXED_BYTES)
    blocks = native.cut(raw, None)
    client.record_full("ns", [9], blocks[0])
    state_id = _admitted(client, raw)
    assert need(client, state_id, "full", blocks).json()["need"] == [1]
    body = native.stream({seq: native.value(block) for seq, block in enumerate(blocks)})
    assert code(send(client, state_id, "full", body)) == (422, "invalid_blocks")


def test_a_token_range_that_is_none_is_refused(client: Client) -> None:
    state_id = client.record_full("ns", [1], RAW)
    for tokens in ([1], [2, 1], [-1, 4], [1, 1], [0, 1 << 40], ["0", 1]):
        answer = client.post(f"/v1/states/{state_id}/blocks", json={"tokens": tokens})
        assert code(answer) == (422, "invalid_request")


def test_two_clients_that_send_the_same_block_at_once_both_succeed(
    start: ServerFactory,
) -> None:
    server = start()
    raw = os.urandom(4 * native.FIXED_BYTES)
    blocks = native.cut(raw, None)
    results: list[int] = []

    def run(token: int) -> None:
        with Client(server.url) as client:
            state_id = _admitted(client, raw, token)
            wanted = need(client, state_id, "full", blocks).json()["need"]
            if wanted:
                body = native.stream({seq: native.value(blocks[seq]) for seq in wanted})
                results.append(send(client, state_id, "full", body).status_code)
            results.append(client.commit(state_id).status_code)

    threads = [threading.Thread(target=run, args=(token,)) for token in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {200}
    with Client(server.url) as client:
        for token in (1, 2, 3, 4):
            assert client.restore("ns", [token]).content == raw
        assert client.stats()["block_count"] == 4


def test_a_component_of_blocks_has_an_etag_and_ranges(client: Client, hybrid: list[Sample]) -> None:
    state_id, _ = record(client, "ns", hybrid[1])
    path = f"/v1/states/{state_id}/components/kv"
    answer = client.get(path)
    assert answer.content == hybrid[1].components["kv"]
    assert answer.headers["etag"].startswith('"blocks-')
    part = client.get(path, headers={"Range": "bytes=1000-70000"})
    assert part.status_code == 206
    assert part.content == hybrid[1].components["kv"][1000:70001]


VECTORS = Path(__file__).parents[1] / "data" / "native"


def test_the_vectors_are_what_the_pages_specify() -> None:
    """By the second implementation, which was written from the pages."""
    data = (VECTORS / "component.bin").read_bytes()
    geometry = json.loads((VECTORS / "geometry.json").read_text())
    listed = json.loads((VECTORS / "blocks.json").read_text())
    blocks = native.cut(data, geometry)
    assert [[native.digest(block).hex(), len(block)] for block in blocks] == listed
    answer = native.parse((VECTORS / "answer.bin").read_bytes())
    assert native.assemble(answer) == {"full": data}


def test_the_service_reads_and_writes_the_vectors(client: Client) -> None:
    data = (VECTORS / "component.bin").read_bytes()
    geometry = json.loads((VECTORS / "geometry.json").read_text())
    digests = [digest for digest, _ in json.loads((VECTORS / "blocks.json").read_text())]
    blocks = native.cut(data, geometry)
    # Block 1 is held, so that the vector's two are what is needed.
    client.record_full("ns", [100], blocks[1])
    tokens = list(range(100))
    admitted = client.admit(
        "ns", tokens, "full_state", {"full": len(data)}, geometry={"full": geometry}
    )
    state_id = admitted.json()["state_id"]
    path = f"/v1/records/{state_id}/components/full/need"
    assert client.post(path, json={"digests": digests}).json()["need"] == [0, 2]
    upload = (VECTORS / "upload.bin").read_bytes()
    assert send(client, state_id, "full", upload).status_code == 200
    assert client.commit(state_id).status_code == 200
    assert client.restore("ns", tokens).content == data
    found = native.parse(client.post(f"/v1/states/{state_id}/blocks", json={}).content)
    wanted = native.parse((VECTORS / "answer.bin").read_bytes())
    for part, expected in zip(
        found.manifest["components"], wanted.manifest["components"], strict=True
    ):
        assert {**part, "runs": native.single_runs(part["runs"]), "digest": None} == {
            **expected,
            "runs": native.single_runs(expected["runs"]),
            "digest": None,
        }
    # What was sent in the upload is given back as it came.
    sent = native.frames(upload)[:-1]
    assert [found.blocks[0, seq] for _, _, seq, _ in sent] == [value for *_, value in sent]


def test_blocks_out_of_order_or_sent_twice_are_refused(client: Client) -> None:
    raw = os.urandom(2 * native.FIXED_BYTES)
    blocks = native.cut(raw, None)
    state_id = _admitted(client, raw)
    head = native.stream({0: b"", 1: b""})[:16]
    frames = [native.frame(2, 0, seq, native.value(block)) for seq, block in enumerate(blocks)]
    end = native.frame(3, 0, 0, b"")
    for order in ([1, 0], [0, 0], [1, 1]):
        assert need(client, state_id, "full", blocks).json()["need"] == [0, 1]
        body = head + b"".join(frames[seq] for seq in order) + end
        assert code(send(client, state_id, "full", body)) == (400, "invalid_framing")
    assert client.delete(f"/v1/records/{state_id}").status_code == 204
    assert client.stats()["live"] == 0
