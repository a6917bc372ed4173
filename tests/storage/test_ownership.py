"""Who owns which block: counts and bytes agree with a recount after any sequence of owning and letting go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from migrations import upgrade
from storage.errors import OverLimit
from storage.integrity import of_metadata
from storage.metadata import namespaces, ownership, recordings, states, totals
from storage.metadata.database import Database
from storage.rows import Limits, NewComponent, NewRecording

UNLIMITED = Limits(1 << 60, 1 << 40)


def _new(name: str, number: int) -> NewRecording:
    return NewRecording(
        state_id=f"state-{number}",
        namespace=name,
        page_id="p",
        kind="full_state",
        tokens=number.to_bytes(4, "little"),
        token_digest=number.to_bytes(32, "little"),
        components=(NewComponent("full", 1),),
        kv_descriptor=None,
        overhead_bytes=100,
        replace=False,
        ttl_ms=1000,
    )


def _block(number: int) -> tuple[bytes, int, int]:
    return number.to_bytes(32, "little"), 1000, 4096 * (1 + number % 3)


def _own(connection: Connection, number: int, blocks: list[int], limits: Limits) -> None:
    row = states.by_state_id(connection, f"state-{number}")
    assert row is not None
    ownership.own(
        connection,
        state=row.id,
        namespace_id=row.namespace_id,
        ordinal=0,
        first_seq=0,
        blocks=[_block(n) for n in blocks],
        limits=limits,
    )


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Database]:
    folder = tmp_path_factory.mktemp("ownership")
    count = 0

    def make() -> Database:
        nonlocal count
        count += 1
        path: Path = folder / f"{count}.db"
        upgrade(path)
        return Database(path)

    return make


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.lists(st.integers(0, 5), min_size=1, max_size=6)),
        min_size=1,
        max_size=8,
    ),
    st.randoms(),
)
def test_counts_agree_with_a_recount_after_anything(
    fresh: Callable[[], Database], steps: list[tuple[int, list[int]]], chance: object
) -> None:
    database = fresh()
    alive: list[int] = []
    with database.write(durable=False) as connection:
        for number, (space, blocks) in enumerate(steps):
            recordings.admit(connection, _new(f"ns{space}", number), "me", 0)
            _own(connection, number, blocks, UNLIMITED)
            alive.append(number)
            if len(alive) > 2 and chance.random() < 0.5:  # type: ignore[attr-defined]
                gone = alive.pop(chance.randrange(len(alive)))  # type: ignore[attr-defined]
                row = states.by_state_id(connection, f"state-{gone}")
                assert row is not None
                states.drop(connection, row, cause=None)
            if chance.random() < 0.3:  # type: ignore[attr-defined]
                unowned = ownership.unowned(connection, 3)
                ownership.forget(connection, [row_ for row_, _ in unowned])
            assert of_metadata(connection) == []
        for number in alive:
            row = states.by_state_id(connection, f"state-{number}")
            assert row is not None
            states.drop(connection, row, cause=None)
        ownership.forget(connection, [row_ for row_, _ in ownership.unowned(connection, 100)])
        assert totals.stored_bytes(connection) == 0
        assert all(n.stored_bytes == 0 for n in namespaces.page(connection, None, 10))
    database.close()


def test_what_breaks_a_limit_is_refused_with_how_much_must_go(
    fresh: Callable[[], Database],
) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        recordings.admit(connection, _new("ns", 1), "me", 0)
    before = 100
    with (
        pytest.raises(OverLimit) as caught,
        database.write(durable=False) as connection,
    ):
        _own(connection, 1, [0, 1], Limits(10_000, 1 << 40))
    assert (caught.value.namespace_id, caught.value.need_bytes) == (None, 100 + 12_288 - 10_000)
    with (
        pytest.raises(OverLimit) as caught,
        database.write(durable=False) as connection,
    ):
        _own(connection, 1, [0], Limits(1 << 40, 1 << 40, namespace_bytes=4000))
    assert caught.value.namespace_id == 1
    with database.read() as connection:
        assert totals.stored_bytes(connection) == before
        assert of_metadata(connection) == []
    database.close()


def test_a_block_shared_by_namespaces_counts_once_in_each_and_once_in_the_store(
    fresh: Callable[[], Database],
) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        for number, name in enumerate(("a", "b", "a")):
            recordings.admit(connection, _new(name, number), "me", 0)
            _own(connection, number, [0, 0, 1], UNLIMITED)
        assert totals.stored_bytes(connection) == 4096 + 8192 + 300
        held = {n.name: n.stored_bytes for n in namespaces.page(connection, None, 10)}
        assert held == {"a": 12_288 + 200, "b": 12_288 + 100}
    database.close()
