"""A plain HTTP client that speaks the documented protocol, for tests and nothing else."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import http_sf
import httpx

from tests.support import documented


def b64(tokens: Sequence[int]) -> str:
    return base64.b64encode(struct.pack(f"<{len(tokens)}i", *tokens)).decode()


def prefix(namespace: str, tokens: Sequence[int]) -> dict[str, Any]:
    return {"namespace": namespace, "tokens_b64": b64(tokens)}


class Client(httpx.Client):
    """httpx with the protocol's steps."""

    def __init__(self, url: str) -> None:
        # httpx would ask for every encoding that it finds a decoder for, and load the certificates of all
        # authorities for each client (20 ms), though no TLS is spoken here.
        super().__init__(
            base_url=url, timeout=60, headers={"Accept-Encoding": "identity"}, verify=False
        )

    def send(self, request: httpx.Request, **more: Any) -> httpx.Response:
        """Every answer is held against the OpenAPI document."""
        answer = super().send(request, **more)
        if not more.get("stream"):
            documented.check(answer)
        return answer

    def admit(
        self,
        namespace: str,
        tokens: Sequence[int],
        kind: str,
        components: Mapping[str, int],
        **more: Any,
    ) -> httpx.Response:
        return self.post(
            "/v1/records",
            json={
                **prefix(namespace, tokens),
                "kind": kind,
                "components": [{"name": n, "bytes": size} for n, size in components.items()],
                **more,
            },
        )

    def upload(self, state_id: str, name: str, data: Any, **headers: str) -> httpx.Response:
        return self.put(f"/v1/records/{state_id}/components/{name}", content=data, headers=headers)

    def commit(self, state_id: str, wait_s: int = 30) -> httpx.Response:
        headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
        return self.post(f"/v1/records/{state_id}/commit", headers=headers)

    def record(
        self,
        namespace: str,
        tokens: Sequence[int],
        kind: str,
        components: Mapping[str, bytes],
        **more: Any,
    ) -> str:
        """The whole way; returns the state id once it is durable."""
        sizes = {name: len(data) for name, data in components.items()}
        admitted = self.admit(namespace, tokens, kind, sizes, **more)
        assert admitted.status_code == 201, admitted.text
        state_id: str = admitted.json()["state_id"]
        for name, data in components.items():
            sent = self.upload(state_id, name, data)
            assert sent.status_code == 200, sent.text
        committed = self.commit(state_id)
        assert committed.status_code == 200, committed.text
        return state_id

    def record_full(self, namespace: str, tokens: Sequence[int], data: bytes, **more: Any) -> str:
        return self.record(namespace, tokens, "full_state", {"full": data}, **more)

    def record_sample(self, namespace: str, sample: Any, **more: Any) -> str:
        if sample.kv_descriptor is not None:
            more["kv_descriptor"] = sample.kv_descriptor
        return self.record(namespace, sample.tokens, sample.kind, sample.components, **more)

    def lookup(self, namespace: str, tokens: Sequence[int], **more: Any) -> dict[str, Any]:
        answer = self.post("/v1/lookup", json={"candidates": [prefix(namespace, tokens)], **more})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def restore(self, namespace: str, tokens: Sequence[int], **more: Any) -> httpx.Response:
        return self.post("/v1/restore", json={"candidates": [prefix(namespace, tokens)], **more})

    def release(self, lease_id: str, outcome: str, **more: Any) -> httpx.Response:
        return self.post(f"/v1/leases/{lease_id}/release", json={"outcome": outcome, **more})

    def fail(self, lease_id: str, failure_class: str) -> httpx.Response:
        failure = {"class": failure_class, "reason": "import refused"}
        return self.release(lease_id, "failed", failure=failure)

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/admin/v1/stats").json()
        return found

    def counter(self, name: str, label: str = "") -> int:
        for counter in self.stats()["counters"]:
            if (counter["name"], counter["label"]) == (name, label):
                return int(counter["value"])
        return 0

    def holds_nothing(self) -> bool:
        """Whether no state, recording or block is left, once what is unowned has been reclaimed."""
        found = self.stats()
        return all(
            found[name] == 0 for name in ("live", "recording", "quarantined", "stored_bytes")
        )


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and problem code; the shape of every problem is checked on the way."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"] == f"urn:statehold:problem:{body['code']}"
    assert body["title"]
    assert body["detail"]
    return answer.status_code, body["code"]


def state_header(answer: httpx.Response) -> tuple[str, dict[str, Any]]:
    """State id and parameters of `Statehold-State`."""
    item: Any = http_sf.parse(answer.headers["statehold-state"].encode(), tltype="item")
    return item[0], dict(item[1])


def lease_header(answer: httpx.Response) -> str:
    item: Any = http_sf.parse(answer.headers["statehold-lease"].encode(), tltype="item")
    return str(item[0])


def miss_header(answer: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    """Reasons and parameters of `Statehold-Miss`."""
    items: Any = http_sf.parse(answer.headers["statehold-miss"].encode(), tltype="list")
    return [(str(reason), dict(parameters)) for reason, parameters in items]
