"""Listing states against a list in memory: every filter, order and way to a page, and paging in motion."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import Connection, delete, insert, update

from storage.metadata import listing, radix
from storage.metadata.listing import Filter, Order, Position, Sort
from storage.metadata.schema import namespace, pin, state
from tests.storage.test_radix import database

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
SPACES = ("one", "two", "a\x1fone", "a\x1fthree", "b\x1fone")
ORDERS = [Order(sort, descending) for sort in Sort for descending in (False, True)]
KINDS = ("kv", "full_state", "recurrent_only")


@dataclass(frozen=True)
class Held:
    """What the model knows of a state."""

    row: int
    state_id: str
    space: str
    kind: str
    status: str
    tokens: tuple[int, ...]
    in_tree: bool
    size: int
    created: int
    touched: int
    hits: int
    pinned: bool


class Model:
    """A store of states in few values, so that ties are everywhere; and what a listing must give."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.connection = connection
        self.random = random.Random(seed)
        self.spaces: dict[str, int] = {}
        self.states: list[Held] = []
        for name in SPACES:
            tenant = name.partition("\x1f")[0] if "\x1f" in name else ""
            values = dict.fromkeys(("entries", "stored_bytes", "logical_bytes", "created_at_ms"), 0)
            row = connection.execute(
                insert(namespace)
                .values(name=name, tenant=tenant, **values)
                .returning(namespace.c.id)
            )
            self.spaces[name] = row.scalar_one()

    def add(self, **fixed: Any) -> Held:
        pick = self.random.choice
        created = NOW_MS - self.random.randrange(30) * DAY_MS
        digits = f"{created:012x}"
        row = Held(
            row=0,
            state_id=f"{digits[:8]}-{digits[8:]}-7000-8000-{self.random.getrandbits(48):012x}",
            space=pick(SPACES),
            kind=pick(KINDS),
            status=pick(("live", "live", "live", "quarantined", "recording")),
            tokens=tuple(pick((1, 2)) for _ in range(self.random.randint(1, 6))),
            in_tree=True,
            size=pick((0, 10, 20, 1 << 40)),
            created=created,
            touched=created + pick((0, 0, DAY_MS)),
            hits=pick((0, 1, 2)),
            pinned=pick((True, False, False)),
        )
        row = replace(row, **fixed)
        space = self.spaces[row.space]
        taken = any(
            (s.space, s.tokens, s.kind, s.status) == (row.space, row.tokens, row.kind, "live")
            for s in self.states
        )
        row = replace(
            row, in_tree=row.status != "recording" and not (taken and row.status == "live")
        )
        values = {
            "state_id": row.state_id,
            "namespace_id": space,
            "page_id": "page",
            "kind": row.kind,
            "status": row.status,
            "node_id": radix.insert(self.connection, space, pack(row.tokens))
            if row.in_tree
            else None,
            "token_count": len(row.tokens),
            "token_digest": self.random.randbytes(32),
            "logical_bytes": row.size,
            "overhead_bytes": 0,
            "created_at_ms": row.created,
            "touched_at_ms": row.touched,
            "hits": row.hits,
        }
        made = self.connection.execute(insert(state).values(values).returning(state.c.id))
        row = replace(row, row=made.scalar_one())
        # Pins of the others have run out, some of them at this very moment.
        ends = self.random.choice((None, NOW_MS + 1)) if row.pinned else NOW_MS
        if row.pinned or self.random.random() < 0.2:
            self.connection.execute(
                insert(pin).values(
                    state=row.row, expires_at_ms=ends, reason="r", actor="a", created_at_ms=1
                )
            )
        self.states.append(row)
        return row

    def remove(self, row: Held) -> None:
        self.states.remove(row)
        self.connection.execute(delete(state).where(state.c.id == row.row))

    def expected(self, wanted: Filter, order: Order) -> list[str]:
        found = sorted(
            (s for s in self.states if self.fits(s, wanted)),
            key=lambda s: self.key(s, order.sort),
            reverse=order.descending,
        )
        return [s.state_id for s in found]

    def key(self, s: Held, sort: Sort) -> tuple[int, str]:
        value = {"touched": s.touched, "size": s.size, "tokens": len(s.tokens), "hits": s.hits}
        return value.get(sort, 0), s.state_id

    def fits(self, s: Held, wanted: Filter) -> bool:
        scope = wanted.scope
        tenant = s.space.partition("\x1f")[0] if "\x1f" in s.space else ""
        under = wanted.under
        return (
            (scope is None or scope in (tenant, self.spaces[s.space]) or self._listed(s, scope))
            and wanted.status in (None, s.status)
            and wanted.kind in (None, s.kind)
            and (wanted.created_from_ms is None or s.created >= wanted.created_from_ms)
            and (wanted.created_to_ms is None or s.created <= wanted.created_to_ms)
            and (wanted.touched_to_ms is None or s.touched <= wanted.touched_to_ms)
            and (wanted.min_bytes is None or s.size >= wanted.min_bytes)
            and (wanted.max_bytes is None or s.size <= wanted.max_bytes)
            and wanted.pinned in (None, s.pinned)
            and (under is None or (s.in_tree and pack(s.tokens).startswith(under)))
        )

    def _listed(self, s: Held, scope: Any) -> bool:
        return isinstance(scope, tuple) and self.spaces[s.space] in scope

    def a_filter(self) -> Filter:
        """Any filter at all; most of them leave something."""

        def maybe(*values: Any) -> Any:
            return self.random.choice((None, None, None, *values))

        one = self.spaces[self.random.choice(SPACES)]
        some = tuple(self.random.sample(list(self.spaces.values()), 3))
        scope = self.random.choice((None, one, one, "", "a", "nobody", some, ()))
        under = maybe(pack((1,)), pack((1, 2)), pack((2, 2, 1, 1)), pack((3,)))
        return Filter(
            scope=scope,
            status=maybe("live", "quarantined", "recording"),
            kind=maybe(*KINDS),
            created_from_ms=maybe(NOW_MS - 10 * DAY_MS, NOW_MS + 1),
            created_to_ms=maybe(NOW_MS - 10 * DAY_MS, NOW_MS - 29 * DAY_MS),
            touched_to_ms=maybe(NOW_MS - 10 * DAY_MS),
            min_bytes=maybe(10, 21),
            max_bytes=maybe(0, 19, 1 << 60),
            under=under if isinstance(scope, int) else None,
            pinned=maybe(True, False),
        )

    def pages(self, wanted: Filter, order: Order, limit: int) -> Iterator[list[str]]:
        """Pages to the end, each of it begun when it is asked for."""
        after: Position | None = None
        while True:
            page = listing.page(self.connection, wanted, order, after, limit, NOW_MS)
            assert len(page.states) <= limit
            yield [found.state.state_id for found in page.states]
            after = page.after
            if after is None:
                return

    def everything(self, wanted: Filter, order: Order, limit: int) -> list[str]:
        """All pages together."""
        return [state_id for page in self.pages(wanted, order, limit) for state_id in page]


def pack(tokens: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


@pytest.fixture(params=["as it is", "bounds of a few rows"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """A store for which pages are gathered, and the same one for which they are walked."""
    if request.param != "as it is":
        monkeypatch.setattr(listing, "GATHERED", 4)
        monkeypatch.setattr(listing, "LOOKED_AT", 7)
        monkeypatch.setattr(listing, "LOOKED_AT_AMONG_OTHERS", 5)
        monkeypatch.setattr(listing, "LOOKED_AT_HERE_AND_THERE", 3)
    with database() as connection:
        made = Model(connection, seed=4)
        for _ in range(220):
            made.add()
        yield made


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_filter_in_every_order_gives_what_fits_once_and_in_order(
    model: Model, order: Order
) -> None:
    filled = 0
    for _ in range(20):
        wanted, limit = model.a_filter(), model.random.choice((1, 2, 7, 1000))
        expected = model.expected(wanted, order)
        assert model.everything(wanted, order, limit) == expected, (wanted, limit)
        filled += bool(expected)
    assert filled > 5


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_without_a_filter_every_state_comes_with_its_namespace_and_pin(
    model: Model, order: Order
) -> None:
    after: Position | None = None
    found: list[listing.ListedState] = []
    while True:
        page = listing.page(model.connection, Filter(), order, after, 50, NOW_MS)
        found += page.states
        after = page.after
        if after is None:
            break
    by_id = {s.state_id: s for s in model.states}
    assert [f.state.state_id for f in found] == model.expected(Filter(), order)
    for one in found:
        held = by_id[one.state.state_id]
        assert (one.namespace, one.pin is not None) == (held.space, held.pinned)
        assert one.pin is None or (one.pin.reason, one.pin.actor) == ("r", "a")


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_what_is_there_all_the_time_comes_once_while_others_come_and_go(
    model: Model, order: Order
) -> None:
    for wanted in (Filter(), Filter("a"), Filter(model.spaces["one"]), Filter(kind="kv")):
        steady = set(model.expected(wanted, order))
        gone: set[str] = set()
        found: list[str] = []
        for page in model.pages(wanted, order, 5):
            found += page
            for _ in range(2):
                model.add()
            leaving = model.random.choice(model.states)
            gone.add(leaving.state_id)
            model.remove(leaving)
            # The place itself may go: the last of the page.
            last = [s for s in model.states if page and s.state_id == page[-1]]
            if last and model.random.random() < 0.3:
                gone.add(last[0].state_id)
                model.remove(last[0])
            if len(found) > 400:
                break
        assert len(found) == len(set(found))
        assert steady - gone <= set(found)


@pytest.mark.parametrize("descending", [False, True])
def test_equal_uses_by_the_hundred_are_paged_through(model: Model, descending: bool) -> None:
    model.connection.execute(update(state).values(touched_at_ms=7))
    model.states = [replace(s, touched=7) for s in model.states]
    order = Order(Sort.TOUCHED, descending)
    for scope in (None, "a", model.spaces["two"], tuple(model.spaces.values())):
        expected = model.expected(Filter(scope), order)
        assert model.everything(Filter(scope), order, 3) == expected


def test_a_walk_that_finds_nothing_ends_its_page_and_goes_on_behind_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "GATHERED", 0)
    monkeypatch.setattr(listing, "LOOKED_AT", 50)
    nothing = Filter(min_bytes=1 << 50)
    pages = list(model.pages(nothing, Order(), 10))
    assert pages == [[]] * 5


def test_a_long_store_is_entered_at_the_time_that_is_asked_for(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the states of the last hour lay behind as many empty pages as there is history."""
    monkeypatch.setattr(listing, "LOOKED_AT", 50)
    since = NOW_MS - 2 * DAY_MS
    wanted, order = Filter(created_from_ms=since), Order()
    expected = model.expected(wanted, order)
    assert expected
    assert list(model.pages(wanted, order, 100)) == [expected]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_tokens_that_end_inside_an_edge_find_what_lies_below(model: Model, order: Order) -> None:
    space = model.spaces["one"]
    long = tuple(range(50, 90))
    below = [
        model.add(space="one", tokens=long + end, kind=kind, status="live").state_id
        for end in ((), (1,), (2,), (2, 3))
        for kind in ("kv", "full_state")
    ]
    for count in (1, 17, len(long)):
        wanted = Filter(space, under=pack(long[:count]))
        found = model.everything(wanted, order, 3)
        assert found == model.expected(wanted, order)
        assert set(found) == set(below)
    for tokens in ((*long[:17], 7), (*long, 2, 3, 4), (99,)):
        assert list(model.pages(Filter(space, under=pack(tokens)), order, 3)) == [[]]
    assert list(model.pages(Filter(model.spaces["two"], under=pack(long)), order, 3)) == [[]]
