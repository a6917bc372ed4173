"""Is there an order of these calls in which a single-threaded thing would have answered the same?

Wing and Gong's search (Testing and Verifying Concurrent Objects, JPDC 17, 1993): put first one of the calls
that began before any other of the rest had returned, let the specification take that step, and go on with
the rest; go back where the specification refuses. As Lowe (Testing for Linearizability, CCPE 29, 2017), what
was tried is remembered by the set of calls placed and the state reached, so that nothing is tried twice.

A specification may be undecided: a step gives every state that may follow, and all of them are followed at
once. A call that nobody heard the end of returns at infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Call:
    """One call of a history. Times are of one clock; `result` is what the caller was told."""

    client: int
    operation: str
    argument: Any
    result: Any
    invoked: float
    returned: float


def unexplained(
    history: Iterable[Call], start: S, step: Callable[[S, Call], Iterable[S]]
) -> list[Call] | None:
    """None if the history is linearizable; else the calls left when the search had come furthest.

    Args:
        step: the states in which a call may leave the thing, if this is the state it finds; none if it
            cannot have been answered like this.
    """
    calls = sorted(history, key=lambda call: call.invoked)
    everything = (1 << len(calls)) - 1
    furthest = 0
    first: tuple[int, frozenset[S]] = (0, frozenset({start}))
    waiting, seen = [first], {first}
    while waiting:
        placed, states = waiting.pop()
        if placed == everything:
            return None
        furthest = max(furthest, placed, key=int.bit_count)
        for at in _next(calls, placed):
            after = frozenset(new for old in states for new in step(old, calls[at]))
            reached = placed | 1 << at, after
            if after and reached not in seen:
                seen.add(reached)
                waiting.append(reached)
    return [call for at, call in enumerate(calls) if not furthest >> at & 1]


def _next(calls: Sequence[Call], placed: int) -> Iterator[int]:
    """Calls that began before any of the others left had returned."""
    at = (placed ^ (placed + 1)).bit_length() - 1  # all before it are placed
    earliest = float("inf")
    while at < len(calls) and calls[at].invoked <= earliest:
        if not placed >> at & 1:
            earliest = min(earliest, calls[at].returned)
            yield at
        at += 1
