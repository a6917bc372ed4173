"""The state machine that drives a real server beside the model: Hypothesis draws the steps.

After each step everything that can be seen is compared (`Session.agree`). What a step does is in
`recording`, `reading` and `operating`; here is only what there is to choose from.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model import operating, reading, recording
from tests.model.payloads import FLAVOURS, SHAPES, Tokens, make, tokens_of
from tests.model.session import PLACES, TENANTS, Session
from tests.model.spec import DEFAULT_KINDS, Held, Lease, Place
from tests.support import native
from tests.support.server import Server

T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """A query for the nth prefix that a place has or had, and on beyond it."""

    n: int
    more: Tokens


Query = Known | Tokens

# Few of everything, so that steps meet; conversations also without their last tokens.
_PATH: Final = st.sampled_from(((0,), (0, 0), (0, 1), (0, 0, 1), (0, 1, 0), (1, 0)))
_TOKENS: Final = st.builds(tokens_of, _PATH, st.sampled_from((0, 0, 0, 17)))
_PLACE: Final = st.sampled_from(PLACES)
_ACCEPT: Final = st.sampled_from(
    (
        DEFAULT_KINDS,
        ("kv", "kv_recurrent", "full_state"),
        ("kv",),
        ("recurrent_only", "kv"),
        ("full_state",),
        ("kv_recurrent", "recurrent_only"),
    )
)
_SHAPE: Final = st.sampled_from(SHAPES)
_FLAVOUR: Final = st.integers(0, FLAVOURS - 1)
# Which of the things that there are at this moment.
_PICK: Final = st.integers(0, 11)
# A query: one of the prefixes that are known, and how it goes on; or any.
_QUERY: Final = st.one_of(st.builds(Known, _PICK, st.sampled_from(((), (7, 8, 9)))), _TOKENS)
_RULES: Final = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from((None, "record", "lookup", "lookup_record", "disabled")),
        "min_tokens": st.sampled_from((None, 1, 48, 90)),
        "max_entries": st.sampled_from((None, 1, 2, 3)),
        "max_stored_bytes": st.sampled_from((None, 60_000, 150_000)),
    },
).filter(bool)
_LIMITS: Final = st.fixed_dictionaries(
    {},
    optional={
        "max_entries": st.sampled_from((None, 3, 1000)),
        "min_tokens": st.sampled_from((None, 48, 90)),
        "pin_budget_bytes": st.sampled_from((None, 0, 80_000)),
    },
).filter(bool)
_LIKE: Final = {
    "full_state": "windows",
    "kv_recurrent": "hybrid",
    "kv": "dense",
    "recurrent_only": "diagnostic",
}
_FAILURES: Final = ("integrity", "unsupported", "timeout", "internal")


class CacheMachine(RuleBasedStateMachine):
    """One example: a folder of its own, and a life in it."""

    steps: ClassVar[int] = 0
    examples: ClassVar[int] = 0
    server: ClassVar[Callable[..., Server]] = Server
    session: Session

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="model-"))
        self._idle = False

    @initialize(
        max_entries=st.sampled_from((1000, 1000, 4)),
        tight=st.sampled_from((False, False, True)),
        thorough=st.sampled_from((False, False, True)),
        before=st.lists(st.tuples(_PLACE, _TOKENS, _SHAPE, _FLAVOUR), min_size=1, max_size=4),
    )
    def start(
        self,
        max_entries: int,
        tight: bool,
        thorough: bool,
        before: list[tuple[Place, Tokens, str, int]],
    ) -> None:
        self.session = Session(
            self._folder / "data",
            max_entries=max_entries,
            tight=tight,
            thorough=thorough,
            server=type(self).server,
        )
        for place, tokens, shape, flavour in before:
            recording.record(
                self.session, place, tokens, shape, flavour, replace=False, one_call=True
            )

    def teardown(self) -> None:
        type(self).examples += 1
        if hasattr(self, "session"):
            type(self).steps += self.session.steps
            self.session.close()
        shutil.rmtree(self._folder)

    @invariant()
    def service_and_model_agree(self) -> None:
        if self._idle:
            self._idle = False
        else:
            self.session.agree()

    # ---- what there is to choose from ----------------------------------------------------------

    def _states(self, *statuses: str) -> list[Held]:
        """Newest first; without a status of any. Those that may go by themselves are left alone."""
        found = self.session.world.of_status(*(statuses or ("live", "quarantined", "recording")))
        return [s for s in reversed(found) if not s.may_go or self.session.world.leased(s)]

    def _tokens(self, place: Place, query: Query) -> Tokens:
        if not isinstance(query, Known):
            return query
        known = self.session.known(place) or [tokens_of((0,), 0)]
        return (*pick(known, query.n), *query.more)

    def _leases(self) -> list[Lease]:
        return list(self.session.world.leases.values())[:-12:-1]

    def _one(self, choices: Sequence[T], n: int) -> T | None:
        """One of what there is; where there is nothing the step does nothing.

        Rules have no preconditions: what may be drawn would else depend on what a server did, and when, and
        an example could not be run again.
        """
        self._idle = not choices
        return pick(choices, n) if choices else None

    # ---- recording -------------------------------------------------------------------------------

    @rule(
        place=_PLACE,
        tokens=_TOKENS,
        shape=_SHAPE,
        flavour=_FLAVOUR,
        replace=st.booleans(),
        one_call=st.booleans(),
    )
    def record(
        self,
        place: Place,
        tokens: Tokens,
        shape: str,
        flavour: int,
        replace: bool,
        one_call: bool,
    ) -> None:
        recording.record(
            self.session, place, tokens, shape, flavour, replace=replace, one_call=one_call
        )

    @rule(n=_PICK, shape=_SHAPE, flavour=_FLAVOUR, replace=st.booleans(), begin=st.booleans())
    def record_again(self, n: int, shape: str, flavour: int, replace: bool, begin: bool) -> None:
        """A prefix that is held, whole or as far as its admission."""
        state = self._one(self._states("live", "quarantined"), n)
        if state is None:
            return
        if make(shape, state.tokens, flavour).kind != state.kind and flavour:
            shape = _LIKE[state.kind]
        if begin:
            recording.admit(self.session, state.place, state.tokens, shape, flavour, replace)
        else:
            recording.record(
                self.session,
                state.place,
                state.tokens,
                shape,
                flavour,
                replace=replace,
                one_call=False,
            )

    @rule(place=_PLACE, tokens=_TOKENS, shape=_SHAPE, flavour=_FLAVOUR, replace=st.booleans())
    def admit(self, place: Place, tokens: Tokens, shape: str, flavour: int, replace: bool) -> None:
        recording.admit(self.session, place, tokens, shape, flavour, replace)

    @rule(n=_PICK, part=_PICK, fault=st.sampled_from(("none", *recording.UPLOAD_FAULTS)))
    def upload(self, n: int, part: int, fault: str) -> None:
        state = self._one(self._states("recording"), n)
        if state is None:
            return
        name = pick(list(state.payload.components), part)
        digests = {native.digest(block) for block in state.payload.blocks(name)}
        if not self.session.world.damaged.isdisjoint(digests):
            fault = "none"  # what a broken upload had mended before it broke off cannot be told
        recording.upload(self.session, state, name, fault)

    @rule(
        n=_PICK,
        part=_PICK,
        fault=st.sampled_from(("none", "none", *recording.BLOCK_FAULTS)),
        stop_short=st.booleans(),
    )
    def upload_blocks(self, n: int, part: int, fault: str, stop_short: bool) -> None:
        state = self._one(self._states("recording"), n)
        if state is None:
            return
        name = pick(list(state.payload.components), part)
        recording.ask(self.session, state, name)
        if name in state.whole or stop_short:
            return
        if not self.session.world.damaged.isdisjoint(
            map(native.digest, state.payload.blocks(name))
        ):
            fault = "none"
        recording.send(self.session, state, name, fault)

    @rule(n=_PICK, wait=st.booleans())
    def commit(self, n: int, wait: bool) -> None:
        if (state := self._one(self._states(), n)) is not None:
            recording.commit(self.session, state, wait=wait)

    @rule(n=_PICK)
    def finish(self, n: int) -> None:
        state = self._one(self._states("recording"), n)
        if state is None:
            return
        for name in sorted(state.payload.components.keys() - state.whole):
            recording.upload(self.session, state, name, "none")
        recording.commit(self.session, state, wait=True)

    @rule(n=_PICK)
    def abort(self, n: int) -> None:
        if (state := self._one(self._states(), n)) is not None:
            recording.abort(self.session, state)

    @rule(n=_PICK)
    def status(self, n: int) -> None:
        if (state := self._one(self._states(), n)) is not None:
            recording.status(self.session, state)

    @rule(n=_PICK, place=_PLACE)
    def ask_for_what_has_gone(self, n: int, place: Place) -> None:
        if (state_id := self._one(self.session.world.gone[::-1], n)) is not None:
            recording.of_nothing(self.session, state_id, place)

    # ---- reading ---------------------------------------------------------------------------------

    @rule(place=_PLACE, query=_QUERY, accept=_ACCEPT, truncate=st.booleans())
    def peek(self, place: Place, query: Query, accept: Sequence[str], truncate: bool) -> None:
        tokens = self._tokens(place, query)
        self.session.peek(place, tokens, accept, truncate=truncate)
        reading.explain(self.session, place, tokens, accept, truncate=truncate)

    @rule(place=_PLACE, query=_QUERY, accept=_ACCEPT)
    def hold(self, place: Place, query: Query, accept: Sequence[str]) -> None:
        reading.hold(self.session, place, self._tokens(place, query), accept)

    @rule(n=_PICK)
    def hold_one(self, n: int) -> None:
        state = self._one(self._states("live"), n)
        if state is None:
            return
        reading.hold(self.session, state.place, state.tokens, (state.kind,))

    @rule(
        place=_PLACE,
        query=_QUERY,
        accept=_ACCEPT,
        truncate=st.booleans(),
        zstd=st.booleans(),
    )
    def restore(
        self,
        place: Place,
        query: Query,
        accept: Sequence[str],
        truncate: bool,
        zstd: bool,
    ) -> None:
        tokens = self._tokens(place, query)
        reading.restore(self.session, place, tokens, accept, truncate=truncate, zstd=zstd)

    @rule(
        place=_PLACE,
        query=_QUERY,
        accept=_ACCEPT,
        truncate=st.booleans(),
        have=st.sampled_from((0, 1, 2, 3)),
    )
    def restore_blocks(
        self, place: Place, query: Query, accept: Sequence[str], truncate: bool, have: int
    ) -> None:
        tokens = self._tokens(place, query)
        reading.restore_blocks(self.session, place, tokens, accept, truncate=truncate, have=have)

    @rule(
        n=_PICK,
        part=_PICK,
        wanted=st.sampled_from(reading.RANGES),
        lease=st.one_of(st.none(), _PICK),
        head=st.booleans(),
    )
    def component(self, n: int, part: int, wanted: str, lease: int | None, head: bool) -> None:
        state = self._one(self._states(), n)
        if state is None:
            return
        name = pick(["full", "kv", "recurrent", "logits"], part)
        mine = [held for held in self._leases() if held.place[0] == state.place[0]]
        under = pick(mine, lease) if mine and lease is not None else None
        reading.component(self.session, state, name, wanted, under, head=head)
        reading.show(self.session, state)

    @rule(n=_PICK)
    def heartbeat(self, n: int) -> None:
        if (lease := self._one(self._leases(), n)) is not None:
            reading.heartbeat(self.session, lease)

    @rule(n=_PICK, outcome=st.sampled_from(("restored", "unused", *_FAILURES)))
    def end_lease(self, n: int, outcome: str) -> None:
        if (lease := self._one(self._leases(), n)) is not None:
            reading.end_lease(self.session, lease, outcome)

    @rule(n=_PICK)
    def expire_lease(self, n: int) -> None:
        if (lease := self._one(self._leases(), n)) is not None:
            operating.expire_lease(self.session, lease)

    # ---- operating -------------------------------------------------------------------------------

    @rule(n=_PICK, by_tenant=st.booleans())
    def quarantine(self, n: int, by_tenant: bool) -> None:
        if (state := self._one(self._states(), n)) is not None:
            operating.quarantine(self.session, state, by_tenant=by_tenant)

    @rule(n=_PICK, by_tenant=st.booleans())
    def release(self, n: int, by_tenant: bool) -> None:
        if (state := self._one(self._states("quarantined"), n)) is not None:
            operating.release(self.session, state, by_tenant=by_tenant)

    @rule(n=_PICK, by_tenant=st.booleans())
    def purge(self, n: int, by_tenant: bool) -> None:
        states = self._states("quarantined") or self._states()
        if (state := self._one(states, n)) is not None:
            operating.purge(self.session, state, by_tenant=by_tenant)

    @rule(n=_PICK, count=st.integers(1, 3), any_status=st.booleans(), dry_run=st.booleans())
    def evict_ids(self, n: int, count: int, any_status: bool, dry_run: bool) -> None:
        states = self._states() if any_status else self._states("live")
        chosen = (states[n % len(states) :] + states)[:count] if states else []
        gone = self.session.world.gone[-1:] if any_status or not chosen else []
        self._idle = not chosen and not gone
        if chosen or gone:
            operating.evict_ids(self.session, list(dict.fromkeys(chosen)), gone, dry_run=dry_run)

    @rule(
        who=st.sampled_from((None, None, *TENANTS)),
        scope=st.sampled_from((*PLACES, ("tenant", ""), ("tenant", "acme"), "store")),
        target_part=st.sampled_from((None, None, 0, 30, 60, 90)),
        untouched_for_s=st.sampled_from((None, 0, 3600)),
    )
    def evict(
        self,
        who: str | None,
        scope: Place | str,
        target_part: int | None,
        untouched_for_s: int | None,
    ) -> None:
        self._let_go_what_may()
        operating.evict(
            self.session, who, scope, target_part=target_part, untouched_for_s=untouched_for_s
        )

    @rule(n=_PICK, ttl_s=st.sampled_from((None, 3000)), by_tenant=st.booleans())
    def pin(self, n: int, ttl_s: int | None, by_tenant: bool) -> None:
        if (state := self._one(self._states(), n)) is not None:
            operating.pin(self.session, state, ttl_s=ttl_s, by_tenant=by_tenant)

    @rule(n=_PICK, by_tenant=st.booleans())
    def unpin(self, n: int, by_tenant: bool) -> None:
        states = self.session.world.pinned() or self._states()
        if (state := self._one(states, n)) is not None:
            operating.unpin(self.session, state, by_tenant=by_tenant)

    @rule(n=_PICK)
    def expire_pin(self, n: int) -> None:
        if (state := self._one(self.session.world.pinned(), n)) is not None:
            operating.expire_pin(self.session, state)

    @rule(mode=st.sampled_from((None, "record", "lookup", "lookup_record", "disabled")))
    def set_mode(self, mode: str | None) -> None:
        operating.set_mode(self.session, mode)

    @rule(place=_PLACE, changes=_RULES, by_tenant=st.booleans())
    def set_rules(self, place: Place, changes: dict[str, Any], by_tenant: bool) -> None:
        operating.set_rules(self.session, place, changes, by_tenant=by_tenant)

    @rule()
    def verify(self) -> None:
        operating.verify(self.session)

    @rule(n=_PICK, by_tenant=st.booleans())
    def verify_one(self, n: int, by_tenant: bool) -> None:
        if (state := self._one(self._states(), n)) is not None:
            operating.verify_one(self.session, state, by_tenant=by_tenant)

    @rule(n=_PICK, part=_PICK)
    def raw(self, n: int, part: int) -> None:
        if (state := self._one(self._states(), n)) is not None:
            name = pick(["full", "kv", "recurrent", "logits"], part)
            operating.raw(self.session, state, name)

    @rule(changes=_LIMITS)
    def set_limits(self, changes: dict[str, int | None]) -> None:
        operating.set_limits(self.session, changes)

    @rule()
    def reclaim(self) -> None:
        operating.reclaim(self.session)

    @rule(n=_PICK)
    def expire_recording(self, n: int) -> None:
        if (state := self._one(self._states("recording"), n)) is not None:
            operating.expire_recording(self.session, state)

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        operating.restart(self.session, killed=killed)

    @rule(n=_PICK)
    def kill_while_committing(self, n: int) -> None:
        if (state := self._one(self._committable(), n)) is not None:
            operating.kill_while_committing(self.session, state)

    @rule(n=_PICK, at=st.sampled_from((0, 1, 7)))
    def flip(self, n: int, at: int) -> None:
        if (digest := self._one(self._undamaged(), n)) is not None:
            operating.flip(self.session, digest, at)

    @rule(n=_PICK, lease=_PICK)
    def probe(self, n: int, lease: int) -> None:
        state = self._one(self._states(), n)
        if state is None:
            return
        mine = [held for held in self._leases() if held.place[0] == state.place[0]]
        operating.probe(self.session, state, pick(mine, lease) if mine else None)

    def _committable(self) -> list[Held]:
        """Recordings that have everything, of prefixes that nobody else has recorded meanwhile."""
        world = self.session.world
        return [
            s
            for s in self._states("recording")
            if s.whole == s.payload.components.keys()
            if s.replace or world.held(s.place, s.tokens, s.kind) is None
        ]

    def _undamaged(self) -> list[bytes]:
        world = self.session.world
        return sorted(world.owners().keys() - world.damaged)

    def _let_go_what_may(self) -> None:
        """What may go by itself would else be evicted, or not, as housekeeping has its turn."""
        if any(s.may_go for s in self.session.world.states.values()):
            operating.reclaim(self.session)


def pick(choices: Sequence[T], n: int) -> T:
    """One of what there is."""
    return choices[n % len(choices)]
