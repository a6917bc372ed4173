"""What operators do, what time does, and what happens to a server and its files."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from typing import Any

from storage.clock import boot_ms
from tests.model.payloads import without
from tests.model.session import Session, refused
from tests.model.spec import Held, Lease, Place, Rules
from tests.support import jobs
from tests.support.client import Client, code
from tests.support.damage import flip_block, sql


def quarantine(session: Session, state: Held, *, by_tenant: bool) -> None:
    """Take a state out of service by hand."""
    answer = _admin(session, state, by_tenant).post(
        f"/admin/v1/states/{state.state_id}/quarantine", json={"reason": "test"}
    )
    if state.status != "live":
        refused(answer, 409, "state_not_live")
        return
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["evidence"]["reported_by"]) == (
        "quarantined",
        "operator",
    )
    session.world.quarantine(state)


def release(session: Session, state: Held, *, by_tenant: bool) -> None:
    """Verify a quarantined state and put it back."""
    world = session.world
    scopes = _release_scopes(session, state)
    with session.room(*scopes):
        answer = _admin(session, state, by_tenant).post(
            f"/admin/v1/states/{state.state_id}/release"
        )
        if state.status != "quarantined":
            refused(answer, 409, "state_not_quarantined")
        elif world.broken(state):
            refused(answer, 409, "still_failing")
        elif not state.attached or world.held(state.place, state.tokens, state.kind) is not None:
            refused(answer, 409, "newer_recording")
        elif answer.status_code == 503 and scopes:
            refused(answer, 503, "at_capacity")
            session.refused_for_want_of_room()
        else:
            assert answer.status_code == 200, answer.text
            assert (answer.json()["status"], answer.json()["evidence"]) == ("live", None)
            session.settle()
            assert world.over_entries(state) is None
            state.status = "live"


def _release_scopes(session: Session, state: Held) -> tuple[Place | str, ...]:
    if session.world.over_entries(state) is None:
        return ()
    return ("store", state.place)


def purge(session: Session, state: Held, *, by_tenant: bool) -> None:
    """Remove a quarantined state for good."""
    answer = _admin(session, state, by_tenant).delete(f"/admin/v1/states/{state.state_id}")
    if state.status != "quarantined":
        refused(answer, 409, "state_not_quarantined")
    elif session.world.leased(state):
        refused(answer, 409, "state_leased")
    else:
        assert answer.status_code == 204, answer.text
        session.world.drop(state, tombstone=True)


def evict_ids(
    session: Session, states: Sequence[Held], unknown: Sequence[str], *, dry_run: bool
) -> None:
    """Evict by name: all of them if all are live, but for the leased and the pinned."""
    ids = [*(s.state_id for s in states), *unknown]
    asked = {"state_ids": ids, "dry_run": dry_run}
    before = session.owned_bytes()
    answer = session.operator.post("/admin/v1/evictions", json=asked)
    freed = None if dry_run else before - session.owned_bytes()
    if unknown or any(s.status != "live" for s in states):
        refused(answer, 404, "state_not_found")
        return
    assert answer.status_code == 200, answer.text
    _evicted(session, answer.json(), states, freed)


def evict(
    session: Session,
    who: str | None,
    scope: Place | str,
    *,
    target_part: int | None,
    untouched_for_s: int | None,
) -> None:
    """Evict by choice, after a dry run that says what will go.

    Args:
        who: the caller's tenant; None: an operator.
        scope: a namespace, a tenant (of ("tenant", name)) or the store; of a caller with a tenant its own.
        target_part: percents of what is held there that may stay.
    """
    world = session.world
    asked, within = _asked_to_evict(who, scope)
    if isinstance(within, tuple) and within[0] != "tenant" and within not in world.rules:
        refused(
            session.caller(who).post("/admin/v1/evictions", json=asked), 404, "namespace_not_found"
        )
        return
    if target_part is not None:
        asked["target_bytes"] = session.held_bytes(within) * target_part // 100
    if untouched_for_s is not None:
        asked["untouched_for_s"] = untouched_for_s
    if len(asked) == 0:
        asked["untouched_for_s"] = 0
    states = [s for s in world.of_status("live") if session.within(within, s)]
    # Whoever is bound to a tenant is told what that tenant holds less.
    held = partial(session.held_bytes, "store" if who is None else ("tenant", who))
    before = held()
    said = session.caller(who).post("/admin/v1/evictions", json={**asked, "dry_run": True})
    assert said.status_code == 200, said.text
    assert held() == before
    answer = session.caller(who).post("/admin/v1/evictions", json=asked)
    assert answer.status_code == 200, answer.text
    freed = before - held()
    assert {**answer.json(), "dry_run": True} == said.json()
    if untouched_for_s:
        assert (answer.json()["evicted_count"], answer.json()["freed_bytes"]) == (0, 0)
    elif target_part is None:
        _evicted(session, answer.json(), states, freed)
    else:
        _evicted_to(session, answer.json(), within, asked["target_bytes"], freed)


def _asked_to_evict(who: str | None, scope: Place | str) -> tuple[dict[str, Any], Place | str]:
    """What to ask, and whose states that means."""
    if isinstance(scope, tuple) and scope[0] != "tenant":
        asked: dict[str, Any] = {"namespace": scope[1]}
        if who is None:
            asked["tenant"] = scope[0]
        return asked, scope if who is None else (who, scope[1])
    if who is not None:
        return {"tenant": who}, ("tenant", who)
    return ({"tenant": scope[1]} if isinstance(scope, tuple) else {}), scope


def _evicted(
    session: Session, body: dict[str, Any], states: Sequence[Held], freed: int | None
) -> None:
    """Everything that was chosen went and so many bytes with it, or would go (None), but for what is kept."""
    world = session.world
    leased = {s.state_id for s in states if world.leased(s)}
    pinned = {s.state_id for s in states if s.pinned} - leased
    assert set(body["kept_leased"]) == leased
    assert set(body["kept_pinned"]) == pinned
    assert set(body["evicted"]) == {s.state_id for s in states} - leased - pinned
    assert body["evicted_count"] == len(body["evicted"])
    if freed is not None:
        assert body["freed_bytes"] == freed
        for state_id in body["evicted"]:
            world.drop(world.states[state_id], tombstone=True)


def _evicted_to(
    session: Session, body: dict[str, Any], scope: Place | str, target_bytes: int, freed: int
) -> None:
    """The least recently used went, until no more was held than the target."""
    world = session.world
    assert body["freed_bytes"] == freed
    there = {s.state_id for s in world.of_status("live", "quarantined")}
    with session.room(scope, by_need=False):
        session.settle()
    assert set(body["evicted"]) == there - world.states.keys()
    left = [s for s in world.of_status("live", "quarantined") if session.within(scope, s)]
    assert session.held_bytes(scope) <= target_bytes or all(world.kept(s) for s in left)


def pin(session: Session, state: Held, *, ttl_s: int | None, by_tenant: bool) -> None:
    """Keep a state whatever is evicted."""
    world = session.world
    answer = _admin(session, state, by_tenant).put(
        f"/admin/v1/states/{state.state_id}/pin", json={"ttl_s": ttl_s, "reason": "test"}
    )
    others = sum(s.logical_bytes for s in world.pinned() if s is not state)
    if state.status != "live" or not state.attached:
        refused(answer, 409, "state_not_live")
    elif others + state.logical_bytes > min(
        session.budget_bytes,
        session.budget_bytes if world.pin_budget_bytes is None else world.pin_budget_bytes,
    ):
        refused(answer, 409, "pin_budget_exceeded")
    else:
        assert answer.status_code == 200, answer.text
        assert answer.json()["logical_bytes"] == state.logical_bytes
        state.pinned = True


def unpin(session: Session, state: Held, *, by_tenant: bool) -> None:
    """Let it go, like others."""
    answer = _admin(session, state, by_tenant).delete(f"/admin/v1/states/{state.state_id}/pin")
    if not state.pinned:
        refused(answer, 404, "pin_not_found")
        return
    assert answer.status_code == 204, answer.text
    state.pinned = False


def expire_pin(session: Session, state: Held) -> None:
    """A pin's time runs out, without anybody's waiting for it."""
    sql(
        session.data,
        "UPDATE pin SET expires_at_ms = ? WHERE state = (SELECT id FROM state WHERE state_id = ?)",
        session.now() - 1,
        state.state_id,
    )
    state.pinned = False


def set_mode(session: Session, mode: str | None) -> None:
    """The store's mode; None goes back to the configured one."""
    answer = session.operator.put("/admin/v1/mode", json={"mode": mode})
    assert answer.status_code == 200, answer.text
    session.world.mode = mode or "lookup_record"
    assert answer.json() == {"mode": session.world.mode}


def set_rules(session: Session, place: Place, changes: dict[str, Any], *, by_tenant: bool) -> None:
    """Mode and limits of a namespace."""
    asked = {"namespace": place[1], **changes}
    if by_tenant:
        client = session.client(place)
    else:
        client = session.operator
        asked["tenant"] = place[0]
    answer = client.patch("/admin/v1/namespaces", json=asked)
    rules = session.world.rules.get(place)
    if rules is None:
        refused(answer, 404, "namespace_not_found")
        return
    assert answer.status_code == 200, answer.text
    session.world.rules[place] = Rules(**{**vars(rules), **changes})


def verify(session: Session) -> None:
    """The job that reads every block puts exactly the damaged states aside."""
    jobs.result(session.operator, "verify")
    for state in session.world.of_status("live"):
        if session.world.broken(state):
            session.world.quarantine(state)


def verify_one(session: Session, state: Held, *, by_tenant: bool) -> None:
    """One state is read whole; a live one that fails goes into quarantine, no other leaves it."""
    answer = _admin(session, state, by_tenant).post(f"/admin/v1/states/{state.state_id}/verify")
    if state.status == "recording":
        refused(answer, 409, "state_not_live")
        return
    assert answer.status_code == 200, answer.text
    broken = session.world.broken(state)
    assert answer.json()["intact"] is not broken
    if broken and state.status == "live":
        session.world.quarantine(state)
    evidence = answer.json()["evidence"]
    if state.status == "live":
        assert evidence is None
    elif broken:
        bad = state.owned[evidence["component"]][evidence["first_bad_block"]]
        assert bad in session.world.damaged
        assert (evidence["failure_class"], evidence["expected_digest"]) == (
            "block_damaged",
            bad.hex(),
        )


def raw(session: Session, state: Held, name: str) -> None:
    """For forensics a component comes as far as it can be read: zeros for what cannot."""
    answer = session.operator.get(f"/admin/v1/states/{state.state_id}/components/{name}/raw")
    if state.status == "recording":
        refused(answer, 409, "state_not_live")
        return
    if name not in state.payload.components:
        refused(answer, 404, "component_not_found")
        return
    assert answer.status_code == 200, answer.text
    damaged = sorted(
        seq for seq, digest in state.owned[name].items() if digest in session.world.damaged
    )
    assert answer.content == without(state.payload, name, damaged)
    listed = answer.headers.get("statehold-damaged-blocks")
    assert listed == (",".join(map(str, damaged)) if damaged else None)
    assert answer.headers["statehold-manifest"] == "intact"
    if damaged and state.status == "live":
        session.world.quarantine(state)


def set_limits(session: Session, changes: dict[str, int | None]) -> None:
    """Limits of the whole store; None goes back to what it was started with."""
    answer = session.operator.patch("/admin/v1/limits", json=changes)
    assert answer.status_code == 200, answer.text
    world = session.world
    if "max_entries" in changes:
        world.max_entries = changes["max_entries"] or world.configured_entries
    if "min_tokens" in changes:
        world.min_tokens = changes["min_tokens"] or 1
    if "pin_budget_bytes" in changes:
        world.pin_budget_bytes = changes["pin_budget_bytes"]
    shown = answer.json()["limits"]
    assert (shown["max_entries"]["value"], shown["min_tokens"]["value"]) == (
        world.max_entries,
        world.min_tokens,
    )


def reclaim(session: Session) -> None:
    """The job that lets go of what nobody owns, to the end."""
    jobs.result(session.operator, "reclaim")
    session.settle()
    for state in session.world.of_status("live"):
        assert not state.may_go or session.world.kept(state), "it should have gone"
    session.nothing_is_left_over()


def expire_lease(session: Session, lease: Lease) -> None:
    """Its time runs out, without anybody's waiting for it."""
    sql(
        session.data,
        "UPDATE lease SET expires_boot_ms = ? WHERE lease_id = ?",
        boot_ms() - 1,
        lease.lease_id,
    )
    lease.expired = True


def expire_recording(session: Session, state: Held) -> None:
    """Nothing has come for a recording for too long."""
    sql(
        session.data,
        "UPDATE recording SET deadline_boot_ms = ? WHERE state = "
        "(SELECT id FROM state WHERE state_id = ?)",
        boot_ms() - 1,
        state.state_id,
    )
    session.world.drop(state, tombstone=False)
    reclaim(session)


def restart(session: Session, *, killed: bool) -> None:
    """Stop or kill the server and start it again."""
    session.end(killed=killed)
    session.begin()


def kill_while_committing(session: Session, state: Held) -> None:
    """A commit that nobody waited for is whole or gone after a SIGKILL."""
    world = session.world
    client = session.client(state.place)
    answer, now = session.during(lambda: client.commit(state.state_id, 0))
    assert answer.status_code == 202, answer.text
    session.server.kill()
    live = session.rows()[state.state_id].status == "live"
    with session.room(*_release_scopes(session, state)):
        session.settle(world.held(state.place, state.tokens, state.kind) if live else None)
    if live:
        world.publish(state, now)
    session.end(killed=True)
    session.begin()


def flip(session: Session, digest: bytes, at: int) -> None:
    """One bit of a stored block turns over, while the server does nothing."""
    os.kill(session.server.pid, signal.SIGSTOP)
    try:
        flip_block(session.data, session.world.raw[digest], at=at)
    finally:
        os.kill(session.server.pid, signal.SIGCONT)
    session.world.damaged.add(digest)


def probe(session: Session, state: Held, lease: Lease | None) -> None:
    """To a stranger, what a tenant has is answered like what nobody has."""
    stranger = session.stranger(state.place)
    nobody = "00000000-0000-7000-8000-000000000000"
    for mine, nothing in zip(
        _asked(stranger, state.state_id, lease.lease_id if lease else nobody),
        _asked(stranger, nobody, nobody),
        strict=True,
    ):
        assert code(mine) == code(nothing)
        assert mine.status_code == 404
        assert _without_id(mine.json()) == _without_id(nothing.json())


def _asked(client: Client, state_id: str, lease_id: str) -> list[Any]:
    return [
        client.get(f"/v1/states/{state_id}"),
        client.get(f"/v1/states/{state_id}/components/full"),
        client.post(f"/v1/states/{state_id}/blocks", json={}),
        client.get(f"/v1/records/{state_id}"),
        client.delete(f"/v1/records/{state_id}"),
        client.commit(state_id),
        client.upload(state_id, "full", b"x"),
        client.post(f"/v1/records/{state_id}/components/full/need", json={"digests": []}),
        client.get(f"/admin/v1/states/{state_id}"),
        client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "x"}),
        client.post(f"/admin/v1/states/{state_id}/release"),
        client.delete(f"/admin/v1/states/{state_id}"),
        client.put(f"/admin/v1/states/{state_id}/pin", json={"ttl_s": None, "reason": "x"}),
        client.delete(f"/admin/v1/states/{state_id}/pin"),
        client.post("/admin/v1/evictions", json={"state_ids": [state_id]}),
        client.post(f"/admin/v1/states/{state_id}/verify"),
        client.get(f"/admin/v1/states/{state_id}/components/full/raw"),
        client.post(f"/v1/leases/{lease_id}/heartbeat", json={}),
        client.fail(lease_id, "integrity"),
    ]


def _without_id(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "request_id"}


def _admin(session: Session, state: Held, by_tenant: bool) -> Client:
    return session.client(state.place) if by_tenant else session.operator
