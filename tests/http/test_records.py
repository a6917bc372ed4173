"""Recording over HTTP: admission's answers from real conditions, uploads, commit, abort, expiry."""

from __future__ import annotations

import base64
import hashlib
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from pysqlite3 import dbapi2

from tests.conftest import Sample, ServerFactory
from tests.support.client import Client, code, prefix
from tests.support.server import Server

TOKENS = list(range(100))
DATA = hashlib.shake_128(b"state").digest(300_000)


def _admit(
    client: Client, tokens: list[int] = TOKENS, size: int = len(DATA), **more: object
) -> httpx.Response:
    return client.admit("ns", tokens, "full_state", {"full": size}, **more)


def _eventually(condition: object, timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


# ---- admission, every answer of rule 7 -----------------------------------------------------


def test_admission_admits(client: Client) -> None:
    answer = _admit(client)
    assert answer.status_code == 201
    assert answer.json()["admission"] == "admitted"
    assert answer.headers["location"] == f"/v1/records/{answer.json()['state_id']}"


def test_admission_says_already_recorded_and_touches(client: Client) -> None:
    state_id = client.record_full("ns", TOKENS, DATA)
    before = client.get(f"/admin/v1/states/{state_id}").json()["hits"]
    answer = _admit(client)
    assert answer.status_code == 200
    assert answer.json() == {"admission": "already_recorded", "state_id": state_id}
    _eventually(lambda: client.get(f"/admin/v1/states/{state_id}").json()["hits"] > before)


def test_admission_says_in_flight_while_somebody_records_the_prefix(client: Client) -> None:
    first = _admit(client).json()["state_id"]
    refused = _admit(client)
    assert code(refused) == (409, "in_flight")
    assert int(refused.headers["retry-after"]) > 0
    assert client.delete(f"/v1/records/{first}").status_code == 204
    assert _admit(client).status_code == 201


def test_admission_says_too_short_under_min_tokens(client: Client) -> None:
    client.record_full("ns", [9], b"x")
    client.patch("/admin/v1/namespaces", json={"namespace": "ns", "min_tokens": 101})
    assert code(_admit(client)) == (422, "too_short")
    assert _admit(client, [*TOKENS, 1]).status_code == 201


def test_admission_says_at_capacity_when_in_flight_bytes_are_full(start: ServerFactory) -> None:
    with Client(start(max_in_flight_bytes="1MiB").url) as client:
        assert _admit(client, [1], 700_000).status_code == 201
        refused = _admit(client, [2], 700_000)
        assert code(refused) == (503, "at_capacity")
        assert int(refused.headers["retry-after"]) > 0


def test_admission_says_at_capacity_when_the_queue_is_full(start: ServerFactory) -> None:
    with Client(start(max_in_flight_records=2).url) as client:
        assert [_admit(client, [n]).status_code for n in (1, 2)] == [201, 201]
        assert code(_admit(client, [3])) == (503, "at_capacity")


def test_admission_says_busy_while_another_process_holds_the_write_lock(
    server: Server, client: Client
) -> None:
    connection = dbapi2.connect(str(server.data / "metadata.db"), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    refused = _admit(client)
    assert time.monotonic() - started < 3, "admission never waits for long"
    assert code(refused) == (503, "busy")
    connection.execute("ROLLBACK")
    connection.close()
    assert _admit(client).status_code == 201


def test_admission_says_oversize_beyond_the_budget(start: ServerFactory) -> None:
    with Client(start(budget_bytes="4MiB").url) as client:
        assert code(_admit(client, TOKENS, 5 << 20)) == (413, "oversize")


def test_admission_says_low_space_at_the_reserve_and_reads_go_on(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        client.record_full("ns", TOKENS, DATA)
    server.stop()
    with Client(start(free_disk_reserve_bytes="1000TiB").url) as client:
        assert code(_admit(client, [1])) == (507, "low_space")
        assert client.restore("ns", TOKENS).content == DATA
        assert any("free disk" in line for line in client.get("/readyz").json()["degraded"])


def test_admission_says_disabled_by_mode(client: Client) -> None:
    assert client.put("/admin/v1/mode", json={"mode": "lookup"}).status_code == 200
    assert code(_admit(client)) == (403, "disabled")
    client.put("/admin/v1/mode", json={"mode": None})
    assert _admit(client).status_code == 201


def test_admission_says_stopped_after_a_failed_write_and_reads_go_on(
    server: Server, client: Client
) -> None:
    client.record_full("ns", TOKENS, DATA)
    # Not a full disk: files may not grow beyond this, so a write of blocks fails.
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))
    state_id = _admit(client, [5], 16 << 20).json()["state_id"]
    sent = client.upload(state_id, "full", hashlib.shake_128(b"big").digest(16 << 20))
    assert code(sent) == (503, "stopped")
    assert code(_admit(client, [6])) == (503, "stopped")
    assert any("writer stopped" in line for line in client.get("/readyz").json()["degraded"])
    assert client.restore("ns", TOKENS).content == DATA


def test_every_refusal_is_counted(client: Client) -> None:
    _admit(client)
    _admit(client)
    assert client.counter("admissions", "admitted") == 1
    assert client.counter("admissions", "in_flight") == 1


# ---- uploads -------------------------------------------------------------------------------


def test_an_upload_with_the_right_digests_is_taken(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    digests = ", ".join(
        f"{name}=:{base64.b64encode(h(DATA).digest()).decode()}:"
        for name, h in (("sha-256", hashlib.sha256), ("sha-512", hashlib.sha512))
    )
    sent = client.upload(state_id, "full", DATA, **{"Content-Digest": digests})
    assert sent.status_code == 200
    assert sent.json()["bytes"] == len(DATA)


def test_a_wrong_digest_is_refused_and_the_component_can_be_sent_again(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    wrong = f"sha-256=:{base64.b64encode(bytes(32)).decode()}:"
    sent = client.upload(state_id, "full", DATA, **{"Content-Digest": wrong})
    assert code(sent) == (400, "digest_mismatch")
    assert code(client.commit(state_id)) == (409, "components_missing")
    assert client.upload(state_id, "full", DATA).status_code == 200
    assert client.commit(state_id).status_code == 200


@pytest.mark.parametrize(
    "value", ["sha-256=abc", "md5=:YQ==:", "sha-256=:YWJj:", "sha-256", "=;=", '"', "sha-256=:###:"]
)
def test_a_digest_field_that_cannot_be_read_is_refused(client: Client, value: str) -> None:
    state_id = _admit(client).json()["state_id"]
    sent = client.upload(state_id, "full", DATA, **{"Content-Digest": value})
    assert code(sent) == (400, "invalid_digest_header")


def test_a_wrong_content_length_is_refused_before_the_body(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    assert code(client.upload(state_id, "full", DATA + b"x")) == (400, "length_mismatch")
    assert code(client.upload(state_id, "full", DATA[:-1])) == (400, "length_mismatch")


def _chunked(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 10_000):
        yield data[start : start + 10_000]


def test_a_chunked_upload_must_have_the_announced_length_too(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    assert code(client.upload(state_id, "full", _chunked(DATA + b"x"))) == (400, "length_mismatch")
    assert code(client.upload(state_id, "full", _chunked(DATA[:-1]))) == (400, "length_mismatch")
    assert client.upload(state_id, "full", _chunked(DATA)).status_code == 200


def test_a_body_cut_off_in_the_middle_leaves_nothing(server: Server, client: Client) -> None:
    big = hashlib.shake_128(b"cut").digest(20 << 20)
    state_id = _admit(client, TOKENS, len(big)).json()["state_id"]
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(
            f"PUT /v1/records/{state_id}/components/full HTTP/1.1\r\nHost: x\r\n"
            f"Content-Length: {len(big)}\r\n\r\n".encode()
        )
        raw.sendall(big[: 12 << 20])
    _eventually(lambda: client.stats()["block_count"] == 0)
    assert client.get(f"/v1/records/{state_id}").json()["status"] == "recording"
    _eventually(lambda: client.upload(state_id, "full", big).status_code == 200)
    assert client.commit(state_id).status_code == 200
    assert client.restore("ns", TOKENS).content == big


def test_a_component_that_was_not_announced_is_refused(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    assert code(client.upload(state_id, "kv", b"x")) == (404, "component_not_announced")


def test_a_component_is_taken_once(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    client.upload(state_id, "full", DATA)
    assert code(client.upload(state_id, "full", DATA)) == (409, "component_complete")


def test_two_uploads_of_one_component_at_once_do_not_mix(server: Server, client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(
            f"PUT /v1/records/{state_id}/components/full HTTP/1.1\r\nHost: x\r\n"
            f"Content-Length: {len(DATA)}\r\n\r\n".encode()
        )
        raw.sendall(DATA[:1000])
        time.sleep(0.3)
        assert code(client.upload(state_id, "full", DATA)) == (409, "upload_in_progress")
        raw.sendall(DATA[1000:])
        assert b"200 OK" in raw.recv(4096)
    assert client.commit(state_id).status_code == 200
    assert client.restore("ns", TOKENS).content == DATA


# ---- commit, status, abort, expiry ---------------------------------------------------------


def test_commit_before_all_components_is_refused(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    assert code(client.commit(state_id)) == (409, "components_missing")
    assert client.lookup("ns", TOKENS)["hit"] is False


def test_commit_twice_is_once(client: Client) -> None:
    state_id = client.record_full("ns", TOKENS, DATA)
    again = client.commit(state_id)
    assert again.status_code == 200
    assert again.json()["status"] == "live"
    assert client.stats()["live"] == 1


def test_commit_without_waiting_is_accepted_and_comes_to_pass(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    client.upload(state_id, "full", DATA)
    accepted = client.commit(state_id, wait_s=0)
    assert accepted.status_code == 202
    assert accepted.headers["location"] == f"/v1/records/{state_id}"
    _eventually(lambda: client.get(f"/v1/records/{state_id}").json()["status"] == "live")


def test_prefer_wait_is_acknowledged(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    client.upload(state_id, "full", DATA)
    committed = client.commit(state_id, wait_s=7)
    assert committed.status_code == 200
    assert committed.headers["preference-applied"] == "wait=7"


def test_upload_after_commit_is_refused(client: Client) -> None:
    state_id = client.record_full("ns", TOKENS, DATA)
    assert code(client.upload(state_id, "full", DATA)) == (409, "record_committed")


def test_the_status_tells_what_has_arrived(client: Client) -> None:
    admitted = client.admit("ns", TOKENS, "full_state", {"full": len(DATA), "logits": 4})
    state_id = admitted.json()["state_id"]
    client.upload(state_id, "full", DATA)
    found = client.get(f"/v1/records/{state_id}").json()
    assert found["status"] == "recording"
    assert [c["name"] for c in found["components"] if c["digest"]] == ["full"]
    assert 0 < found["expires_in_ms"] <= 600_000


def test_abort_leaves_nothing(client: Client) -> None:
    state_id = _admit(client).json()["state_id"]
    client.upload(state_id, "full", DATA)
    assert client.delete(f"/v1/records/{state_id}").status_code == 204
    assert code(client.delete(f"/v1/records/{state_id}")) == (404, "record_not_found")
    assert code(client.get(f"/v1/records/{state_id}")) == (404, "record_not_found")
    assert code(client.commit(state_id)) == (404, "record_not_found")
    assert code(client.upload(state_id, "full", DATA)) == (404, "record_not_found")
    _eventually(client.holds_nothing)


def test_abort_after_commit_is_refused(client: Client) -> None:
    state_id = client.record_full("ns", TOKENS, DATA)
    assert code(client.delete(f"/v1/records/{state_id}")) == (409, "record_committed")
    assert client.restore("ns", TOKENS).content == DATA


def test_an_abandoned_recording_ends_by_itself(client: Client) -> None:
    state_id = _admit(client, ttl_s=1).json()["state_id"]
    client.upload(state_id, "full", DATA)
    _eventually(lambda: client.get(f"/v1/records/{state_id}").status_code == 404)
    _eventually(client.holds_nothing)
    assert _admit(client).status_code == 201


def test_two_clients_recording_the_same_prefix_at_once_make_one_state(client: Client) -> None:
    answers: list[int] = []

    def ask() -> None:
        answers.append(_admit(client).status_code)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201] + [409] * 7


def test_replace_records_a_held_prefix_again(client: Client) -> None:
    first = client.record_full("ns", TOKENS, DATA)
    second = client.record_full("ns", TOKENS, DATA[::-1], replace=True)
    assert first != second
    assert client.restore("ns", TOKENS).content == DATA[::-1]
    assert client.stats()["live"] == 1
    assert client.get(f"/v1/states/{first}").status_code == 404


def test_equal_blocks_are_stored_once(client: Client) -> None:
    client.record_full("ns", [1], DATA)
    before = client.stats()["block_stored_bytes"]
    client.record_full("other", [2], DATA)
    assert client.stats()["block_stored_bytes"] == before


# ---- the multipart form --------------------------------------------------------------------


def _multipart(client: Client, meta: object, **parts: bytes) -> httpx.Response:
    files = [("meta", (None, json.dumps(meta), "application/json"))]
    files += [(name, ("x.bin", data, "application/octet-stream")) for name, data in parts.items()]  # type: ignore[misc]
    return client.post("/v1/states", files=files)


def test_a_state_is_recorded_in_one_multipart_call(client: Client, hybrid: list[Sample]) -> None:
    sample = hybrid[0]
    meta = {
        **prefix("ns", sample.tokens),
        "kind": sample.kind,
        "components": [{"name": n, "bytes": len(d)} for n, d in sample.components.items()],
        "kv_descriptor": sample.kv_descriptor,
    }
    answer = _multipart(client, meta, **sample.components)
    assert answer.status_code == 201, answer.text
    assert client.restore("ns", sample.tokens).content == sample.payload
    assert _multipart(client, meta, **sample.components).json()["admission"] == "already_recorded"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, (409, "components_missing")),
        ({"full": DATA[:-1]}, (400, "length_mismatch")),
        ({"full": DATA + b"x"}, (400, "length_mismatch")),
        ({"kv": DATA}, (404, "component_not_announced")),
    ],
)
def test_a_multipart_call_that_is_not_whole_leaves_nothing(
    client: Client, parts: dict[str, bytes], expected: tuple[int, str]
) -> None:
    meta = {
        **prefix("ns", TOKENS),
        "kind": "full_state",
        "components": [{"name": "full", "bytes": len(DATA)}],
    }
    assert code(_multipart(client, meta, **parts)) == expected
    _eventually(client.holds_nothing)


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/plain", b"x", (400, "invalid_multipart")),
        ("multipart/form-data", b"x", (400, "invalid_multipart")),
        ("multipart/form-data; boundary=b", b"", (400, "invalid_multipart")),
        ("multipart/form-data; boundary=" + 300 * "x", b"", (400, "invalid_multipart")),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\n", (400, "invalid_multipart")),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="full"\r\n\r\nx\r\n--b--\r\n',
            (400, "invalid_multipart"),
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="meta"\r\n\r\n{}\r\n--b--\r\n',
            (422, "invalid_request"),
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="meta"\r\n\r\n{nope',
            (400, "invalid_multipart"),
        ),
        (
            "multipart/form-data; boundary=b",
            b"--b\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
            (400, "invalid_multipart"),
        ),
    ],
)
def test_a_multipart_body_that_cannot_be_read_is_refused(
    client: Client, content_type: str, body: bytes, expected: tuple[int, str]
) -> None:
    answer = client.post("/v1/states", content=body, headers={"Content-Type": content_type})
    assert code(answer) == expected
    assert client.holds_nothing()
