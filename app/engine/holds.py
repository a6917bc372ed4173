"""Leases: held while somebody reads, ended by release, by expiry, or with the response that opened them.

A lease is a row with a deadline on the boot clock, so it holds over workers and restarts, and one
whose holder vanished ends by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from uuid_utils import uuid7

from app.engine.errors import (
    Conflicting,
    Gone,
    NotFound,
    Refused,
    Unavailable,
)
from app.engine.histograms import Histogram
from app.engine.notes import Notes
from app.engine.payload import WIRE_ORDER
from app.engine.threads import in_thread
from storage.clock import boot_ms
from storage.rows import LeaseRow
from storage.store import Store

# The response that opened the lease was sent whole; the holder may still say how the import went.
SENT = "sent"
BROKEN_OFF = "broken_off"

IMPORT_US: Final = Histogram(
    "import_us",
    WIRE_ORDER,
    (1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 30_000_000),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A holder's report: the class decides whether the state is to blame."""

    failure_class: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the use of a lease ended: restored, failed (with `failure`), or unused."""

    result: str
    failure: Failure | None = None
    import_ms: Mapping[str, float] | None = None

    @property
    def word(self) -> str:
        """What is kept with the lease, to recognise the same release sent again."""
        return self.result if self.failure is None else f"failed:{self.failure.failure_class}"


@dataclass(frozen=True, slots=True)
class Released:
    """What a release found."""

    state_id: str
    repeated: bool
    expired: bool


class Leases:
    """Opens, renews and ends leases."""

    def __init__(self, store: Store, notes: Notes, small: Executor, default_ttl_ms: int) -> None:
        self._store = store
        self._notes = notes
        self._small = small
        self.default_ttl_ms = default_ttl_ms

    async def open(self, state_id: str, ttl_ms: int | None = None) -> str:
        """Hold a state; returns the lease id.

        Raises:
            storage NotHeld: the state is not live.
            Unavailable, Refused: the lease could not be written.
        """
        lease_id = str(uuid7())
        await in_thread(
            self._small, self._store.ledger.lease, lease_id, state_id, ttl_ms or self.default_ttl_ms
        )
        self._notes.count("leases_opened")
        return lease_id

    async def open_if_possible(self, state_id: str, ttl_ms: int | None = None) -> str | None:
        """Hold a state for a reader; None where no lease can be written at this moment.

        Reads go on without one when the disk is full or the writer has stopped: every byte is
        verified all the same, and if the state went meanwhile the response would be broken off.

        Raises:
            storage NotHeld: the state is not live.
        """
        try:
            return await self.open(state_id, ttl_ms)
        except (Unavailable, Refused):
            self._notes.count("reads_without_lease")
            return None

    async def heartbeat(self, lease_id: str, ttl_ms: int | None) -> int:
        """Begin the lease's time anew; returns its length in ms.

        Raises:
            NotFound: no such lease.
            Gone: it was released, or its time ran out.
        """

        def renewed(row: LeaseRow, now: int) -> int | None:
            if row.outcome is None and row.expires_boot_ms > now:
                return now + (ttl_ms or row.ttl_ms)
            return None

        row = await in_thread(self._small, self._store.ledger.change_lease, lease_id, renewed)
        if row is None:
            raise NotFound("lease_not_found", "no such lease")
        if row.outcome is not None:
            raise Gone("lease_released", "the lease has been released")
        if row.expires_boot_ms <= boot_ms():
            raise Gone("lease_expired", "the lease has run out; look the prefix up again")
        return ttl_ms or row.ttl_ms

    def released_before(self, lease_id: str, outcome: Outcome) -> tuple[str, bool]:
        """The state of a lease, and whether this very release was made before. Fit for the event loop.

        Raises:
            NotFound: no such lease.
            Conflicting: it was released with another outcome.
        """
        row = self._store.catalog.lease(lease_id)
        if row is None:
            raise NotFound("lease_not_found", "no such lease")
        return row.state_id, _repeats(row, outcome)

    async def release(self, lease_id: str, outcome: Outcome) -> Released:
        """End a lease. Sent again with the same outcome it answers the same.

        An expired lease still takes its outcome: what the holder found out is true all the same.

        Raises:
            NotFound: no such lease.
            Conflicting: it was released with another outcome.
        """

        def finished(row: LeaseRow, _now: int) -> str | None:
            return outcome.word if row.outcome in (None, SENT) else None

        row = await in_thread(self._small, self._store.ledger.change_lease, lease_id, finished)
        if row is None:
            raise NotFound("lease_not_found", "no such lease")
        repeated = _repeats(row, outcome)
        expired = row.outcome is None and row.expires_boot_ms <= boot_ms()
        if not repeated:
            self._notes.count("leases_released", outcome.word)
            for component, ms in (outcome.import_ms or {}).items():
                self._observe_import(component, ms)
        return Released(row.state_id, repeated, expired)

    async def end_with_response(self, lease_id: str | None, *, sent: bool) -> None:
        """The response that opened the lease is over: sent whole, or broken off.

        Where that cannot be written the lease ends by itself at its time.
        """
        if lease_id is None:
            return

        word = SENT if sent else BROKEN_OFF

        def finished(row: LeaseRow, _now: int) -> str | None:
            return word if row.outcome is None else None

        with suppress(Unavailable, Refused):
            row = await in_thread(self._small, self._store.ledger.change_lease, lease_id, finished)
            if row is not None and row.outcome is None:
                self._notes.count("leases_ended", word)

    def check_held(self, lease_id: str, state_id: str) -> None:
        """The lease holds that state. Fit for the event loop.

        Raises:
            NotFound: no such lease on this state; one on another may be somebody else's, and is as none.
            Gone: it was released, or its time ran out.
        """
        row = self._store.catalog.lease(lease_id)
        if row is None or row.state_id != state_id:
            raise NotFound("lease_not_found", "no such lease on this state")
        if row.outcome is not None:
            raise Gone("lease_released", "the lease has been released")
        if row.expires_boot_ms <= boot_ms():
            raise Gone("lease_expired", "the lease has run out; look the prefix up again")

    def _observe_import(self, component: str, ms: float) -> None:
        self._notes.count("import_count", component)
        IMPORT_US.observe(self._notes, component, round(ms * 1000))


def _repeats(row: LeaseRow, outcome: Outcome) -> bool:
    """Whether a lease was released with this outcome already.

    Raises:
        Conflicting: it was released with another one.
    """
    if row.outcome in (None, SENT):
        return False
    if row.outcome != outcome.word:
        raise Conflicting("lease_released", "the lease was released with another outcome")
    return True
