"""States as operators list them: filtered, in one of several orders, a page behind a position.

Every page costs what it shows and a bounded number of rows beside it, whatever the store holds:

- gather: where the filters name a small set (a namespace, a status, what is pinned, a part of a tree),
  its rows are read and sorted. Orders that no index has are always made so.
- walk: else an index gives the states in order, and one after the other is held against the filters. After
  so many of the scope's states the page ends, full or not, and the position says where to go on.

A position is the last state of a page by its sort key and state id, so states that come and go shift
nothing. SQLite is told by a unary plus which index not to take: it knows no counts, and guesses.
What is "under" some tokens is what the tree says; it is unchecked storage and nothing here is proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Subquery,
    and_,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    union_all,
)

from storage.metadata import radix
from storage.metadata.pins import in_force
from storage.metadata.schema import STATUSES, pin, radix_node, state
from storage.metadata.schema import namespace as namespace_table
from storage.metadata.scope import Scope, within
from storage.metadata.states import COLUMNS
from storage.rows import NamespaceCounts, Pin, StateRow

# Rows that are read and sorted for a page, where an index has its order too.
GATHERED: Final = 30_000
# States that a walk holds against the filters for a page: where they lie beside each other, where those
# of others lie between them, and where each is in another place of the file or means a climb.
LOOKED_AT: Final = 50_000
LOOKED_AT_AMONG_OTHERS: Final = 10_000
LOOKED_AT_HERE_AND_THERE: Final = 5_000
# A state id holds the time of its making, taken a moment before `created_at_ms` and by another call:
# apart by the wait for the write lock, or by a step of the clock.
_ID_SLACK_MS: Final = 3_600_000


class Sort(StrEnum):
    """What states are ordered by; equal ones by state id."""

    CREATED = "created"
    TOUCHED = "touched"
    SIZE = "size"
    TOKENS = "tokens"
    HITS = "hits"


_VALUES: Final[dict[Sort, ColumnElement[int]]] = {
    Sort.CREATED: literal_column("0"),  # the state id alone: it begins with the time
    Sort.TOUCHED: state.c.touched_at_ms,
    Sort.SIZE: state.c.logical_bytes,
    Sort.TOKENS: state.c.token_count,
    Sort.HITS: state.c.hits,
}
# Indexes have these orders.
WALKED: Final = frozenset({Sort.CREATED, Sort.TOUCHED})


@dataclass(frozen=True, slots=True)
class Order:
    """An order of states."""

    sort: Sort = Sort.CREATED
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two states of an order: behind the one with this sort key and id."""

    value: int
    state_id: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which states; None: whatever they are.

    Attributes:
        under: the states of the tree that begin with these tokens (int32 little-endian); goes with the
            scope of one namespace.
        pinned: whether a pin that has not run out holds them.
    """

    scope: Scope = None
    status: str | None = None
    kind: str | None = None
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    touched_to_ms: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    under: bytes | None = None
    pinned: bool | None = None


@dataclass(frozen=True, slots=True)
class ListedState:
    """A state with its namespace's held name and its pin."""

    state: StateRow
    namespace: str
    pin: Pin | None


@dataclass(frozen=True, slots=True)
class StatePage:
    """States in order. `after` is where to go on; None: there are no more."""

    states: tuple[ListedState, ...]
    after: Position | None


def page(
    connection: Connection,
    wanted: Filter,
    order: Order,
    after: Position | None,
    limit: int,
    now_ms: int,
) -> StatePage:
    """The first `limit` of the wanted states behind a position, in a snapshot of the caller's.

    Fewer, or none, with an `after` where a walk ended at its bound.
    """
    node = None
    if wanted.under is not None:
        assert isinstance(wanted.scope, int), "tokens mean something within a namespace only"
        reach = radix.reach(connection, wanted.scope, wanted.under)
        node = reach.node_id
        if node is None or reach.common_tokens * 4 < len(wanted.under):
            return StatePage((), None)
    listing = _Listing(connection, wanted, order, after, node, now_ms)
    keys, going_on = listing.keys(limit)
    return StatePage(_rows(connection, [key[0] for key in keys], now_ms), going_on)


def namespace_counts(
    connection: Connection, namespaces: Sequence[int], now_ms: int
) -> dict[int, NamespaceCounts]:
    """What the rows of namespaces do not count themselves."""
    by_status = connection.execute(
        select(state.c.namespace_id, state.c.status, func.count())
        .where(
            *within(state.c.namespace_id, namespaces),
            state.c.status.in_(("recording", "quarantined")),
        )
        .group_by(state.c.namespace_id, state.c.status)
    )
    counts = {(of, status): count for of, status, count in by_status}
    # From the pins, which are few.
    pinned = connection.execute(
        select(state.c.namespace_id, func.count())
        .where(
            state.c.id.in_(select(pin.c.state).where(in_force(literal(now_ms)))),
            *within(_unindexed("namespace_id"), namespaces),
        )
        .group_by(_unindexed("namespace_id"))
    )
    pins = {int(of): int(count) for of, count in pinned}
    return {
        of: NamespaceCounts(
            recording=counts.get((of, "recording"), 0),
            quarantined=counts.get((of, "quarantined"), 0),
            pinned=pins.get(of, 0),
        )
        for of in namespaces
    }


def pin_of(connection: Connection, row: int, now_ms: int) -> Pin | None:
    """The pin of a state's row, unless it has run out."""
    found = connection.execute(
        select(*_PIN_COLUMNS).where(pin.c.state == row, in_force(literal(now_ms)))
    ).first()
    return None if found is None else Pin(*found)


_PIN_COLUMNS: Final = (pin.c.expires_at_ms, pin.c.reason, pin.c.actor, pin.c.created_at_ms)
_KEY_COLUMNS: Final = (
    state.c.id,
    state.c.state_id,
    state.c.namespace_id,
    state.c.kind,
    state.c.status,
    state.c.node_id,
    state.c.logical_bytes,
    state.c.created_at_ms,
    state.c.touched_at_ms,
)


class _Listing:
    """One page's question, taken apart into statements."""

    def __init__(
        self,
        connection: Connection,
        wanted: Filter,
        order: Order,
        after: Position | None,
        node: int | None,
        now_ms: int,
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._order = order
        self._after = after
        self._node = node
        self._now_ms = now_ms

    def keys(self, limit: int) -> tuple[list[Any], Position | None]:
        """(row, value, state id) of at most `limit` states, and where to go on."""
        gathered = self._gathered()
        if gathered is not None:
            looked_at, seen = None, self._read(gathered)
            fits = [*self._fits(seen), *self._behind(seen.c.value, seen.c.state_id)]
        else:
            looked_at = self._most()
            seen = self._walked(looked_at)
            fits = self._fits(seen)
            if self._node is not None:
                fits.append(_below(seen, self._node))
        columns = (seen.c.id, seen.c.value, seen.c.state_id)
        ordered = self._in_order(select(*columns).where(*fits), seen.c.value, seen.c.state_id)
        found = list(self._connection.execute(ordered.limit(limit + 1)))
        if len(found) > limit:
            return found[:limit], Position(*found[limit - 1][1:])
        return found, None if looked_at is None else self._end_of(seen, looked_at)

    # ---- gather ----------------------------------------------------------------------------

    def _gathered(self) -> Select[tuple[int]] | None:
        """Rows of a set that is read whole; None: walk."""
        wanted, sort = self._wanted, self._order.sort
        if self._node is not None:
            nodes = _subtree(self._node)
            if sort in WALKED and not self._few(select(nodes)):
                return None
            return select(state.c.id).where(state.c.node_id.in_(select(nodes.c.id)))
        if wanted.pinned:
            return select(pin.c.state).where(in_force(literal(self._now_ms)))
        members = select(state.c.id).where(*within(state.c.namespace_id, wanted.scope))
        if wanted.status is not None:
            members = members.where(state.c.status == wanted.status)
        if sort not in WALKED:
            return members
        if sort is Sort.TOUCHED or (wanted.scope is None and wanted.status is None):
            return None
        return members if self._few(members) else None

    def _few(self, rows: Select[Any]) -> bool:
        counted = select(func.count()).select_from(rows.limit(GATHERED + 1).subquery())
        return int(self._connection.execute(counted).scalar_one()) <= GATHERED

    def _read(self, gathered: Select[tuple[int]]) -> Subquery:
        value = _VALUES[self._order.sort].label("value")
        rows = select(*_KEY_COLUMNS, value).where(state.c.id.in_(gathered))
        # The limit is no limit: it keeps SQLite from moving what stands around it inside.
        return rows.limit(-1).subquery("seen")

    # ---- walk ------------------------------------------------------------------------------

    def _most(self) -> int:
        if self._node is not None or self._order.sort is Sort.TOUCHED:
            return LOOKED_AT_HERE_AND_THERE
        return LOOKED_AT if self._wanted.scope is None else LOOKED_AT_AMONG_OTHERS

    def _walked(self, most: int) -> Subquery:
        """The next `most` states in order, before they are held against the filters."""
        if self._order.sort is Sort.CREATED:
            of_scope = within(_unindexed("namespace_id"), self._wanted.scope)
            rows = self._keys_behind(_VALUES[Sort.CREATED]).where(*of_scope, *self._by_id())
            in_order = rows.order_by(*self._directed(literal_column("0"), state.c.state_id))
            return in_order.limit(most).subquery("seen")
        scope = self._wanted.scope
        if scope is None or isinstance(scope, int):
            rows = self._keys_behind(state.c.touched_at_ms)
        else:
            rows = self._nearest_of_several(most)
        rows = rows.where(*within(state.c.namespace_id, scope))
        wanted = self._wanted.status
        # An index has the states of each status in order; SQLite merges them as it goes.
        legs = union_all(
            *(
                rows.where(state.c.status == status)
                for status in (STATUSES if wanted is None else (wanted,))
            )
        )
        merged = legs.order_by(*self._directed(literal_column("value"), literal_column("state_id")))
        return merged.limit(most).subquery("seen")

    def _keys_behind(self, value: ColumnElement[int]) -> Select[Any]:
        rows = select(*_KEY_COLUMNS, value.label("value"))
        rows = rows.where(*self._behind(value, state.c.state_id))
        if self._order.sort is Sort.TOUCHED and self._wanted.touched_to_ms is not None:
            rows = rows.where(value <= self._wanted.touched_to_ms)
        return rows

    def _nearest_of_several(self, most: int) -> Select[Any]:
        """States up to where the next `most` of several namespaces end, by last use.

        One namespace has its states in order, several have not. But where they end is told by the
        index of their namespaces alone, and only up to there rows are read.
        """
        touched = _unindexed("touched_at_ms")
        ends = select(touched.label("value")).where(
            *within(state.c.namespace_id, self._wanted.scope)
        )
        if self._wanted.status is not None:
            ends = ends.where(state.c.status == self._wanted.status)
        if self._wanted.touched_to_ms is not None:
            ends = ends.where(touched <= self._wanted.touched_to_ms)
        down, at = self._order.descending, self._after
        if at is not None:
            # Those of the same moment come anyhow; state ids are not in the index.
            ends = ends.where(touched < at.value if down else touched > at.value)
        nearest = ends.order_by(touched.desc() if down else touched).limit(most).subquery()
        furthest = (func.min if down else func.max)(nearest.c.value)
        end = select(
            furthest if at is None else func.coalesce(furthest, at.value)
        ).scalar_subquery()
        return self._keys_behind(touched).where(touched >= end if down else touched <= end)

    def _by_id(self) -> list[ColumnElement[bool]]:
        """Bounds of the ids that the time of recording leaves, where looking at all would be long."""
        newest = self._connection.execute(select(func.max(state.c.id))).scalar_one() or 0
        if newest <= LOOKED_AT:
            return []
        first, last = self._wanted.created_from_ms, self._wanted.created_to_ms
        bounds = []
        if first is not None:
            bounds.append(state.c.state_id >= _id_at(first - _ID_SLACK_MS))
        if last is not None:
            bounds.append(state.c.state_id < _id_at(last + _ID_SLACK_MS))
        return bounds

    def _end_of(self, seen: Subquery, most: int) -> Position | None:
        """The last position that a walk has looked at, where it did not come to the end."""
        columns = select(seen.c.value, seen.c.state_id, func.count().over())
        backwards = self._in_order(columns, seen.c.value, seen.c.state_id, backwards=True)
        last = self._connection.execute(backwards.limit(1)).first()
        return None if last is None or last[2] < most else Position(last[0], last[1])

    # ---- both ------------------------------------------------------------------------------

    def _fits(self, seen: FromClause) -> list[ColumnElement[bool]]:
        wanted, c = self._wanted, seen.c
        fits = list(within(c.namespace_id, wanted.scope)) if wanted.pinned else []
        for condition, value in (
            (c.status.__eq__, wanted.status),
            (c.kind.__eq__, wanted.kind),
            (c.created_at_ms.__ge__, wanted.created_from_ms),
            (c.created_at_ms.__le__, wanted.created_to_ms),
            (c.touched_at_ms.__le__, wanted.touched_to_ms),
            (c.logical_bytes.__ge__, wanted.min_bytes),
            (c.logical_bytes.__le__, wanted.max_bytes),
        ):
            if value is not None:
                fits.append(condition(value))
        if wanted.pinned is not None:
            held = exists().where(pin.c.state == c.id, in_force(literal(self._now_ms)))
            fits.append(held if wanted.pinned else ~held)
        return fits

    def _behind(
        self, value: ColumnElement[int], state_id: ColumnElement[str]
    ) -> list[ColumnElement[bool]]:
        at = self._after
        if at is None:
            return []
        down = self._order.descending
        further = state_id < at.state_id if down else state_id > at.state_id
        if self._order.sort is Sort.CREATED:
            return [further]
        # The first is implied by the second, and is the one that an index is entered by.
        if down:
            return [value <= at.value, or_(value < at.value, and_(value == at.value, further))]
        return [value >= at.value, or_(value > at.value, and_(value == at.value, further))]

    def _in_order(
        self,
        rows: Select[Any],
        value: ColumnElement[int],
        state_id: ColumnElement[str],
        *,
        backwards: bool = False,
    ) -> Select[Any]:
        return rows.order_by(*self._directed(value, state_id, backwards=backwards))

    def _directed(
        self, value: ColumnElement[int], state_id: ColumnElement[str], *, backwards: bool = False
    ) -> list[ColumnElement[Any]]:
        keys: list[ColumnElement[Any]] = [value, state_id]
        if self._order.sort is Sort.CREATED:
            keys = [state_id]
        down = self._order.descending is not backwards
        return [key.desc() if down else key for key in keys]


def _unindexed(column: str) -> ColumnElement[Any]:
    return literal_column(f"+state.{column}")


def _id_at(ms: int) -> str:
    """How ids of that moment begin (UUIDv7: 48 bits of milliseconds)."""
    digits = f"{max(0, ms):012x}"[-12:]
    return f"{digits[:8]}-{digits[8:]}"


def _subtree(node: int) -> Any:
    """Nodes at and below a node; the edges are not read."""
    below = select(literal(node).label("id")).cte("below", recursive=True)
    children = select(radix_node.c.id).where(radix_node.c.parent_id == below.c.id)
    return below.union_all(children)


def _below(seen: FromClause, node: int) -> ColumnElement[bool]:
    """That a state's node lies at or below a node: by climbing, no higher than that one."""
    depth = select(radix_node.c.depth).where(radix_node.c.id == node).scalar_subquery()
    start = select(seen.c.node_id.label("id")).correlate(seen)
    way = start.cte("way", recursive=True, nesting=True)
    up = select(radix_node.c.parent_id).where(
        radix_node.c.id == way.c.id, radix_node.c.depth > depth
    )
    way = way.union_all(up)
    return exists(select(literal(1)).select_from(way).where(way.c.id == node))


def _rows(connection: Connection, rows: Sequence[int], now_ms: int) -> tuple[ListedState, ...]:
    """States by their rows, in the same order."""
    width = len(COLUMNS)
    found = connection.execute(
        select(*COLUMNS, namespace_table.c.name, pin.c.state, *_PIN_COLUMNS)
        .join(namespace_table, namespace_table.c.id == state.c.namespace_id)
        .outerjoin(pin, and_(pin.c.state == state.c.id, in_force(literal(now_ms))))
        .where(state.c.id.in_(rows))
    )
    by_row = {
        row[0]: ListedState(
            StateRow(*row[:width]),
            row[width],
            None if row[width + 1] is None else Pin(*row[width + 2 :]),
        )
        for row in found
    }
    return tuple(by_row[row] for row in rows)
