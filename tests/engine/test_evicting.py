"""A dry run equals the real one that follows, on any set of states that share blocks in any way."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine import evicting, eviction
from app.engine.access import EVERYONE, Caller
from app.engine.errors import NotFound, Refused
from app.engine.evicting import Choice, Evicted, Evictions
from app.engine.eviction import Evictor
from app.engine.notes import Notes
from app.engine.policy import Policy
from app.scopes import SCOPES
from app.settings import Settings
from storage.errors import OverLimit
from storage.integrity import of_metadata
from storage.layout import DataFolder
from storage.rows import Limits
from storage.store import Store
from tests.support.filled import open_store, put, state_id

_SPACES = ("a", "b", "t\x1fa", "t\x1fb")


class Desk:
    """The parts of the engine that evict, over a store of their own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        notes = Notes(store)
        self.evictor = Evictor(store, Policy(Settings(), lambda: None), notes)
        self.evictions = Evictions(store, self.evictor, notes)

    def evict(self, choice: Choice, *, dry_run: bool, caller: Caller = EVERYONE) -> Evicted:
        return asyncio.run(self.evictions.of(choice, caller, dry_run=dry_run))

    def evict_ids(self, ids: list[str], *, dry_run: bool) -> Evicted:
        return asyncio.run(self.evictions.of_states(ids, EVERYONE, dry_run=dry_run))

    def close(self) -> None:
        self.evictions.close()
        self.store.close()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Desk]:
    folder: Path = tmp_path_factory.mktemp("evicting")
    open_store(folder / "template").close()
    numbers = count()

    def make() -> Desk:
        path = folder / str(next(numbers))
        shutil.copytree(folder / "template", path)
        return Desk(Store(DataFolder(path)))

    return make


@pytest.fixture
def desk(fresh: Callable[[], Desk]) -> Iterator[Desk]:
    found = fresh()
    yield found
    found.close()


_STATES = st.lists(
    st.tuples(
        st.integers(0, len(_SPACES) - 1),
        st.lists(st.integers(0, 9), max_size=6),  # few numbers: many are shared, some twice in one
        st.sampled_from(("free", "free", "free", "pinned", "leased", "quarantined")),
        st.integers(1, 6),  # when it was used last; equal for some
    ),
    min_size=1,
    max_size=10,
)
_CHOICES = st.builds(
    Choice,
    namespace=st.sampled_from((None, None, "a", "b")),
    tenant=st.sampled_from((None, None, "t", "default")),
    target_bytes=st.sampled_from((None, 0, 1, 5_000, 20_000, 60_000)),
    untouched_for_s=st.none(),
)


@settings(max_examples=60, deadline=None)
@given(_STATES, st.one_of(_CHOICES, st.lists(st.integers(0, 9), min_size=1, max_size=6)))
def test_a_dry_run_equals_the_real_one(
    fresh: Callable[[], Desk], states: list[Any], wanted: Choice | list[int]
) -> None:
    desk = fresh()
    store = desk.store
    try:
        for number, (space, blocks, fate, used) in enumerate(states):
            name = put(store, number, _SPACES[space], blocks)
            with store.db.write(durable=False) as connection:
                connection.exec_driver_sql(
                    "UPDATE state SET touched_at_ms = ? WHERE state_id = ?", (used, name)
                )
            if fate == "pinned":
                store.pin(name, ttl_ms=None, reason="r", actor="a", budget_bytes=1 << 60)
            elif fate == "leased":
                store.ledger.lease(name, name, 60_000)
            elif fate == "quarantined":
                from storage.rows import Evidence

                store.quarantine(name, Evidence("operator", "r", "operator"))

        def run(*, dry_run: bool) -> Evicted | None:
            try:
                if isinstance(wanted, Choice):
                    return desk.evict(wanted, dry_run=dry_run)
                return desk.evict_ids([state_id(n) for n in wanted], dry_run=dry_run)
            except NotFound:
                return None

        before = store.catalog.usage().stored_bytes
        planned = run(dry_run=True)
        assert store.catalog.usage().stored_bytes == before
        found = run(dry_run=False)
        assert planned == found
        if found is not None:
            assert store.catalog.usage().stored_bytes == before - found.freed_bytes
            assert store.catalog.unowned_blocks() == 0
        with store.db.read() as connection:
            assert of_metadata(connection) == []
    finally:
        desk.close()


def test_rounds_and_pages_change_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many more states than a round or a page takes, and a tally that has to begin anew in between."""
    for n in range(150):
        put(desk.store, n, "a", [n // 2, 1000 + n // 10, 2000])
    held = desk.store.catalog.usage().stored_bytes
    choice = Choice(target_bytes=held // 3)
    planned = desk.evict(choice, dry_run=True)
    monkeypatch.setattr(evicting, "_MOST_SHARED", 2)
    monkeypatch.setattr(evicting, "_MOST_BYTES_AT_ONCE", 5000)
    assert desk.evict(choice, dry_run=True).more is True  # it gave up early, and says so
    found = desk.evict(choice, dry_run=False)
    assert planned == found
    assert 16 < found.evicted_count < 150
    assert desk.store.catalog.usage().stored_bytes == held - found.freed_bytes <= held // 3


def test_a_state_that_is_used_during_a_dry_run_is_counted_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evicting, "_PAGE", 2)
    ids = [put(desk.store, n, "a", [n]) for n in range(6)]
    page = desk.store.catalog.candidates

    def used_meanwhile(*args: Any, **more: Any) -> Any:
        found = page(*args, **more)
        with desk.store.db.write(durable=False) as connection:
            connection.exec_driver_sql(
                "UPDATE state SET touched_at_ms = touched_at_ms + 1000000 WHERE state_id = ?",
                (ids[0],),
            )
        return found

    monkeypatch.setattr(desk.store.catalog, "candidates", used_meanwhile)
    found = desk.evict(Choice(namespace="a"), dry_run=True)
    assert list(found.evicted) == ids


def test_what_is_recorded_after_the_request_is_none_of_its_business(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or an eviction beside a busy recorder would never end."""
    monkeypatch.setattr(evicting, "_PAGE", 1)
    old = [put(desk.store, n, "a", [n]) for n in range(3)]
    numbers = count(100)
    page = desk.store.catalog.candidates

    def recorded_meanwhile(*args: Any, **more: Any) -> Any:
        import time

        time.sleep(0.002)
        put(desk.store, next(numbers), "a", [7])
        return page(*args, **more)

    monkeypatch.setattr(desk.store.catalog, "candidates", recorded_meanwhile)
    found = desk.evict(Choice(target_bytes=0), dry_run=False)
    assert list(found.evicted) == old
    assert desk.store.catalog.usage().entries > 0


def test_patterns_make_a_scope_of_several_namespaces(desk: Desk) -> None:
    import re

    caller = Caller("x", None, frozenset(SCOPES), (re.compile("mine-.*"),))
    mine = [put(desk.store, n, f"mine-{n % 2}", [n]) for n in range(4)]
    put(desk.store, 9, "other", [9])
    put(desk.store, 10, "t\x1fmine-1", [10])
    found = desk.evict(Choice(target_bytes=0), dry_run=True, caller=caller)
    assert list(found.evicted) == mine


# ---- by need -----------------------------------------------------------------------------------


def _need_one(desk: Desk) -> None:
    entries = desk.store.catalog.usage().entries
    desk.evictor.make_room(OverLimit(None, "entries", 1), Limits(1 << 60, entries))


def test_need_looks_on_behind_its_last_victims_and_comes_back_for_those_it_passed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [put(desk.store, n, "a", [n]) for n in range(8)]
    desk.store.pin(ids[0], ttl_ms=None, reason="r", actor="a", budget_bytes=1 << 60)
    _need_one(desk)
    assert desk.store.catalog.state(ids[1]) is None
    desk.store.unpin(ids[0])
    _need_one(desk)
    assert desk.store.catalog.state(ids[0]) is not None, "it looks behind its last victims first"
    monkeypatch.setattr(eviction, "_REMEMBERED_SECONDS", 0.0)
    desk.evictor._places.clear()
    _need_one(desk)
    assert desk.store.catalog.state(ids[0]) is None


def test_need_comes_back_at_once_when_nothing_is_left_behind(desk: Desk) -> None:
    ids = [put(desk.store, n, "a", [n]) for n in range(3)]
    desk.store.pin(ids[0], ttl_ms=None, reason="r", actor="a", budget_bytes=1 << 60)
    _need_one(desk)
    _need_one(desk)
    desk.store.unpin(ids[0])
    _need_one(desk)
    assert desk.store.catalog.usage().entries == 0


def test_need_is_refused_when_all_that_is_left_is_pinned(desk: Desk) -> None:
    name = put(desk.store, 1, "a", [1])
    desk.store.pin(name, ttl_ms=None, reason="r", actor="a", budget_bytes=1 << 60)
    with pytest.raises(Refused) as refused:
        _need_one(desk)
    assert (refused.value.code, refused.value.retry_after_s) == ("at_capacity", 5)
    assert "pinned" in refused.value.detail
    assert desk.store.catalog.state(name) is not None
