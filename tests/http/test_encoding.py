"""`Accept-Encoding: zstd`: stored frames go out as they are, and decode to exactly what was recorded."""

from __future__ import annotations

import os

import pytest
import zstandard

from tests.conftest import Sample
from tests.support.client import Client

ZSTD = {"Accept-Encoding": "zstd"}
PLAIN = {"Accept-Encoding": "identity"}


def decoded(body: bytes) -> bytes:
    """All frames, one after another."""
    found, rest = b"", body
    while rest:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        found += decoder.decompress(rest)
        assert decoder.eof
        rest = decoder.unused_data
    return found


def text(size: int) -> bytes:
    """Compresses by far more than a quarter, and not in planes."""
    words = b"".join(b"word%d " % (n * n % 997) for n in range(size // 6))
    return words[:size]


def raw_body(client: Client, url: str, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    with client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200
        return b"".join(answer.iter_raw()), dict(answer.headers)


def test_a_component_that_is_stored_as_frames_is_sent_as_frames(client: Client) -> None:
    data = text(3_000_000)
    state_id = client.record_full("ns", [1], data)
    url = f"/v1/states/{state_id}/components/full"
    body, headers = raw_body(client, url, ZSTD)
    assert headers["content-encoding"] == "zstd"
    assert headers["vary"] == "Accept-Encoding"
    assert len(body) == int(headers["content-length"]) < len(data) / 2
    assert decoded(body) == data
    plain, plain_headers = raw_body(client, url, PLAIN)
    assert plain == data
    assert "content-encoding" not in plain_headers
    assert headers["etag"] == plain_headers["etag"][:-1] + '-zstd"'
    for tag in (headers["etag"], plain_headers["etag"]):
        assert client.get(url, headers={"If-None-Match": tag}).status_code == 304


def test_raw_blocks_between_frames_are_framed_without_being_compressed(client: Client) -> None:
    data = text(2_200_000) + os.urandom(1_300_000) + text(3_000_000)
    client.record("ns", [1], "full_state", {"full": data, "logits": text(5000)})
    with client.stream(
        "POST",
        "/v1/restore",
        json={"candidates": [{"namespace": "ns", "tokens": [1]}]},
        headers=ZSTD,
    ) as answer:
        assert answer.headers["content-encoding"] == "zstd"
        body = b"".join(answer.iter_raw())
    assert decoded(body) == data + text(5000)
    assert len(body) < 0.6 * len(data)


@pytest.mark.parametrize("accept", ["identity", "gzip", "*", "zstd;q=0", "zstd; q=0.0", ""])
def test_who_does_not_ask_for_it_gets_plain_bytes(client: Client, accept: str) -> None:
    data = text(100_000)
    state_id = client.record_full("ns", [1], data)
    url = f"/v1/states/{state_id}/components/full"
    body, headers = raw_body(client, url, {"Accept-Encoding": accept})
    assert body == data
    assert "content-encoding" not in headers


def test_what_is_not_stored_as_frames_comes_plain(client: Client, hybrid: list[Sample]) -> None:
    noise = client.record_full("ns", [1], os.urandom(100_000))
    windows = client.record_sample("ns", hybrid[0])
    for state_id, name in ((noise, "full"), (windows, "kv")):
        _, headers = raw_body(client, f"/v1/states/{state_id}/components/{name}", ZSTD)
        assert "content-encoding" not in headers


def test_a_range_is_of_the_plain_bytes(client: Client) -> None:
    data = text(100_000)
    state_id = client.record_full("ns", [1], data)
    answer = client.get(
        f"/v1/states/{state_id}/components/full", headers={**ZSTD, "Range": "bytes=10-99"}
    )
    assert answer.status_code == 206
    assert answer.content == data[10:100]
    assert "content-encoding" not in answer.headers
