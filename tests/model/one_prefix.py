"""What one prefix is to callers who take turns: the sequential specification of the races.

At most one state is live, and one is being recorded. A state that was replaced may be held a little longer
by whoever reads it; until it is gone it can still be evicted or put into quarantine, so that the
specification is undecided about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.linearizability import Call


class Prefix(NamedTuple):
    """The prefix at one moment.

    Attributes:
        live: the state that lookups find.
        recording: who has been admitted; `dropped`: its commit was refused, and it goes.
        quarantined: states out of service.
        replaced: states that may be there still, for whoever reads them.
        apart: replaced states in quarantine: nothing leads to them any more.
    """

    live: str | None = None
    recording: str | None = None
    dropped: bool = False
    quarantined: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()


def step(now: Prefix, call: Call) -> Iterator[Prefix]:
    """Every state in which a call may leave the prefix, given what the caller was told."""
    word, state_id = call.result
    if word == "busy":
        yield now
    elif call.operation == "admit":
        yield from _admit(now, word, state_id, replace=call.argument)
    elif call.operation == "commit":
        yield from _commit(now, word, *call.argument)
    elif call.operation == "find":
        yield from _find(now, word, state_id)
    elif call.operation == "evict":
        yield from _evict(now, word, call.argument)
    elif call.operation == "quarantine":
        yield from _quarantine(now, word, call.argument)
    elif call.operation == "release":
        yield from _release(now, word, call.argument)
    elif call.operation == "purge":
        yield from _purge(now, word, call.argument)


def _admit(now: Prefix, word: str, state_id: str | None, *, replace: bool) -> Iterator[Prefix]:
    free = now.live is None or replace
    if word == "admitted" and free and (now.recording is None or now.dropped):
        yield now._replace(recording=state_id, dropped=False)
    in_flight = word == "in_flight" and free and now.recording is not None
    held = word == "already_recorded" and not replace and now.live == state_id
    if in_flight or held:
        yield now


def _commit(now: Prefix, word: str, state_id: str, replace: bool) -> Iterator[Prefix]:
    if now.recording != state_id:
        return
    if word == "live" and (now.live is None or replace):
        replaced = now.replaced if now.live is None else now.replaced | {now.live}
        yield now._replace(live=state_id, recording=None, replaced=replaced)
    elif word == "already_recorded" and now.live is not None and not replace:
        yield now._replace(dropped=True)


def _find(now: Prefix, word: str, state_id: str | None) -> Iterator[Prefix]:
    if word == "hit":
        if now.live == state_id:
            yield now
    elif now.live is None and (word == "quarantined") == bool(now.quarantined):
        yield now


def _evict(now: Prefix, word: str, state_id: str) -> Iterator[Prefix]:
    if word == "evicted":
        if now.live == state_id:
            yield now._replace(live=None)
        if state_id in now.replaced:
            yield now._replace(replaced=now.replaced - {state_id})
    elif word == "leased":
        if now.live == state_id or state_id in now.replaced:
            yield now
    elif now.live != state_id:
        yield now


def _quarantine(now: Prefix, word: str, state_id: str) -> Iterator[Prefix]:
    if word == "done":
        if now.live == state_id:
            yield now._replace(live=None, quarantined=now.quarantined | {state_id})
        if state_id in now.replaced:
            yield now._replace(replaced=now.replaced - {state_id}, apart=now.apart | {state_id})
    elif now.live != state_id:
        yield now


def _release(now: Prefix, word: str, state_id: str) -> Iterator[Prefix]:
    here = state_id in now.quarantined
    if word == "done":
        if here and now.live is None:
            yield now._replace(live=state_id, quarantined=now.quarantined - {state_id})
    elif word == "newer_recording":
        if (here and now.live is not None) or state_id in now.apart:
            yield now
    elif not here and state_id not in now.apart:
        yield now


def _purge(now: Prefix, word: str, state_id: str) -> Iterator[Prefix]:
    here = state_id in now.quarantined or state_id in now.apart
    if word == "done":
        if here:
            yield now._replace(
                quarantined=now.quarantined - {state_id}, apart=now.apart - {state_id}
            )
    elif word == "leased":
        if here:
            yield now
    elif not here:
        yield now
