"""Pins and the order of going, on a store without a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.blocks.codec import footprint_bytes
from storage.clock import wall_ms
from storage.errors import Conflict, NotHeld, OverLimit
from storage.integrity import of_metadata
from storage.metadata import pins, victims
from storage.metadata.scope import Scope
from storage.metadata.victims import Place
from storage.store import Store
from tests.support.filled import block, open_store, put, state_id

ALL = 1 << 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(tmp_path / "data")
    yield found
    with found.db.read() as connection:
        assert of_metadata(connection) == []
    found.close()


def pin(store: Store, name: str, ttl_ms: int | None = None, budget_bytes: int = ALL) -> None:
    store.pin(name, ttl_ms=ttl_ms, reason="r", actor="a", budget_bytes=budget_bytes)


def names(store: Store, scope: Scope = None, after: Place | None = None) -> list[str]:
    return [row.state_id for row in store.catalog.least_recent(scope, 100, "live", after)]


def touch(store: Store, at_ms: dict[str, int]) -> None:
    with store.db.write(durable=False) as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.executemany(
            "UPDATE state SET touched_at_ms = ? WHERE state_id = ?",
            [(at, name) for name, at in at_ms.items()],
        )


def test_the_order_of_going_has_neither_the_pinned_nor_the_leased(store: Store) -> None:
    ids = [put(store, n, "a", [n]) for n in range(5)]
    touch(store, {ids[0]: 50, ids[1]: 10, ids[2]: 10, ids[3]: 5, ids[4]: 7})
    assert names(store) == [ids[3], ids[4], ids[1], ids[2], ids[0]]
    pin(store, ids[4])
    store.ledger.lease("lease", ids[1], 60_000)
    assert names(store) == [ids[3], ids[2], ids[0]]
    store.unpin(ids[4])
    assert names(store) == [ids[3], ids[4], ids[2], ids[0]]


def test_a_walk_goes_on_behind_its_place(store: Store) -> None:
    ids = [put(store, n, "a", [n]) for n in range(6)]
    touch(store, dict(zip(ids, (1, 2, 2, 2, 3, 4), strict=True)))
    seen = store.catalog.least_recent(None, 3)
    last = seen[-1]
    assert [row.state_id for row in seen] == ids[:3]
    assert names(store, after=Place(last.touched_at_ms, last.id)) == ids[3:]


def test_scopes_are_walked_by_the_same_order(store: Store) -> None:
    spaces = ["a", "t\x1fa", "t\x1fb", "u\x1fa"]
    ids = [put(store, n, spaces[n % 4], [n]) for n in range(12)]
    touch(store, {name: 100 - n for n, name in enumerate(ids)})
    rows = dict(store.catalog.namespace_names("t"))
    by_name = {name: row for row, name in rows.items()}

    def expected(wanted: set[str]) -> list[str]:
        return [ids[n] for n in reversed(range(12)) if spaces[n % 4] in wanted]

    assert names(store) == expected(set(spaces))
    assert names(store, "t") == expected({"t\x1fa", "t\x1fb"})
    assert names(store, "") == expected({"a"})
    assert names(store, by_name["t\x1fb"]) == expected({"t\x1fb"})
    assert names(store, (by_name["t\x1fa"],)) == expected({"t\x1fa"})
    assert names(store, tuple(rows)) == expected({"t\x1fa", "t\x1fb"})
    assert names(store, ()) == names(store, "nobody") == []


def test_the_order_comes_from_an_index_and_pins_are_asked_by_their_key(store: Store) -> None:
    """What the speed at a million states rests on: no sort, no scan."""
    put(store, 1, "a", [1])
    for scope in (None, 1, "t", (1, 2)):
        for after in (None, Place(5, 5)):
            plan = _plan(store, scope, after)
            assert not any("TEMP B-TREE" in line for line in plan), plan
            walk = next(line for line in plan if "state_lru" in line or "namespace_lru" in line)
            assert ("touched_at_ms>" in walk) == (after is not None), plan
            assert "SEARCH pin USING INTEGER PRIMARY KEY (rowid=?)" in plan


def _plan(store: Store, scope: Scope, after: Place | None) -> list[str]:
    seen: list[tuple[str, object]] = []
    with store.db.read() as connection:
        from sqlalchemy import event

        def keep(_c: object, _cursor: object, text: str, given: object, *_: object) -> None:
            seen.append((text, given))

        event.listen(connection, "before_cursor_execute", keep)
        try:
            victims.least_recent(connection, scope, "live", 16, 0, 0, after)
        finally:
            event.remove(connection, "before_cursor_execute", keep)
        driver = connection.connection.driver_connection
        assert driver is not None
        ((text, given),) = seen
        rows = driver.execute(f"EXPLAIN QUERY PLAN {text}", given).fetchall()
    return [row[3] for row in rows]


def test_pins_are_listed_from_the_pins(store: Store) -> None:
    """Not by going through the states, which may be a million."""
    put(store, 1, "a", [1])
    with store.db.read() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        seen: list[str] = []
        driver.set_trace_callback(seen.append)
        try:
            pins.page(connection, state_id(0), 10, "t", wall_ms())
            pins.by_namespace(connection, wall_ms())
            pins.total(connection, wall_ms())
        finally:
            driver.set_trace_callback(None)
        assert len(seen) == 3
        for text in seen:
            plan = [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {text}")]
            assert "SCAN pin" in plan, plan
            assert "SEARCH state USING INTEGER PRIMARY KEY (rowid=?)" in plan, plan


def test_evict_decides_under_the_write_lock(store: Store) -> None:
    ids = [put(store, n, "a", [n]) for n in range(3)]
    chosen = [row.state_id for row in store.catalog.least_recent(None, 3)]
    pin(store, ids[0])
    store.ledger.lease("lease", ids[1], 60_000)
    found = store.evict(chosen, "budget")
    assert (found.dropped, found.kept_leased, found.kept_pinned) == (
        (ids[2],),
        (ids[1],),
        (ids[0],),
    )


def test_what_frees_how_much(store: Store) -> None:
    ids = [put(store, 1, "a", [3, 4]), put(store, 2, "b", [4, 5])]
    held = store.catalog.usage().stored_bytes
    first = store.evict(ids[:1], "admin")
    assert first.freed_bytes == 101 + footprint_bytes(block(3).value_bytes)
    second = store.evict(ids[1:], "admin")
    while store.reclaim():
        pass
    assert first.freed_bytes + second.freed_bytes == held
    assert store.catalog.usage().stored_bytes == 0


def test_pins_refuse_what_is_not_in_service_and_what_is_too_much(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [put(store, n, "a", [n, n + 1]) for n in range(3)]
    with pytest.raises(NotHeld):
        pin(store, state_id(99))
    pin(store, ids[0], budget_bytes=2000)
    with pytest.raises(OverLimit) as over:
        pin(store, ids[1], budget_bytes=3999)
    assert (over.value.unit, over.value.need) == ("pinned_bytes", 1)
    monkeypatch.setattr(pins, "MOST", 1)
    with pytest.raises(OverLimit) as over:
        pin(store, ids[1])
    assert over.value.unit == "pins"
    store.ledger.lease("lease", ids[2], 60_000)
    put(store, 1_000_002, "a", [7], replace=True)
    with pytest.raises(Conflict):
        pin(store, ids[2])
    with pytest.raises(NotHeld):
        store.unpin(ids[1])


def test_pins_that_have_run_out_are_removed_and_no_others(store: Store) -> None:
    ids = [put(store, n, "a", [n]) for n in range(4)]
    pin(store, ids[0], ttl_ms=1)
    pin(store, ids[1], ttl_ms=1)
    pin(store, ids[2], ttl_ms=60_000)
    pin(store, ids[3])
    time.sleep(0.01)
    assert names(store) == ids[:2]
    assert sorted(one.state_id for one in store.catalog.pins(None, 10, None)) == ids[2:]
    pin(store, ids[1])  # pinned anew before anybody has tidied up
    assert (store.remove_expired_pins(), store.remove_expired_pins()) == (1, 0)
    assert len(store.catalog.pins(None, 10, None)) == 3


def test_a_pin_that_races_with_an_eviction_comes_before_or_after_it(store: Store) -> None:
    ids = [put(store, n, "a", [n]) for n in range(60)]
    pinned: list[str] = []
    late: list[str] = []
    gate = threading.Barrier(2)

    def keep() -> None:
        for name in ids:
            gate.wait()
            try:
                pin(store, name)
            except NotHeld:
                late.append(name)
            else:
                pinned.append(name)

    pinner = threading.Thread(target=keep)
    pinner.start()
    kept: list[str] = []
    for name in ids:
        gate.wait()
        kept += store.evict([name], "admin").kept_pinned
    pinner.join()
    assert kept == pinned
    assert sorted(pinned + late) == ids
    assert all((store.catalog.state(name) is not None) == (name in pinned) for name in ids)
