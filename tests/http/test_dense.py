"""Dense prefixes: a kv state serves any shorter prefix of itself to who allows it, and nothing else does."""

from __future__ import annotations

import json
import struct
from typing import Any

import http_sf
import pytest

from tests.conftest import Sample
from tests.support import native
from tests.support.client import Client, prefix, state_header


def dense(samples: list[Sample], index: int) -> tuple[list[int], bytes, dict[str, Any]]:
    """Tokens, kv bytes and descriptor of a sample, for a state of kind kv."""
    sample = samples[index]
    assert sample.kv_descriptor is not None
    return sample.tokens, sample.components["kv"], sample.kv_descriptor


def record(client: Client, tokens: list[int], data: bytes, descriptor: Any, **more: Any) -> str:
    return client.record("ns", tokens, "kv", {"kv": data}, kv_descriptor=descriptor, **more)


def descriptor_of(answer: Any) -> Any:
    item: Any = http_sf.parse(answer.headers["statehold-kv-descriptor"].encode(), tltype="item")
    return json.loads(item[0])


def expected_rows(data: bytes, rows: int, kept: int, stride: int = 256) -> bytes:
    """Rows 0 to `kept` of each run of a page whose runs all have one stride."""
    size = rows * stride
    return b"".join(data[at : at + kept * stride] for at in range(0, len(data), size))


def test_a_longer_kv_state_serves_the_recorded_shorter_one_bit_for_bit(
    client: Client, hybrid: list[Sample]
) -> None:
    state_id = record(client, *dense(hybrid, 2))
    tokens, data, descriptor = dense(hybrid, 0)
    answer = client.restore("ns", tokens, allow_truncated=True)
    assert answer.content == data
    found, facts = state_header(answer)
    assert found == state_id
    assert facts["token-count"] == 128
    assert facts["truncated-from"] == 256
    assert facts["logical-bytes"] == len(data)
    assert descriptor_of(answer) == descriptor


@pytest.mark.parametrize("kept", [1, 63, 64, 65, 200, 255])
def test_a_query_that_parts_from_the_state_gets_what_they_share(
    client: Client, hybrid: list[Sample], kept: int
) -> None:
    tokens, data, descriptor = dense(hybrid, 2)
    record(client, tokens, data, descriptor)
    query = [*tokens[:kept], tokens[kept] + 1, 7, 8]
    answer = client.restore("ns", query, allow_truncated=True)
    assert answer.content == expected_rows(data, 256, kept)
    changed = descriptor_of(answer)
    assert (changed["token_count"], changed["payload_bytes"]) == (kept, len(answer.content))
    assert {k for k in changed if changed[k] != descriptor[k]} == {"token_count", "payload_bytes"}
    found = client.lookup("ns", query, allow_truncated=True)
    assert found["prefix_tokens"] == kept


def test_only_who_allows_it_gets_a_truncated_state(client: Client, hybrid: list[Sample]) -> None:
    tokens, data, descriptor = dense(hybrid, 2)
    record(client, tokens, data, descriptor)
    assert client.restore("ns", tokens[:200]).status_code == 204
    assert client.lookup("ns", tokens[:200])["hit"] is False
    refused = client.restore("ns", tokens[:200], allow_truncated=True, accept_kinds=["full_state"])
    assert refused.status_code == 204


def test_the_state_as_recorded_is_taken_where_it_goes_as_far(
    client: Client, hybrid: list[Sample]
) -> None:
    whole = record(client, *dense(hybrid, 2))
    short = record(client, *dense(hybrid, 0))
    tokens = hybrid[2].tokens
    answer = client.restore("ns", tokens[:128], allow_truncated=True)
    assert state_header(answer)[0] == short
    assert "truncated-from" not in state_header(answer)[1]
    answer = client.restore("ns", tokens[:129], allow_truncated=True)
    assert state_header(answer)[0] == whole
    answer = client.restore("ns", [*tokens, 5], allow_truncated=True)
    assert state_header(answer)[0] == whole
    assert answer.content == hybrid[2].components["kv"]


def test_recurrent_states_are_never_cut(client: Client, hybrid: list[Sample]) -> None:
    client.record_sample("ns", hybrid[2])
    assert client.restore("ns", hybrid[2].tokens[:200], allow_truncated=True).status_code == 204


def test_a_whole_slot_file_is_never_cut(client: Client, smollm2: list[Sample]) -> None:
    client.record_sample("ns", smollm2[0], geometry=smollm2[0].geometry)
    assert client.restore("ns", smollm2[0].tokens[:64], allow_truncated=True).status_code == 204


def test_a_frame_is_never_cut(client: Client, hybrid: list[Sample]) -> None:
    """Bytes that belong to no row cannot be adjusted by us."""
    tokens, data, descriptor = dense(hybrid, 0)
    framed = data + b"tail"
    geometry = {"kv": hybrid[0].geometry["kv"]}
    record(client, tokens, framed, {**descriptor, "payload_bytes": len(framed)}, geometry=geometry)
    assert client.restore("ns", tokens[:64], allow_truncated=True).status_code == 204


def test_logits_are_left_out_of_a_shorter_prefix(client: Client, hybrid: list[Sample]) -> None:
    tokens, data, descriptor = dense(hybrid, 0)
    client.record("ns", tokens, "kv", {"kv": data, "logits": b"l" * 64}, kv_descriptor=descriptor)
    assert client.restore("ns", tokens).content == data + b"l" * 64
    answer = client.restore("ns", tokens[:64], allow_truncated=True)
    assert answer.content == expected_rows(data, 128, 64)


def _transposed(rows: int, layers: int, k_bytes: int, width: int) -> bytes:
    """K rows, then V with all rows of a column together, of numbers that say where they belong."""
    keys = b"".join(
        struct.pack("<HH", layer, row) + bytes(k_bytes - 4)
        for layer in range(layers)
        for row in range(rows)
    )
    values = b"".join(
        struct.pack("<H", (layer * width + column) * 257 + row & 0xFFFF)
        for layer in range(layers)
        for column in range(width)
        for row in range(rows)
    )
    return keys + values


def test_a_transposed_v_is_cut_column_by_column(client: Client, hybrid: list[Sample]) -> None:
    base = hybrid[0].kv_descriptor or {}
    shape = {"k_row_bytes": 64, "v_row_bytes": 2 * 48, "flags": ["V_TRANSPOSED"]}
    whole, short = (_transposed(rows, 2, 64, 48) for rows in (300, 170))
    descriptor = {**base, **shape, "token_count": 300, "payload_bytes": len(whole)}
    record(client, list(range(300)), whole, descriptor)
    answer = client.restore("ns", list(range(170)), allow_truncated=True)
    assert answer.content == short
    assert client.restore("ns", list(range(300))).content == whole


def _composite(rows: int, first: int, base: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """A base part over all rows and a window part that begins at `first`; 256-byte rows."""

    def part(tag: int, rows: range) -> bytes:
        one = b"".join(struct.pack("<HH", tag, row) + bytes(252) for row in rows)
        return one + one

    below, window = part(1, range(rows)), part(2, range(first, rows))
    parts = [
        {
            "offset": 0,
            "payload_bytes": len(below),
            "token_start": 0,
            "token_count": rows,
            "flags": 0,
        },
        {
            "offset": len(below),
            "payload_bytes": len(window),
            "token_start": first,
            "token_count": rows - first,
            "flags": 0,
        },
    ]
    data = below + window
    return data, {
        **base,
        "version": 2,
        "codec": "composite",
        "component_count": 2,
        "components": parts,
        "token_count": rows,
        "payload_bytes": len(data),
    }


def test_a_sliding_window_that_lost_its_first_rows_is_never_cut(
    client: Client, hybrid: list[Sample]
) -> None:
    data, descriptor = _composite(300, 172, hybrid[0].kv_descriptor or {})
    record(client, list(range(300)), data, descriptor)
    assert client.restore("ns", list(range(300))).content == data
    assert client.restore("ns", list(range(250)), allow_truncated=True).status_code == 204


def test_a_composite_page_that_has_all_rows_is_cut_in_both_parts(
    client: Client, hybrid: list[Sample]
) -> None:
    data, descriptor = _composite(300, 0, hybrid[0].kv_descriptor or {})
    record(client, list(range(300)), data, descriptor)
    short, expected = _composite(100, 0, hybrid[0].kv_descriptor or {})
    answer = client.restore("ns", list(range(100)), allow_truncated=True)
    assert answer.content == short
    assert descriptor_of(answer) == expected


def test_a_truncated_state_comes_in_blocks_too(client: Client, hybrid: list[Sample]) -> None:
    tokens, data, descriptor = dense(hybrid, 2)
    record(client, tokens, data, descriptor)
    query = {
        "candidates": [prefix("ns", tokens[:100])],
        "allow_truncated": True,
        "blocks": {"tokens": [64, 100]},
    }
    answer = native.parse(client.post("/v1/restore", json=query).content)
    assert sorted(answer.blocks) == [(0, 1)]
    query["blocks"] = {}
    answer = native.parse(client.post("/v1/restore", json=query).content)
    assert sorted(answer.blocks) == [(0, 0), (0, 1)]
    assert native.assemble(answer) == {"kv": expected_rows(data, 256, 100)}
    assert answer.manifest["token_count"] == 100
