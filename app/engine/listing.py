"""States and namespaces as operators list them, each caller its own.

Invariants: a page holds nothing that its caller may not see, and neither its length nor its cursor
depends on such; a caller bound to a tenant or to patterns is never told that there was more.

On a thread of its own with a bounded queue: a page may read tens of thousands of rows, and no
recording waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from app.engine import cursors
from app.engine.access import Caller
from app.engine.errors import InvalidInput, Unavailable
from app.engine.policy import Policy
from app.engine.registry import Registry
from app.engine.threads import in_thread
from storage.clock import wall_ms
from storage.metadata.listing import (
    WALKED,
    Filter,
    ListedState,
    Order,
    Position,
    Sort,
    StatePage,
)
from storage.metadata.scope import Scope
from storage.rows import NamespaceCounts, NamespaceRow
from storage.store import Store

_MOST_WAITING: Final = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StatesWanted:
    """Which states, in which order; None: whatever they are.

    Attributes:
        namespace: by the name it is held under.
        tenant: whose; goes without a namespace.
        under: tokens (int32 little-endian) that a namespace's states begin with.
    """

    namespace: str | None = None
    tenant: str | None = None
    status: str | None = None
    kind: str | None = None
    min_age_s: int | None = None
    max_age_s: int | None = None
    untouched_for_s: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    under: bytes | None = None
    pinned: bool | None = None
    sort: Sort = Sort.CREATED
    descending: bool = False

    def check(self) -> None:
        """Refuse what names nothing, or would cost a look at every state of the store.

        Raises:
            InvalidInput: with the field.
        """
        if self.under is not None and self.namespace is None:
            raise _refused("tokens mean something within a namespace: name it", "under_b64")
        if self.sort not in WALKED and self.namespace is None:
            raise _refused(
                f"sorting by {self.sort} looks at every state that is sorted, so it is done within "
                "a namespace: name it",
                "sort",
            )
        for least, most, field in (
            (self.min_age_s, self.max_age_s, "max_age_s"),
            (self.min_bytes, self.max_bytes, "max_bytes"),
        ):
            if least is not None and most is not None and least > most:
                raise _refused(f"{field} is below {field.replace('max', 'min')}", field)


@dataclass(frozen=True, slots=True)
class States:
    """A page of states; `after` continues the listing, None at its end."""

    states: tuple[ListedState, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class ListedNamespace:
    """A namespace with its counts and the mode in force."""

    row: NamespaceRow
    counts: NamespaceCounts
    mode: str


@dataclass(frozen=True, slots=True)
class Namespaces:
    """A page of namespaces; `after` continues the listing, None at its end."""

    namespaces: tuple[ListedNamespace, ...]
    after: str | None


class Listing:
    """Listings of one store."""

    def __init__(self, store: Store, policy: Policy, registry: Registry) -> None:
        self._store = store
        self._policy = policy
        self._registry = registry
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="listing")
        self._waiting = 0  # only touched by the event loop

    async def states(
        self, caller: Caller, wanted: StatesWanted, after: str | None, limit: int
    ) -> States:
        """A page of the states that the caller may see; short or empty ones can have a successor.

        Ages are those at the time of the first page.

        Raises:
            InvalidInput: filters that do not go together, or a cursor of something else.
            Forbidden: another tenant than the caller's.
            Unavailable: too many listings are waiting.
        """
        wanted.check()
        tenant = caller.whole(wanted.tenant)
        question = ["states", *_seen_by(caller, tenant), *_plain(wanted)]
        as_of_ms, position = wall_ms(), None
        if after is not None:
            as_of_ms, value, state_id = cursors.read(after, question, int, int, str)
            position = Position(value, state_id)
        found = await self._run(
            lambda: self._states(caller, tenant, wanted, as_of_ms, position, limit)
        )
        following = None
        if found.after is not None:
            place = (as_of_ms, found.after.value, found.after.state_id)
            following = cursors.written(question, place)
        return States(found.states, following)

    async def namespaces(
        self, caller: Caller, tenant: str | None, model: str | None, after: str | None, limit: int
    ) -> Namespaces:
        """A page of the namespaces that the caller may see, in order of tenant and name.

        Raises:
            InvalidInput: a cursor of something else.
            Forbidden: another tenant than the caller's.
            Unavailable: too many listings are waiting.
        """
        tenant = caller.whole(tenant)
        question = ["namespaces", *_seen_by(caller, tenant), model]
        behind = None if after is None else cursors.read(after, question, str)[0]

        def read() -> tuple[tuple[ListedNamespace, ...], str | None]:
            rows, following = self._registry.page(behind, limit, tenant, caller.sees, model)
            counts = self._store.catalog.namespace_counts([row.id for row in rows])
            listed = (ListedNamespace(row, counts[row.id], self._policy.mode(row)) for row in rows)
            return tuple(listed), following

        found, following = await self._run(read)
        return Namespaces(
            found, None if following is None else cursors.written(question, [following])
        )

    def close(self) -> None:
        """Finish the listing under way; those that wait are not begun."""
        self._thread.shutdown(cancel_futures=True)

    async def _run(self, read: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise Unavailable("busy", "too many listings are under way", 1)
        self._waiting += 1
        try:
            return await in_thread(self._thread, read)
        finally:
            self._waiting -= 1

    def _states(
        self,
        caller: Caller,
        tenant: str | None,
        wanted: StatesWanted,
        as_of_ms: int,
        position: Position | None,
        limit: int,
    ) -> StatePage:
        scope: Scope = tenant
        if wanted.namespace is not None:
            row = self._store.catalog.namespace(wanted.namespace)
            if row is None:
                return StatePage((), None)
            scope = row.id
        elif caller.patterns is not None:
            names = self._store.catalog.namespace_names(caller.home)
            scope = [row for row, held in names if caller.sees(held)]

        def ago(seconds: int | None) -> int | None:
            return None if seconds is None else as_of_ms - 1000 * seconds

        return self._store.catalog.listed_states(
            Filter(
                scope=scope,
                status=wanted.status,
                kind=wanted.kind,
                created_from_ms=ago(wanted.max_age_s),
                created_to_ms=ago(wanted.min_age_s),
                touched_to_ms=ago(wanted.untouched_for_s),
                min_bytes=wanted.min_bytes,
                max_bytes=wanted.max_bytes,
                under=wanted.under,
                pinned=wanted.pinned,
            ),
            Order(wanted.sort, wanted.descending),
            position,
            limit,
        )


def _seen_by(caller: Caller, tenant: str | None) -> list[Any]:
    patterns = caller.patterns
    return [tenant, None if patterns is None else [pattern.pattern for pattern in patterns]]


def _plain(wanted: StatesWanted) -> list[Any]:
    values = asdict(wanted)
    del values["tenant"]  # as it was meant, it is in `_seen_by`
    under = values.pop("under")
    return [*values.values(), None if under is None else under.hex()]


def _refused(detail: str, field: str) -> InvalidInput:
    return InvalidInput("invalid_request", detail, f"query.{field}")
