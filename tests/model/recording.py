"""Recording: admission, uploads in both forms and their failures, commit, abort, and all in one call."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from collections.abc import Iterator
from typing import Any, Final

import httpx

from tests.model.payloads import Payload, Tokens, make
from tests.model.session import Scope, Session, refused
from tests.model.spec import Held, Place
from tests.support import native
from tests.support.client import code, prefix

UPLOAD_FAULTS: Final = ("none", "digest", "good_digest", "short", "chunked_short", "long", "broken")
BLOCK_FAULTS: Final = ("none", "flipped", "missing", "unasked")
_REFUSALS: Final = {
    "disabled": (403, "disabled"),
    "too_short": (422, "too_short"),
    "in_flight": (409, "in_flight"),
}


def admit(
    session: Session, place: Place, tokens: Tokens, shape: str, flavour: int, replace: bool
) -> Held | None:
    """Ask to record; the recording, if it was admitted."""
    payload = make(shape, tokens, flavour)
    sizes = {name: len(data) for name, data in payload.components.items()}
    client = session.client(place)
    with session.room(*session.byte_scopes(place)):
        answer, now = session.during(
            lambda: client.admit(
                place[1], tokens, payload.kind, sizes, replace=replace, **payload.announced()
            )
        )
        state = _admitted(session, answer, now, place, tokens, payload, replace)
        session.settle()
        return state


def _admitted(
    session: Session,
    answer: httpx.Response,
    now: tuple[int, int],
    place: Place,
    tokens: Tokens,
    payload: Payload,
    replace: bool,
) -> Held | None:
    world = session.world
    expected = world.admission(place, tokens, payload, replace)
    if expected == "already_recorded":
        held = world.held(place, tokens, payload.kind)
        assert held is not None
        assert answer.status_code == 200, answer.text
        assert answer.json()["state_id"] == held.state_id
        world.touch(held, now)
        return None
    if expected in _REFUSALS:
        refused(answer, *_REFUSALS[expected])
        return None
    if answer.status_code == 413:
        assert _may_be_oversize(session, place, len(payload.body))
        refused(answer, 413, "oversize")
        return None
    if answer.status_code == 503 and session.byte_scopes(place):
        refused(answer, 503, "at_capacity")
        session.refused_for_want_of_room()
        return None
    assert answer.status_code == 201, answer.text
    return world.admit(answer.json()["state_id"], place, tokens, payload, replace)


def _may_be_oversize(session: Session, place: Place, size: int) -> bool:
    """A state is charged some kilobytes beyond its bytes."""
    rules = session.world.rules.get(place)
    limit = None if rules is None else rules.max_stored_bytes
    return limit is not None and size + 16_384 > limit


def upload(session: Session, state: Held, name: str, fault: str) -> None:
    """Send a component in wire order, whole or not."""
    data = state.payload.components[name]
    client = session.client(state.place)
    if fault == "broken" and not session.byte_scopes(state.place):
        _break_off(session, state, name)
        return
    body: Any = data
    headers = {}
    if fault == "digest":
        headers["Content-Digest"] = _digest_field(data + b"x")
    elif fault == "good_digest":
        headers["Content-Digest"] = _digest_field(data)
    elif fault == "short":
        body = data[:-1]
    elif fault == "chunked_short":
        body = _in_chunks(data[: len(data) // 2])
    elif fault == "long":
        body = _in_chunks(data + b"x")
    with session.room(*session.byte_scopes(state.place)):
        answer = client.upload(state.state_id, name, body, **headers)
        if name in state.whole:
            if fault == "short":
                refused(answer, 400, "length_mismatch")
            else:
                refused(answer, 409, "component_complete")
            return
        if fault == "short":
            refused(answer, 400, "length_mismatch")
            return
        if answer.status_code == 503 and session.byte_scopes(state.place):
            refused(answer, 503, "at_capacity")
            session.world.own(state, name, ())
            session.refused_for_want_of_room()
            return
        if fault in ("digest", "chunked_short", "long"):
            word = "digest_mismatch" if fault == "digest" else "length_mismatch"
            refused(answer, 400, word)
            session.settle()
            session.world.own(state, name, ())
            return
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "name": name,
            "bytes": len(data),
            "digest": native.digest(data).hex(),
        }
        session.settle()
        session.world.arrive(state, name, sent=range(len(state.payload.blocks(name))))


def ask(session: Session, state: Held, name: str) -> None:
    """Say which blocks a component has; blocks that the tenant has shown are the recording's at once."""
    world = session.world
    blocks = state.payload.blocks(name)
    digests = [native.digest(block) for block in blocks]
    path = f"/v1/records/{state.state_id}/components/{name}/need"
    with session.room(*session.byte_scopes(state.place)):
        answer = session.client(state.place).post(
            path, json={"digests": [d.hex() for d in digests]}
        )
        if name in state.whole:
            refused(answer, 409, "component_complete")
            return
        # What an earlier attempt had is given up first, and does not count as shown.
        world.own(state, name, ())
        if answer.status_code == 503 and session.byte_scopes(state.place):
            refused(answer, 503, "at_capacity")
            session.refused_for_want_of_room()
            return
        assert answer.status_code == 200, answer.text
        session.settle()
    good = world.shown(state.place[0]) - world.damaged
    held = [seq for seq, digest in enumerate(digests) if digest in good]
    assert answer.json()["need"] == [seq for seq in range(len(blocks)) if seq not in held]
    if len(held) == len(blocks):
        assert answer.json()["blocks_digest"] is not None
        world.arrive(state, name, sent=(), by_blocks=True)
    else:
        assert answer.json()["blocks_digest"] is None
        world.own(state, name, held)


def send(session: Session, state: Held, name: str, fault: str) -> None:
    """Send the blocks that a component lacks, or not quite those."""
    world = session.world
    blocks = state.payload.blocks(name)
    filled = set(state.owned.get(name, {}))
    lacking = [seq for seq in range(len(blocks)) if seq not in filled]
    values = {seq: native.value(blocks[seq]) for seq in lacking}
    if fault == "flipped":
        values[lacking[-1]] = values[lacking[-1]][:-1] + bytes([values[lacking[-1]][-1] ^ 1])
    elif fault == "missing":
        del values[lacking[-1]]
    elif fault == "unasked" and filled:
        values[min(filled)] = native.value(blocks[min(filled)])
    wrong = {"flipped": "invalid_blocks", "missing": "blocks_missing"}.get(fault)
    if fault == "unasked" and filled:
        wrong = "invalid_blocks"
    with session.room(*session.byte_scopes(state.place)):
        answer = session.client(state.place).put(
            f"/v1/records/{state.state_id}/components/{name}/blocks",
            content=native.stream(values),
            headers={"Content-Type": native.MEDIA_TYPE},
        )
        if answer.status_code == 503 and session.byte_scopes(state.place):
            refused(answer, 503, "at_capacity")
            world.own(state, name, ())
            session.refused_for_want_of_room()
            return
        session.settle()
    if wrong is not None:
        refused(answer, 422, wrong)
        world.own(state, name, ())
        return
    assert answer.status_code == 200, answer.text
    world.arrive(state, name, sent=lacking, by_blocks=True)


def commit(session: Session, state: Held, *, wait: bool) -> None:
    """Make a recording live, if everything is there."""
    world = session.world
    client = session.client(state.place)
    scopes = _commit_scopes(session, state)
    with session.room(*scopes):
        answer, now = session.during(lambda: _commit(session, state, wait=wait))
        if state.status != "recording":
            assert answer.status_code == 200
            assert answer.json()["status"] == state.status
            return
        if state.whole != state.payload.components.keys():
            refused(answer, 409, "components_missing")
            return
        if not state.replace and world.held(state.place, state.tokens, state.kind) is not None:
            if wait:
                refused(answer, 409, "already_recorded")
            path = f"/v1/records/{state.state_id}"
            session.until("it is dropped", lambda: client.get(path).status_code == 404)
            session.settle()
            world.drop(state, tombstone=False)
            return
        if (wait and answer.status_code == 503) or answer.json().get("status") == "recording":
            if wait:
                refused(answer, 503, "at_capacity")
            session.refused_for_want_of_room()
            return
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == "live"
        session.settle(world.held(state.place, state.tokens, state.kind))
        assert world.over_entries(state) is None
        world.publish(state, now)


def _commit(session: Session, state: Held, *, wait: bool) -> httpx.Response:
    """The answer, or where it stands at last for who does not wait."""
    client = session.client(state.place)
    answer = client.commit(state.state_id, 30 if wait else 0)
    if answer.status_code == 202:
        path = f"/v1/records/{state.state_id}"
        session.until(
            "the commit ends", lambda: client.get(path).json().get("status") != "committing"
        )
        answer = client.get(path)
    return answer


def _commit_scopes(session: Session, state: Held) -> tuple[Scope, ...]:
    over = session.world.over_entries(state) if state.status == "recording" else None
    if over is None:
        return ()
    rules = session.world.rules[state.place]
    return ("store", *((state.place,) if rules.max_entries is not None else ()))


def abort(session: Session, state: Held) -> None:
    """Give a recording up."""
    answer = session.client(state.place).delete(f"/v1/records/{state.state_id}")
    if state.status != "recording":
        refused(answer, 409, "record_committed")
        return
    assert answer.status_code == 204, answer.text
    session.world.drop(state, tombstone=False)


def record(
    session: Session,
    place: Place,
    tokens: Tokens,
    shape: str,
    flavour: int,
    *,
    replace: bool,
    one_call: bool,
) -> None:
    """The whole way, or as far as it goes."""
    if not one_call:
        state = admit(session, place, tokens, shape, flavour, replace)
        if state is None:
            return
        for name in state.payload.components:
            upload(session, state, name, "none")
        if state.whole == state.payload.components.keys():
            commit(session, state, wait=True)
        return
    _record_at_once(session, place, tokens, shape, flavour, replace)


def _record_at_once(
    session: Session, place: Place, tokens: Tokens, shape: str, flavour: int, replace: bool
) -> None:
    world, payload = session.world, make(shape, tokens, flavour)
    meta = {
        **prefix(place[1], tokens),
        "kind": payload.kind,
        "components": [{"name": n, "bytes": len(d)} for n, d in payload.components.items()],
        "replace": replace,
        **payload.announced(),
    }
    files: dict[str, Any] = {"meta": (None, json.dumps(meta), "application/json")}
    files |= {name: (name, data) for name, data in payload.components.items()}
    scopes: tuple[Scope, ...] = session.byte_scopes(place)
    limited = world.rules.get(place)
    if limited is not None and limited.max_entries is not None:
        scopes = (*scopes, place)
    if len(world.entries()) >= world.max_entries:
        scopes = (*scopes, "store")
    with session.room(*scopes):
        answer, now = session.during(lambda: session.client(place).post("/v1/states", files=files))
        if answer.status_code == 503 and scopes:
            refused(answer, 503, "at_capacity")
            session.refused_for_want_of_room()
            return
        state = _admitted(session, answer, now, place, tokens, payload, replace)
        if state is None:
            return
        for name in payload.components:
            world.arrive(state, name, sent=range(len(payload.blocks(name))))
        session.settle(world.held(place, tokens, payload.kind))
        assert world.over_entries(state) is None
        world.publish(state, now)


def status(session: Session, state: Held) -> None:
    """Where a recording stands."""
    answer = session.client(state.place).get(f"/v1/records/{state.state_id}")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["status"], body["namespace"]) == (state.status, state.place[1])
    for part in body["components"]:
        name = part["name"]
        arrived = part.get("digest") or part.get("blocks_digest")
        assert (arrived is not None) is (name in state.whole)
        if name in state.whole and name not in state.by_blocks:
            assert part["digest"] == native.digest(state.payload.components[name]).hex()


def of_nothing(session: Session, state_id: str, place: Place) -> None:
    """What can be asked of a recording is refused alike for one that has gone."""
    client = session.client(place)
    path = f"/v1/records/{state_id}"
    for answer in (
        client.get(path),
        client.delete(path),
        client.commit(state_id),
        client.upload(state_id, "full", b"x"),
    ):
        assert code(answer) == (404, "record_not_found")


def _break_off(session: Session, state: Held, name: str) -> None:
    """Half of the body, then nothing: what came is given up."""
    data = state.payload.components[name]
    client = session.client(state.place)
    head = (
        f"PUT /v1/records/{state.state_id}/components/{name} HTTP/1.1\r\nHost: test\r\n"
        f"Authorization: {client.headers['Authorization']}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    whole = name in state.whole
    with (
        session.room(*session.byte_scopes(state.place)),
        socket.create_connection(("127.0.0.1", session.server.port)) as connection,
    ):
        connection.sendall(head.encode() + data[: len(data) // 2])
        if whole:
            assert connection.recv(12) == b"HTTP/1.1 409"
            return
        session.until("the upload has begun", lambda: session.sending() == 1)
        connection.close()
        session.until("the upload is given up", lambda: session.sending() == 0)
        session.settle()
        session.world.own(state, name, ())


def _digest_field(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def _in_chunks(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 10_000):
        yield data[at : at + 10_000]
