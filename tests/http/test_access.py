"""Who may do what: tokens, scopes, patterns, tenants; and what those who may not can find out."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.access import RIGHTS
from tests.conftest import Sample, ServerFactory
from tests.http.test_workers import noise
from tests.support.client import Client, code, prefix
from tests.support.damage import sql
from tests.support.server import Server, free_port

_EVERY = ["lookup", "record", "admin:read", "admin:write", "forensics"]
_ID = "01938c0d-e000-7000-8000-000000000000"


def make(client: Client, *scopes: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/admin/v1/tokens", json={"label": "t", "scopes": list(scopes), **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def with_token(server: Server, secret: str | None) -> Client:
    client = Client(server.url)
    if secret is not None:
        client.headers["Authorization"] = f"Bearer {secret}"
    return client


@pytest.fixture
def operator(server: Server) -> Client:
    """An operator of the whole store, whose token is the first."""
    with Client(server.url) as everyone:
        secret = make(everyone, *_EVERY)["secret"]
    return with_token(server, secret)


# ---- open and closed -----------------------------------------------------------------------


def test_without_tokens_access_is_open_and_says_so(client: Client, server: Server) -> None:
    assert client.get("/admin/v1/whoami").json()["access"] == "open"
    ready = client.get("/readyz").json()
    assert ready["degraded"] == []
    assert any("access is open" in line for line in ready["warnings"])
    assert '"event": "access_is_open"' in server.logged()


def test_the_first_token_closes_the_service_for_everybody_else(
    server: Server, operator: Client
) -> None:
    with Client(server.url) as nobody:
        answer = nobody.post("/v1/lookup", json={"candidates": [prefix("ns", [1])]})
        assert code(answer) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert operator.get("/admin/v1/whoami").json()["access"] == "token"
    assert operator.get("/readyz").json()["warnings"] == []


def test_revoking_the_last_token_does_not_open_the_service_again(
    start: ServerFactory, tmp_path: Path
) -> None:
    server = start()
    with Client(server.url) as client:
        made = make(client, *_EVERY)
    operator = with_token(server, made["secret"])
    assert operator.delete(f"/admin/v1/tokens/{made['token_id']}").json()["good"] is False
    assert code(operator.get("/admin/v1/stats")) == (401, "unauthorized")
    assert code(Client(server.url).get("/admin/v1/stats")) == (401, "unauthorized")
    server.stop()
    server.start()
    assert code(Client(server.url).get("/admin/v1/stats")) == (401, "unauthorized")


def test_an_address_that_others_reach_is_not_bound_without_a_token(tmp_path: Path) -> None:
    def serve(**settings: str) -> subprocess.CompletedProcess[str]:
        environment = {f"STATEHOLD_{name}": value for name, value in settings.items()}
        return subprocess.run(
            [sys.executable, "-m", "app", "serve"],
            env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            cwd=Path(__file__).parents[2],
        )

    done = serve(DATA_DIR=str(tmp_path / "d"), HOST="0.0.0.0", PORT=str(free_port()))
    assert done.returncode == 2
    assert "STATEHOLD_ACCESS=open" in done.stderr


@pytest.mark.parametrize("access", ["open", "tokens"])
def test_another_address_is_bound_where_that_is_said(start: ServerFactory, access: str) -> None:
    server = start(host="0.0.0.0", access=access)
    with Client(server.url) as client:
        answer = client.get("/admin/v1/whoami")
    assert answer.status_code == (200 if access == "open" else 401)


# ---- tokens --------------------------------------------------------------------------------


def test_a_secret_is_shown_once_and_kept_nowhere(server: Server, operator: Client) -> None:
    made = make(operator, "lookup", namespaces=["a*"], tenant="team", expires_in_s=100)
    assert made["secret"].startswith(f"sth_{made['token_id']}_")
    listed = operator.get("/admin/v1/tokens")
    assert made["secret"] not in listed.text
    last = listed.json()["tokens"][-1]
    assert (last["label"], last["scopes"], last["tenant"], last["namespaces"]) == (
        "t",
        ["lookup"],
        "team",
        ["a*"],
    )
    assert last["expires_at_ms"] - last["created_at_ms"] == 100_000
    operator.get("/admin/v1/audit")
    rest = made["secret"].removeprefix(f"sth_{made['token_id']}_").encode()
    for path in server.data.rglob("*"):
        if path.is_file():
            assert rest not in path.read_bytes(), path
    assert rest.decode() not in server.logged()


def test_the_last_use_of_a_token_is_known(operator: Client) -> None:
    (row,) = operator.get("/admin/v1/tokens").json()["tokens"]
    assert abs(row["used_at_ms"] / 1000 - time.time()) < 60


def test_a_token_stops_working_at_its_end(server: Server, operator: Client) -> None:
    made = make(operator, "lookup", expires_in_s=1)
    client = with_token(server, made["secret"])
    assert client.get("/admin/v1/whoami").status_code == 200
    time.sleep(1.1)
    assert code(client.get("/admin/v1/whoami")) == (401, "unauthorized")


def test_a_revoked_token_is_good_for_nothing_at_once(server: Server, operator: Client) -> None:
    made = make(operator, "lookup")
    client = with_token(server, made["secret"])
    assert client.get("/admin/v1/whoami").status_code == 200
    operator.delete(f"/admin/v1/tokens/{made['token_id']}")
    assert code(client.get("/admin/v1/whoami")) == (401, "unauthorized")
    assert operator.delete(f"/admin/v1/tokens/{made['token_id']}").status_code == 200
    assert code(operator.delete(f"/admin/v1/tokens/{_ID}")) == (404, "token_not_found")


def test_a_revoked_token_is_refused_by_every_worker_within_a_second(start: ServerFactory) -> None:
    server = start(workers=2)
    with Client(server.url) as client:
        operator = with_token(server, make(client, *_EVERY)["secret"])
    time.sleep(1.1)
    made = make(operator, "lookup")
    headers = {"Authorization": f"Bearer {made['secret']}", "Connection": "close"}
    for _ in range(20):
        assert Client(server.url).get("/admin/v1/whoami", headers=headers).status_code == 200
    operator.delete(f"/admin/v1/tokens/{made['token_id']}")
    time.sleep(1.1)
    for _ in range(20):
        assert Client(server.url).get("/admin/v1/whoami", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "field",
    [
        "Bearer",
        "Bearer x",
        "Basic dXNlcjpwYXNz",
        f"Bearer sth_{_ID}_{'A' * 43}",
        "Bearer " + "A" * 5000,
        "Bearer sth__",
        "Bearer sth_é",
        "bearer sth_'; DROP TABLE access_token; --_x",
    ],
)
def test_what_is_no_good_token_is_refused_alike(
    server: Server, operator: Client, field: str
) -> None:
    with Client(server.url) as client:
        answer = client.get("/admin/v1/whoami", headers={b"Authorization": field.encode()})
    assert code(answer) == (401, "unauthorized")
    assert answer.json()["detail"] == "the token is not good (any more)"


def test_half_a_secret_or_another_tokens_id_opens_nothing(server: Server, operator: Client) -> None:
    one, two = make(operator, "lookup"), make(operator, "lookup")
    mixed = one["secret"].replace(one["token_id"], two["token_id"])
    for secret in (mixed, one["secret"][:-1], one["secret"] + "A"):
        assert with_token(server, secret).get("/admin/v1/whoami").status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        {"label": "", "scopes": ["lookup"]},
        {"label": "x", "scopes": []},
        {"label": "x", "scopes": ["root"]},
        {"label": "x", "scopes": ["lookup"], "tenant": "a/b"},
        {"label": "x", "scopes": ["lookup"], "tenant": "a\u001fb"},
        {"label": "x", "scopes": ["lookup"], "namespaces": []},
        {"label": "x", "scopes": ["lookup"], "expires_in_s": 0},
        {"label": "x", "scopes": ["lookup"], "secret": "mine"},
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(client: Client, body: dict[str, Any]) -> None:
    assert code(client.post("/admin/v1/tokens", json=body)) == (422, "invalid_request")
    assert client.get("/admin/v1/tokens").json()["tokens"] == []


# ---- scopes --------------------------------------------------------------------------------


def _concrete(path: str) -> str:
    return (
        path.replace("{name}", "full")
        .replace("{", "")
        .replace("}", "")
        .replace("state_id", _ID)
        .replace("lease_id", _ID)
        .replace("token_id", _ID)
        .replace("job_id", _ID)
    )


def test_every_route_refuses_every_token_without_its_scope(
    server: Server, operator: Client
) -> None:
    """Generated from the table that the service starts with, so that no route can be forgotten."""
    clients = {scope: with_token(server, make(operator, scope)["secret"]) for scope in _EVERY}
    nobody = Client(server.url)
    tried = 0
    for (method, path), right in RIGHTS.items():
        if right is None:
            continue
        target = _concrete(path)
        answer = nobody.request(method, target)
        assert answer.status_code == 401, (method, path)
        for scope, client in clients.items():
            answer = client.request(method, target)
            if right.scope in ("", scope):
                assert answer.status_code not in (401, 403), (method, path, scope)
            else:
                assert answer.status_code == 403, (method, path, scope)
            tried += 1
    assert tried > 100


def test_a_token_of_a_tenant_does_not_operate_the_store(server: Server, operator: Client) -> None:
    bound = [
        with_token(server, make(operator, *_EVERY, **more)["secret"])
        for more in ({"tenant": "team"}, {"namespaces": ["a*"]})
    ]
    tried = 0
    for (method, path), right in RIGHTS.items():
        if right is not None and right.operator:
            for client in bound:
                answer = client.request(method, _concrete(path))
                assert answer.status_code == 403, (method, path)
                tried += 1
    assert tried > 10


def test_two_authorization_fields_are_refused(server: Server, operator: Client) -> None:
    good = operator.headers["Authorization"]
    for fields in ([good, "Bearer x"], ["Bearer x", good], [good, good]):
        answer = httpx.get(
            f"{server.url}/admin/v1/whoami", headers=[("Authorization", field) for field in fields]
        )
        assert code(answer) == (401, "unauthorized")


def test_no_answer_leads_to_where_the_client_says(server: Server, operator: Client) -> None:
    for path in ("/v1/lookup/", "/admin/v1/tokens/", "/v1/states/..%2f"):
        answer = operator.get(path, headers={"Host": "evil.example"})
        assert (answer.status_code, "location" in answer.headers) == (404, False)


# ---- namespaces and tenants ----------------------------------------------------------------


def _seen(answer: Any) -> tuple[int, str, dict[str, str]]:
    """What a client can compare of two answers: not the time and not the request's id."""
    body = json.loads(answer.content) if answer.content else {}
    body.pop("request_id", None)
    body.pop("lookup_ms", None)
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("date", "x-request-id", "server-timing")
    }
    return answer.status_code, json.dumps(body), headers


def test_a_namespace_outside_the_patterns_is_refused_whether_it_exists_or_not(
    server: Server, operator: Client, hybrid: list[Sample]
) -> None:
    operator.record_sample("other", hybrid[0])
    client = with_token(server, make(operator, *_EVERY, namespaces=["mine-*"])["secret"])
    client.record_sample("mine-1", hybrid[0])
    tokens = hybrid[0].tokens
    asks: list[Callable[[str], httpx.Response]] = [
        lambda name: client.post("/v1/lookup", json={"candidates": [prefix(name, tokens)]}),
        lambda name: client.post("/v1/restore", json={"candidates": [prefix(name, tokens)]}),
        lambda name: client.admit(name, tokens, "full_state", {"full": 1}),
        lambda name: client.get("/v1/namespaces", params={"namespace": name}),
        lambda name: client.post("/v1/namespaces", json={"namespace": name, "identity": {"a": 1}}),
        lambda name: client.patch("/admin/v1/namespaces", json={"namespace": name, "mode": None}),
        lambda name: client.get("/admin/v1/tree", params={"namespace": name}),
        lambda name: client.get("/admin/v1/states", params={"namespace": name}),
    ]
    for ask in asks:
        held, free = ask("other"), ask("never")
        assert held.status_code == 403
        assert _seen(held) == _seen(free)
    names = [n["namespace"] for n in client.get("/v1/namespaces").json()["namespaces"]]
    assert names == ["mine-1"]


def test_what_an_eviction_frees_tells_nothing_of_other_tenants(
    server: Server, operator: Client
) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=t)["secret"]) for t in "ab")
    shared, own = noise("shared", 300_000), noise("own", 300_000)
    a.record_full("ns", [1], shared)
    ids = [b.record_full("ns", [2], shared), b.record_full("ns", [3], own)]
    # Of one length each, so that what is told may be told apart only by who else has it.
    for dry_run in (True, False):
        freed = [
            b.post("/admin/v1/evictions", json={"state_ids": [one], "dry_run": dry_run}).json()[
                "freed_bytes"
            ]
            for one in ids
        ]
        assert freed[0] == freed[1] > 300_000
    again = b.record_full("ns", [4], shared)
    answer = operator.post("/admin/v1/evictions", json={"state_ids": [again], "dry_run": True})
    assert answer.json()["freed_bytes"] < 10_000  # an operator of the store is told what is


def test_a_lease_of_another_tenant_is_as_none(server: Server, operator: Client) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=t)["secret"]) for t in "ab")
    a.record_full("ns", [1], b"of a")
    mine = b.record_full("ns", [1], b"of b")
    theirs = a.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    path = f"/v1/states/{mine}/components/full"

    def ask(lease: str) -> Any:
        return _seen(b.get(path, headers={"Statehold-Lease": f'"{lease}"'}))

    absent = ask(_ID)
    assert absent[0] == 404
    assert ask(theirs) == absent
    a.release(theirs, "restored")
    assert ask(theirs) == absent


def test_patterns_without_a_tenant_are_of_the_default_one(server: Server, operator: Client) -> None:
    a = with_token(server, make(operator, *_EVERY, tenant="a")["secret"])
    theirs = a.record_full("mine-1", [1], b"of a")
    client = with_token(server, make(operator, *_EVERY, namespaces=["*"])["secret"])
    for path in (f"/v1/states/{theirs}", f"/admin/v1/states/{theirs}"):
        assert _seen(client.get(path)) == _seen(client.get(path.replace(theirs, _ID)))
    of_a = {"namespace": "mine-1", "tenant": "a"}
    assert code(client.get("/admin/v1/tree", params=of_a)) == (403, "forbidden")
    assert operator.get("/admin/v1/tree", params=of_a).status_code == 200
    assert client.restore("mine-1", [1]).status_code == 204


@pytest.mark.parametrize("bound", [{"tenant": ""}, {"namespaces": ["*"]}])
def test_the_held_form_of_another_tenants_namespace_is_no_name_for_it(
    server: Server, operator: Client, bound: dict[str, Any]
) -> None:
    a = with_token(server, make(operator, *_EVERY, tenant="a")["secret"])
    a.record_full("ns", [1, 2, 3], b"of a")
    client = with_token(server, make(operator, *_EVERY, **bound)["secret"])
    asks: list[Callable[[str], httpx.Response]] = [
        lambda name: client.get("/v1/namespaces", params={"namespace": name}),
        lambda name: client.get("/admin/v1/tree", params={"namespace": name}),
        lambda name: client.get("/admin/v1/tree/nodes", params={"namespace": name}),
        lambda name: client.get("/admin/v1/states", params={"namespace": name}),
        lambda name: client.patch("/admin/v1/namespaces", json={"namespace": name, "mode": None}),
    ]
    for ask in asks:
        held, free = ask("a\x1fns"), ask("a\x1fnever")
        assert held.status_code in (403, 422)
        assert _seen(held) == _seen(free)


def test_the_next_page_of_namespaces_does_not_begin_at_one_outside_the_patterns(
    server: Server, operator: Client
) -> None:
    for name in ("mine-1", "mine-2", "mine-3", "other-1", "other-2"):
        operator.record_full(name, [1], b"x")
    client = with_token(
        server, make(operator, *_EVERY, namespaces=["mine-[12]", "other-2"])["secret"]
    )
    for route in ("/v1/namespaces", "/admin/v1/namespaces"):
        names, after = [], None
        for _ in range(3):
            params = {"limit": 1} | ({} if after is None else {"after": after})
            page = client.get(route, params=params).json()
            names += [[found["namespace"] for found in page["namespaces"]]]
            after = page["next"]
            assert after not in ("mine-3", "other-1")
        assert names == [["mine-1"], ["mine-2"], ["other-2"]]
        assert after is None


def test_two_tenants_use_one_name_and_never_meet(server: Server, operator: Client) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=tenant)["secret"]) for tenant in "ab")
    a.record_full("ns", [1, 2, 3], b"of a")
    assert b.restore("ns", [1, 2, 3]).status_code == 204
    b.record_full("ns", [1, 2, 3], b"of b")
    assert a.restore("ns", [1, 2, 3]).content == b"of a"
    assert b.restore("ns", [1, 2, 3]).content == b"of b"
    assert operator.restore("ns", [1, 2, 3]).status_code == 204
    listed = operator.get("/v1/namespaces").json()["namespaces"]
    assert [(n["tenant"], n["namespace"]) for n in listed] == [("a", "ns"), ("b", "ns")]
    assert [n["namespace"] for n in a.get("/v1/namespaces").json()["namespaces"]] == ["ns"]


def test_another_tenants_ids_look_like_ids_of_nothing(server: Server, operator: Client) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=tenant)["secret"]) for tenant in "ab")
    state_id = a.record_full("ns", [1, 2, 3], b"of a")
    lease_id = a.lookup("ns", [1, 2, 3], acquire=True)["lease"]["lease_id"]
    recording = a.admit("ns", [9], "full_state", {"full": 4}).json()["state_id"]
    tried = 0
    for (method, path), right in RIGHTS.items():
        ids = {"{state_id}": (state_id, recording), "{lease_id}": (lease_id,)}
        for parameter, theirs in ids.items():
            if right is None or parameter not in path:
                continue
            body: dict[str, Any] = {"json": {}} if method in ("POST", "PUT") else {}
            nothing = b.request(method, _concrete(path), **body)
            assert nothing.status_code == 404, (method, path)
            for one in theirs:
                target = _concrete(path.replace(parameter, one))
                assert _seen(b.request(method, target, **body)) == _seen(nothing), (method, path)
                tried += 1
    assert tried > 20
    assert a.restore("ns", [1, 2, 3]).content == b"of a"
    assert a.post(f"/v1/leases/{lease_id}/heartbeat", json={}).status_code == 200
    assert a.upload(recording, "full", b"abcd").status_code == 200
    assert a.commit(recording).status_code == 200


def test_an_old_lease_of_a_state_that_is_gone_is_nobodys(server: Server, operator: Client) -> None:
    """Leases of older versions do not name their namespace; that of the newest must not stand in for it."""
    a, b = (with_token(server, make(operator, *_EVERY, tenant=tenant)["secret"]) for tenant in "ab")
    state_id = a.record_full("ns", [1], b"of a")
    lease_id = a.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    sql(server.data, "UPDATE lease SET namespace_id = NULL")
    b.record_full("ns", [1], b"of b")
    assert b.lookup("ns", [1], acquire=True)["lease"]["lease_id"] > lease_id
    path = f"/v1/leases/{lease_id}/heartbeat"
    assert code(b.post(path, json={})) == (404, "lease_not_found")
    assert a.post(path, json={}).status_code == 200
    assert a.release(lease_id, "unused").status_code == 200
    evicted = a.post("/admin/v1/evictions", json={"state_ids": [state_id]})
    assert evicted.json()["evicted"] == [state_id]
    for client in (a, b):
        assert code(client.post(path, json={})) == (404, "lease_not_found")
    assert code(operator.post(path, json={})) == (409, "lease_released")


def test_a_miss_does_not_tell_of_another_tenants_namespace_of_the_model(
    server: Server, operator: Client
) -> None:
    a, b = (with_token(server, make(operator, *_EVERY, tenant=tenant)["secret"]) for tenant in "ab")
    for client, name, weights in ((a, "x", "1"), (b, "y", "2")):
        identity = {"model_id": "m", "weights_digest": weights}
        body = {"namespace": name, "identity": identity}
        assert client.post("/v1/namespaces", json=body).status_code == 200
    a.record_full("x", [1, 2], b"x")
    (miss,) = b.lookup("y", [1, 2])["misses"]
    assert miss == {"reason": "never_seen"}


def test_a_block_of_another_tenant_has_to_be_sent(
    server: Server, operator: Client, hybrid: list[Sample]
) -> None:
    from tests.support import native

    sample = hybrid[0]
    data = sample.components["recurrent"]
    a, b = (with_token(server, make(operator, *_EVERY, tenant=tenant)["secret"]) for tenant in "ab")
    answers: list[int] = []
    for client in (a, b, b):
        tokens = [len(answers)]
        admitted = client.admit("ns", tokens, "full_state", {"full": len(data)})
        state_id = admitted.json()["state_id"]
        digests = [native.digest(block).hex() for block in native.cut(data, None)]
        asked = client.post(
            f"/v1/records/{state_id}/components/full/need", json={"digests": digests}
        )
        answers.append(len(asked.json()["need"]))
        if answers[-1]:
            assert client.upload(state_id, "full", data).status_code == 200
        assert client.commit(state_id).status_code == 200
    assert answers[0] == answers[1] > 0
    assert answers[2] == 0
    assert a.restore("ns", [0]).content == b.restore("ns", [1]).content == data


def test_what_another_tenant_holds_saves_no_work_that_an_upload_could_feel(
    server: Server, operator: Client, hybrid: list[Sample]
) -> None:
    """Blocks that only another tenant has brought are encoded and written like new ones."""
    data = hybrid[0].components["recurrent"]
    a, b = (with_token(server, make(operator, *_EVERY, tenant=tenant)["secret"]) for tenant in "ab")

    def written() -> int:
        time.sleep(1.3)
        counters = operator.get("/admin/v1/stats").json()["counters"]
        return next((c["value"] for c in counters if c["name"] == "blocks_written"), 0)

    a.record_full("ns", [1], data)
    first = written()
    b.record_full("ns", [1], data)
    second = written()
    b.record_full("ns", [2], data)
    assert second - first == first > 0
    assert written() == second


# ---- quotas --------------------------------------------------------------------------------


def _limit(operator: Client, tenant: str, **limits: int | None) -> None:
    answer = operator.put(f"/admin/v1/tenants/{tenant}", json=limits)
    assert answer.status_code == 200, answer.text


def test_a_tenant_has_so_many_requests_a_second(server: Server, operator: Client) -> None:
    _limit(operator, "a", max_requests_per_second=5)
    a = with_token(server, make(operator, *_EVERY, tenant="a")["secret"])
    answers = [a.restore("ns", [1]) for _ in range(12)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 4 <= len(refused) <= 8
    assert code(refused[0]) == (429, "rate_limited")
    assert int(refused[0].headers["retry-after"]) >= 1
    assert operator.restore("ns", [1]).status_code == 204
    time.sleep(1.1)
    assert a.restore("ns", [1]).status_code == 204


def test_an_operator_is_not_held_up_by_the_rate_of_the_default_tenant(
    server: Server, operator: Client
) -> None:
    _limit(operator, "default", max_requests_per_second=1)
    time.sleep(1.1)
    assert 429 in [operator.restore("ns", [1]).status_code for _ in range(4)]
    assert {operator.get("/admin/v1/stats").status_code for _ in range(4)} == {200}
    _limit(operator, "default", max_requests_per_second=None)


def test_a_tenant_has_so_many_bytes_a_second(server: Server, operator: Client) -> None:
    a = with_token(server, make(operator, *_EVERY, tenant="a")["secret"])
    a.record_full("ns", [1], bytes(3_000_000))
    _limit(operator, "a", max_bytes_per_second=1_000_000)
    time.sleep(1.1)
    assert len(a.restore("ns", [1]).content) == 3_000_000  # runs to its end
    answer = a.restore("ns", [1])
    assert code(answer) == (429, "rate_limited")
    assert int(answer.headers["retry-after"]) in (1, 2, 3)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("max_entries", 3), ("max_logical_bytes", 3_500_000), ("max_stored_bytes", 3_500_000)],
)
def test_a_full_tenant_evicts_its_own_least_recently_used(
    server: Server, operator: Client, limit: str, value: int
) -> None:
    import os

    a, b = (with_token(server, make(operator, *_EVERY, tenant=tenant)["secret"]) for tenant in "ab")
    b.record_full("ns", [7], os.urandom(1_000_000))
    _limit(operator, "a", **{limit: value})
    payloads = [os.urandom(1_000_000) for _ in range(6)]
    for turn, data in enumerate(payloads):
        a.record_full(f"ns-{turn % 2}", [turn], data)
    held = [t for t in range(6) if a.restore(f"ns-{t % 2}", [t]).status_code == 200]
    assert held == [3, 4, 5]
    (tenant,) = (
        t for t in operator.get("/admin/v1/tenants").json()["tenants"] if t["tenant"] == "a"
    )
    assert (tenant["entries"], tenant["namespaces"], tenant[limit]) == (3, 2, value)
    assert b.restore("ns", [7]).status_code == 200
    if limit != "max_entries":
        answer = a.admit("ns-0", [99], "full_state", {"full": 4_000_000})
        assert code(answer) == (413, "oversize")


def test_a_tenant_has_so_many_recordings_under_way(server: Server, operator: Client) -> None:
    _limit(operator, "a", max_in_flight_records=2)
    a = with_token(server, make(operator, *_EVERY, tenant="a")["secret"])
    ids = [a.admit("ns", [n], "full_state", {"full": 1}).json()["state_id"] for n in range(2)]
    assert code(a.admit("ns", [9], "full_state", {"full": 1})) == (429, "over_quota")
    assert a.delete(f"/v1/records/{ids[0]}").status_code == 204
    assert a.admit("ns", [9], "full_state", {"full": 1}).status_code == 201
    _limit(operator, "a", max_in_flight_records=None)
    assert a.admit("ns", [10], "full_state", {"full": 1}).status_code == 201


@pytest.mark.parametrize("name", ["a b", "a%1Fb", "x" * 65, "ä"])
def test_a_tenant_of_an_impossible_name_gets_no_limits(client: Client, name: str) -> None:
    answer = client.put(f"/admin/v1/tenants/{name}", json={"max_entries": 1})
    assert code(answer) == (422, "invalid_tenant")


# ---- the audit log -------------------------------------------------------------------------


def test_every_change_by_an_operator_is_in_the_audit_log(server: Server, operator: Client) -> None:
    operator.put("/admin/v1/mode", json={"mode": "lookup"})
    operator.put("/admin/v1/mode", json={"mode": "sideways"})
    operator.delete(f"/admin/v1/states/{_ID}")
    me = operator.get("/admin/v1/whoami").json()["token_id"]
    found = operator.get("/admin/v1/audit").json()["entries"]
    assert [(e["actor"], e["action"], e["target"], e["outcome"]) for e in found] == [
        (me, "DELETE /admin/v1/states/{state_id}", _ID, "state_not_found"),
        (me, "PUT /admin/v1/mode", "", "invalid_request"),
        (me, "PUT /admin/v1/mode", "", "done"),
        ("open", "POST /admin/v1/tokens", "", "done"),
    ]
    assert found[2]["details"] == {"body": {"mode": "lookup"}}
    page = operator.get("/admin/v1/audit", params={"limit": 1, "after": found[1]["id"]}).json()
    assert [e["id"] for e in page["entries"]] == [found[2]["id"]]
    only = operator.get("/admin/v1/audit", params={"action": "PUT /admin/v1/mode"}).json()
    assert len(only["entries"]) == 2


def test_the_audit_log_keeps_its_newest_entries(server: Server, client: Client) -> None:
    server.stop()
    sql(
        server.data,
        "INSERT INTO audit (id, at_ms, actor, action, target, outcome, details)"
        " VALUES (1, 0, 'x', 'x', '', 'done', '{}'), (200000, 0, 'y', 'y', '', 'done', '{}')",
    )
    server.start()
    with Client(server.url) as again:
        again.put("/admin/v1/mode", json={"mode": None})
        entries = again.get("/admin/v1/audit").json()["entries"]
    assert [e["id"] for e in entries] == [200001, 200000]


@pytest.mark.parametrize("bound", [{"tenant": ""}, {"namespaces": ["*"]}])
def test_a_name_that_holds_the_separator_leads_to_no_other_tenant(
    server: Server, operator: Client, bound: dict[str, Any]
) -> None:
    """Names are held behind the tenant's name and U+001F: whoever could write that would be let in."""
    theirs = with_token(server, make(operator, "record", tenant="a")["secret"])
    theirs.record_full("ns", [1, 2], b"x")
    client = with_token(server, make(operator, *_EVERY, **bound)["secret"])
    name = "a\u001fns"
    for path in ("/v1/namespaces", "/admin/v1/tree", "/admin/v1/tree/nodes"):
        answer = client.get(path, params={"namespace": name})
        assert code(answer) == (422, "invalid_namespace"), path
    changed = client.patch("/admin/v1/namespaces", json={"namespace": name, "mode": "disabled"})
    assert code(changed) == (422, "invalid_namespace")
    listed = operator.get("/v1/namespaces").json()["namespaces"]
    assert [(row["tenant"], row["mode"]) for row in listed] == [("a", None)]
