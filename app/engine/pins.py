"""Pins: states that operators want to stay, until a moment or until they let go.

A pinned state is not evicted for whatever reason; it can be quarantined, and purged from there. The pin
budget bounds the bytes of all pinned states as recorded, so that what is shared counts for each: what
sharing saves can end with a state that is not pinned.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from app.engine.access import Caller
from app.engine.errors import Conflicting, NotFound
from app.engine.policy import Policy
from app.engine.threads import in_thread
from storage.errors import Conflict, NotHeld, OverLimit
from storage.rows import PinRow
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Pinned:
    """A pin, with the stored bytes of its state: its blocks, shared ones too, and its overhead."""

    pin: PinRow
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class PinPage:
    """Pins in order of their states' ids; `pinned_bytes` are of all that the caller may see."""

    pins: tuple[Pinned, ...]
    pinned_bytes: int
    after: str | None


class Pins:
    """The pins of one store."""

    def __init__(self, store: Store, policy: Policy, small: Executor) -> None:
        self._store = store
        self._policy = policy
        self._small = small

    @property
    def budget_bytes(self) -> int:
        """Logical bytes that pinned states may have together."""
        return self._policy.pin_budget_bytes

    async def put(self, state_id: str, ttl_s: int | None, reason: str, actor: str) -> Pinned:
        """Pin a live state, in place of the pin that it has.

        Args:
            ttl_s: None: until it is taken away.

        Raises:
            NotFound: no such state.
            Conflicting: it is not in service, or the pin budget does not allow it.
        """
        try:
            pin = await in_thread(
                self._small,
                self._store.pin,
                state_id,
                ttl_ms=None if ttl_s is None else 1000 * ttl_s,
                reason=reason,
                actor=actor,
                budget_bytes=self.budget_bytes,
            )
        except NotHeld as error:
            raise NotFound("state_not_found", "no such state") from error
        except Conflict as error:
            raise Conflicting("state_not_live", "only a state in service can be pinned") from error
        except OverLimit as over:
            raise Conflicting("pin_budget_exceeded", _why(over)) from over
        return await self._with_bytes(pin)

    async def remove(self, state_id: str) -> None:
        """Let a state go.

        Raises:
            NotFound: no such state, or it is not pinned.
        """
        try:
            await in_thread(self._small, self._store.unpin, state_id)
        except NotHeld as error:
            if self._store.catalog.state(state_id) is None:
                raise NotFound("state_not_found", "no such state") from error
            raise NotFound("pin_not_found", "the state is not pinned") from error

    async def page(self, caller: Caller, after: str | None, limit: int) -> PinPage:
        """Pins of what the caller may see, those of states with ids behind `after`."""
        pins, pinned_bytes, following = await in_thread(
            self._small, self._page, caller, after, limit
        )
        # A step for each: a large state has thousands of blocks, and leases are taken on these threads.
        listed = [await self._with_bytes(pin) for pin in pins]
        return PinPage(tuple(listed), pinned_bytes, following)

    def _page(
        self, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[PinRow], int, str | None]:
        tenant = caller.whole()
        sizes = self._store.catalog.pinned_bytes()
        pinned_bytes = sum(size for name, size in sizes.items() if caller.sees(name))
        found: list[PinRow] = []
        while True:
            pins = self._store.catalog.pins(after, limit + 1, tenant)
            found += [pin for pin in pins if caller.sees(pin.namespace)]
            if len(found) > limit:
                return found[:limit], pinned_bytes, found[limit - 1].state_id
            if len(pins) <= limit:
                return found, pinned_bytes, None
            after = pins[-1].state_id

    async def _with_bytes(self, pin: PinRow) -> Pinned:
        size = await in_thread(self._small, self._store.catalog.owned_bytes, pin.row)
        return Pinned(pin, pin.overhead_bytes + size)


def _why(over: OverLimit) -> str:
    if over.unit == "pins":
        return "as many states are pinned as may be"
    return "the bytes of all pinned states would exceed the pin budget"
