"""Reading: lookups with leases, restores in every form, components with ranges, and the ends of leases."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import http_sf
import httpx

from tests.model.payloads import Tokens, needed_for, shortened
from tests.model.session import LONG_S, Session, agree_on, refused
from tests.model.spec import DETERMINISTIC, Found, Held, Lease, Place
from tests.support import native
from tests.support.client import lease_header, miss_header, prefix, state_header

RANGES: Final = ("whole", "head", "middle", "suffix", "beyond", "etag", "stale_etag")


def hold(session: Session, place: Place, tokens: Tokens, accept: Sequence[str]) -> None:
    """A lookup that takes a lease."""
    asked = {
        "candidates": [prefix(place[1], tokens)],
        "accept_kinds": list(accept),
        "acquire": True,
        "ttl_s": LONG_S,
    }
    answer, now = session.during(lambda: session.client(place).post("/v1/lookup", json=asked))
    assert answer.status_code == 200, answer.text
    found = session.world.find(place, tokens, accept, truncate=False)
    agree_on(found, answer.json())
    if isinstance(found, str):
        return
    lease_id = answer.json()["lease"]["lease_id"]
    session.world.leases[lease_id] = Lease(lease_id, found.state.state_id, place)
    session.world.touch(found.state, now)
    assert [(part["name"], part["bytes"]) for part in answer.json()["components"]] == [
        (name, len(data)) for name, data in found.state.payload.components.items()
    ]


def _found(
    session: Session,
    place: Place,
    tokens: Tokens,
    accept: Sequence[str],
    truncate: bool,
    have: Collection[bytes] = (),
) -> Found | str:
    """What a restore ends with; what it finds damaged on the way is quarantined."""
    world = session.world
    skipped: set[str] = set()
    while True:
        found = world.find(place, tokens, accept, truncate, skipped)
        if isinstance(found, str):
            return found
        if not world.broken(found.state, world.read_for(found) - set(have)):
            return found
        world.quarantine(found.state)
        skipped.add(found.state.state_id)


def restore(
    session: Session,
    place: Place,
    tokens: Tokens,
    accept: Sequence[str],
    *,
    truncate: bool,
    zstd: bool = False,
) -> None:
    """Everything in one round trip."""
    asked = {
        "candidates": [prefix(place[1], tokens)],
        "accept_kinds": list(accept),
        "allow_truncated": truncate,
    }
    headers = {"Accept-Encoding": "zstd"} if zstd else {}
    answer, now = session.during(
        lambda: session.client(place).post("/v1/restore", json=asked, headers=headers)
    )
    before = {s.state_id for s in session.world.of_status("quarantined")}
    found = _found(session, place, tokens, accept, truncate)
    missed = _missed(answer, found)
    _evidence(session, before)
    if missed:
        return
    assert isinstance(found, Found)
    payload = found.state.payload
    body, described = payload.body, payload.kv_descriptor
    if found.cut is not None:
        body, described = shortened(payload, found.cut)
    assert answer.content == body
    _agree_on_headers(answer, found, described)
    _served(session, answer, found, now)


def _missed(answer: httpx.Response, found: Found | str) -> bool:
    if not isinstance(found, str):
        assert answer.status_code == 200, (answer.status_code, answer.headers, found)
        return False
    assert answer.status_code == 204, answer.headers
    assert answer.content == b""
    assert [reason for reason, _ in miss_header(answer)] == [found]
    return True


def _agree_on_headers(answer: httpx.Response, found: Found, described: Any) -> None:
    state_id, facts = state_header(answer)
    whole = len(found.state.tokens)
    assert state_id == found.state.state_id
    assert facts["kind"] == found.state.kind
    assert facts["token-count"] == (found.cut or whole)
    assert facts.get("truncated-from") == (None if found.cut is None else whole)
    field = answer.headers.get("statehold-kv-descriptor")
    if described is None:
        assert field is None
    else:
        item: Any = http_sf.parse(field.encode(), tltype="item")
        assert json.loads(item[0]) == described
    parts: Any = http_sf.parse(answer.headers["statehold-components"].encode(), tltype="list")
    names = ["kv"] if found.cut is not None else list(found.state.payload.components)
    assert [str(name) for name, _ in parts] == names
    for name, facts_of in parts:
        if found.cut is None and str(name) not in found.state.by_blocks:
            data = found.state.payload.components[str(name)]
            assert facts_of["digest"] == native.digest(data)
        else:
            assert "digest" not in facts_of


def _served(session: Session, answer: httpx.Response, found: Found, now: tuple[int, int]) -> None:
    """The lease of a response ends with it; its outcome can still be reported."""
    lease_id = lease_header(answer)
    session.world.leases[lease_id] = Lease(
        lease_id, found.state.state_id, found.state.place, "sent"
    )
    session.world.touch(found.state, now)
    session.until("the response's lease ends", lambda: session.lease_has_ended(lease_id))


def restore_blocks(
    session: Session,
    place: Place,
    tokens: Tokens,
    accept: Sequence[str],
    *,
    truncate: bool,
    have: int,
) -> None:
    """In the native form, by a client that has every `have`th block of the store (0: none)."""
    known = sorted(session.world.raw)
    held = {digest: session.world.raw[digest] for digest in known[::have]} if have else {}
    asked = {
        "candidates": [prefix(place[1], tokens)],
        "accept_kinds": list(accept),
        "allow_truncated": truncate,
        "blocks": {"have": [digest.hex() for digest in held]},
    }
    answer, now = session.during(lambda: session.client(place).post("/v1/restore", json=asked))
    before = {s.state_id for s in session.world.of_status("quarantined")}
    found = _found(session, place, tokens, accept, truncate, held)
    missed = _missed(answer, found)
    _evidence(session, before)
    if missed:
        return
    assert isinstance(found, Found)
    parsed = native.parse(answer.content)
    payload = found.state.payload
    if found.cut is None:
        assert native.assemble(parsed, held) == payload.components
        sent = {native.digest(native.decode(value)) for value in parsed.blocks.values()}
        assert sent == found.state.digests() - held.keys()
    else:
        assert native.assemble(parsed, held) == {"kv": shortened(payload, found.cut)[0]}
    assert parsed.manifest["state_id"] == found.state.state_id
    _served(session, answer, found, now)


def component(
    session: Session, state: Held, name: str, wanted: str, lease: Lease | None, *, head: bool
) -> None:
    """Bytes of one component, under a lease or without one."""
    data = state.payload.components.get(name)
    client = session.client(state.place)
    path = f"/v1/states/{state.state_id}/components/{name}"
    first, last, headers = _range(state, data or b"", name, wanted)
    if lease is not None:
        headers["Statehold-Lease"] = f'"{lease.lease_id}"'
    answer, now = session.during(
        lambda: client.request("HEAD" if head else "GET", path, headers=headers)
    )
    status = _may_not_read(state, lease)
    if status is None and data is None:
        status = 404
    if status is not None:
        assert answer.status_code == status
        return
    assert data is not None
    if wanted == "etag":
        assert (answer.status_code, answer.content) == (304, b"")
        return
    if wanted == "beyond":
        assert answer.status_code == 416
        assert answer.headers["content-range"] == f"bytes */{len(data)}"
        return
    partial = (first, last) != (0, len(data))
    if head:
        assert answer.status_code == (206 if partial else 200)
        assert int(answer.headers["content-length"]) == last - first
        return
    needed = {state.owned[name][seq] for seq in needed_for(state.payload, name, first, last)}
    if session.world.broken(state, needed):
        refused(answer, 410, "state_quarantined")
        session.world.quarantine(state)
        return
    assert answer.status_code == (206 if partial else 200), answer.text
    assert answer.content == data[first:last]
    assert answer.headers["etag"] == _etag(state, name)
    session.world.touch(state, now)
    session.until("the response's lease ends", session.no_response_is_under_way)


def _range(state: Held, data: bytes, name: str, wanted: str) -> tuple[int, int, dict[str, str]]:
    size = len(data)
    if wanted == "head":
        return 0, min(10, size), {"Range": "bytes=0-9"}
    if wanted == "middle":
        return size // 3, size // 2 + 1, {"Range": f"bytes={size // 3}-{size // 2}"}
    if wanted == "suffix":
        return max(0, size - 7), size, {"Range": "bytes=-7"}
    if wanted == "beyond":
        return 0, 0, {"Range": f"bytes={size}-"}
    if wanted == "etag" and name in state.payload.components:
        return 0, size, {"If-None-Match": _etag(state, name)}
    if wanted == "stale_etag":
        return 0, size, {"Range": "bytes=0-9", "If-Range": '"other"'}
    return 0, size, {}


def _etag(state: Held, name: str) -> str:
    if name not in state.by_blocks:
        return f'"{native.digest(state.payload.components[name]).hex()}"'
    image = b"statehold:blocks:1\0"
    for raw in state.payload.blocks(name):
        image += native.digest(raw) + len(raw).to_bytes(8, "little")
    return f'"blocks-{native.digest(image).hex()}"'


def _may_not_read(state: Held, lease: Lease | None) -> int | None:
    """The status of who may not read a state (under this lease)."""
    if lease is not None:
        if lease.state_id != state.state_id:
            return 404  # as if there were no such lease, whatever has become of it
        if lease.outcome is not None:
            return 409
        if lease.expired:
            return 410
    return {"recording": 404, "quarantined": 410}.get(state.status)


def show(session: Session, state: Held) -> None:
    """A live state's facts."""
    answer = session.client(state.place).get(f"/v1/states/{state.state_id}")
    status = _may_not_read(state, None)
    if status is not None:
        assert answer.status_code == status
        return
    assert [part["name"] for part in answer.json()["components"]] == list(state.payload.components)
    assert answer.json()["kv_descriptor"] == state.payload.kv_descriptor


def explain(
    session: Session, place: Place, tokens: Tokens, accept: Sequence[str], *, truncate: bool
) -> None:
    """An explanation tells of the same state as a lookup."""
    asked = {**prefix(place[1], tokens), "accept_kinds": list(accept), "allow_truncated": truncate}
    answer = session.client(place).post("/v1/explain", json=asked)
    assert answer.status_code == 200, answer.text
    found = session.world.find(place, tokens, accept, truncate)
    body = answer.json()
    if isinstance(found, str):
        assert (body["usable_tokens"], body.get("usable")) == (0, None)
        return
    assert body["usable"]["state_id"] == found.state.state_id
    assert body["usable_tokens"] == (found.cut or len(found.state.tokens))


def heartbeat(session: Session, lease: Lease) -> None:
    """Renew a lease that has not ended."""
    answer = session.client(lease.place).post(
        f"/v1/leases/{lease.lease_id}/heartbeat", json={"ttl_s": LONG_S}
    )
    if lease.outcome is not None:
        refused(answer, 409, "lease_released")
    elif lease.expired:
        refused(answer, 410, "lease_expired")
    else:
        assert answer.status_code == 200, answer.text


def end_lease(session: Session, lease: Lease, outcome: str) -> None:
    """Release with an outcome: restored, unused, or the class of a failure."""
    world = session.world
    client = session.client(lease.place)
    if outcome in ("restored", "unused"):
        answer = client.release(lease.lease_id, outcome)
        word = outcome
    else:
        answer = client.fail(lease.lease_id, outcome)
        word = f"failed:{outcome}"
    repeated = lease.outcome not in (None, "sent")
    if repeated and lease.outcome != word:
        refused(answer, 409, "lease_released")
        return
    assert answer.status_code == 200, answer.text
    state = world.states.get(lease.state_id)
    if not repeated and outcome in DETERMINISTIC and state is not None and state.status == "live":
        world.quarantine(state, lease.lease_id)
        shown = session.operator.get(f"/admin/v1/states/{state.state_id}").json()["evidence"]
        assert (shown["failure_class"], shown["reported_by"]) == (outcome, "client")
        assert shown["lease_id"] == lease.lease_id
    expired = lease.outcome is None and lease.expired
    lease.outcome = word
    body = answer.json()
    assert (body["state_id"], body["repeated"]) == (lease.state_id, repeated)
    still = state is not None and state.status == "quarantined" and state.taken_by == lease.lease_id
    assert (body["quarantined"], body["lease_expired"]) == (still, expired)


def _evidence(session: Session, before: Iterable[str]) -> None:
    """Whatever a restore put aside says which block it was."""
    world = session.world
    for state in world.of_status("quarantined"):
        if state.state_id in before:
            continue
        shown = session.operator.get(f"/admin/v1/states/{state.state_id}").json()["evidence"]
        assert shown is not None, "it was not put aside"
        assert (shown["failure_class"], shown["reported_by"]) == ("block_damaged", "service")
        bad = state.owned[shown["component"]][shown["first_bad_block"]]
        assert bad in world.damaged
        assert shown["expected_digest"] == bad.hex()
