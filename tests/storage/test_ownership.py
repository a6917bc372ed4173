"""Who owns which block: counts and bytes agree with a recount after any sequence of owning and letting go."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, select

from migrations import upgrade
from storage.errors import OverLimit
from storage.integrity import of_metadata
from storage.metadata import namespaces, ownership, recordings, states, totals
from storage.metadata.database import Database
from storage.metadata.schema import block, metadata, state_block
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
        seqs=range(len(blocks)),
        blocks=[_block(n) for n in blocks],
        limits=limits,
    )


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Database]:
    folder: Path = tmp_path_factory.mktemp("ownership")
    template = folder / "template.db"
    upgrade(template)
    numbers = count()

    def make() -> Database:
        return Database(Path(shutil.copy(template, folder / f"{next(numbers)}.db")))

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
        assert all(n.stored_bytes == 0 for n in namespaces.page(connection, None, 10, None))
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
    assert (caught.value.scope, caught.value.unit, caught.value.need) == (
        None,
        "bytes",
        100 + 12_288 - 10_000,
    )
    with (
        pytest.raises(OverLimit) as caught,
        database.write(durable=False) as connection,
    ):
        _own(connection, 1, [0], Limits(1 << 40, 1 << 40, namespace_bytes=4000))
    assert caught.value.scope == 1
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
        held = {n.name: n.stored_bytes for n in namespaces.page(connection, None, 10, None)}
        assert held == {"a": 12_288 + 200, "b": 12_288 + 100}
    database.close()


# ---- against a recount of one's own ----------------------------------------------------------

_OVERHEAD = 100
_SPACES = ("ns0", "ns1")
_RUN = st.lists(st.integers(0, 7), min_size=1, max_size=6)


def _dump(connection: Connection) -> dict[str, list[Any]]:
    """Every row of every table."""
    return {
        table.name: sorted(map(tuple, connection.execute(select(table))), key=repr)
        for table in metadata.sorted_tables
    }


def _state(connection: Connection, number: int) -> int:
    row = states.by_state_id(connection, f"state-{number}")
    assert row is not None
    return row.id


class Owners(RuleBasedStateMachine):
    """States own blocks, give them up whole or by component, and unowned blocks are forgotten.

    The model: the block numbers each state owns by component, and which blocks still have a row.
    """

    def __init__(self, database_file: Path) -> None:
        super().__init__()
        self.database = Database(database_file)
        self.numbers = count()
        self.owned: dict[int, dict[int, list[int]]] = {}
        self.space: dict[int, str] = {}
        self.known: set[int] = set()

    def teardown(self) -> None:
        try:
            with self.database.snapshot() as connection:
                assert of_metadata(connection) == []
        finally:
            self.database.close()

    # What the model says, counted from scratch.

    def refs(self) -> Counter[int]:
        return Counter(
            number for parts in self.owned.values() for run in parts.values() for number in run
        )

    def size_of(self, numbers: set[int]) -> int:
        return sum(_block(number)[2] for number in numbers)

    def owned_in(self, space: str) -> set[int]:
        mine = (parts for number, parts in self.owned.items() if self.space[number] == space)
        return {number for parts in mine for run in parts.values() for number in run}

    def store_bytes(self) -> int:
        return self.size_of(self.known) + _OVERHEAD * len(self.owned)

    def space_bytes(self, space: str) -> int:
        states_in = sum(1 for number in self.owned if self.space[number] == space)
        return self.size_of(self.owned_in(space)) + _OVERHEAD * states_in

    # What happens.

    @rule(space=st.sampled_from(_SPACES))
    def admit(self, space: str) -> None:
        number = next(self.numbers)
        with self.database.write(durable=False) as connection:
            recordings.admit(connection, _new(space, number), "me", 0)
        self.owned[number] = {}
        self.space[number] = space

    def take(
        self, connection: Connection, number: int, ordinal: int, run: list[int], limits: Limits
    ) -> None:
        row = states.by_state_id(connection, f"state-{number}")
        assert row is not None
        ownership.own(
            connection,
            state=row.id,
            namespace_id=row.namespace_id,
            ordinal=ordinal,
            seqs=range(first := len(self.owned[number].get(ordinal, [])), first + len(run)),
            blocks=[_block(n) for n in run],
            limits=limits,
        )

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), ordinal=st.integers(0, 2), run=_RUN)
    def own(self, data: st.DataObject, ordinal: int, run: list[int]) -> None:
        number = data.draw(st.sampled_from(sorted(self.owned)))
        new = self.size_of(set(run) - self.known)
        new_in_space = self.size_of(set(run) - self.owned_in(self.space[number]))
        exactly = Limits(
            self.store_bytes() + new,
            1 << 40,
            namespace_bytes=self.space_bytes(self.space[number]) + new_in_space,
        )
        with self.database.write(durable=False) as connection:
            self.take(connection, number, ordinal, run, exactly)
        self.owned[number].setdefault(ordinal, []).extend(run)
        self.known |= set(run)

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), run=_RUN, of_space=st.booleans(), short_by=st.integers(1, 5000))
    def own_too_much(
        self, data: st.DataObject, run: list[int], of_space: bool, short_by: int
    ) -> None:
        number = data.draw(st.sampled_from(sorted(self.owned)))
        space = self.space[number]
        if of_space:
            wanted = self.space_bytes(space) + self.size_of(set(run) - self.owned_in(space))
            limits = Limits(1 << 60, 1 << 40, namespace_bytes=wanted - short_by)
        else:
            wanted = self.store_bytes() + self.size_of(set(run) - self.known)
            limits = Limits(wanted - short_by, 1 << 40)
        with self.database.read() as connection:
            before = _dump(connection)
        with pytest.raises(OverLimit) as caught, self.database.write(durable=False) as connection:
            self.take(connection, number, 0, run, limits)
        assert (caught.value.need, caught.value.unit) == (short_by, "bytes")
        assert (caught.value.scope is not None) is of_space
        with self.database.read() as connection:
            assert _dump(connection) == before

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), ordinal=st.none() | st.integers(0, 2))
    def release(self, data: st.DataObject, ordinal: int | None) -> None:
        number = data.draw(st.sampled_from(sorted(self.owned)))
        with self.database.write(durable=False) as connection:
            row = states.by_state_id(connection, f"state-{number}")
            assert row is not None
            unowned = ownership.release(
                connection, state=row.id, namespace_id=row.namespace_id, ordinal=ordinal
            )
        before = set(self.refs())
        if ordinal is None:
            self.owned[number] = {}
        else:
            self.owned[number].pop(ordinal, None)
        assert unowned == self.size_of(before - set(self.refs()))

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.owned)))
        before = set(self.refs())
        with self.database.write(durable=False) as connection:
            row = states.by_state_id(connection, f"state-{number}")
            assert row is not None
            unowned = states.drop(connection, row, cause=None)
        del self.owned[number]
        assert unowned == self.size_of(before - set(self.refs()))

    @rule(most=st.integers(1, 5))
    def forget_some_unowned(self, most: int) -> None:
        waiting = self.known - set(self.refs())
        with self.database.write(durable=False) as connection:
            found = ownership.unowned(connection, most)
            ownership.forget(connection, [row for row, _ in found])
        gone = {int.from_bytes(digest, "little") for _, digest in found}
        assert gone <= waiting
        assert len(gone) == len(found) == min(most, len(waiting))
        self.known -= gone

    @precondition(lambda self: self.refs())
    @rule(data=st.data())
    def an_owned_block_is_not_forgotten(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.refs())))
        with self.database.write(durable=False) as connection:
            row = connection.execute(
                select(block.c.id).where(block.c.digest == _block(number)[0])
            ).scalar_one()
            ownership.forget(connection, [row])

    @invariant()
    def every_count_is_what_a_recount_gives(self) -> None:
        with self.database.snapshot() as connection:
            rows = connection.execute(select(block.c.digest, block.c.refs, block.c.stored_bytes))
            refs = self.refs()
            assert {
                int.from_bytes(digest, "little"): (owners, size) for digest, owners, size in rows
            } == {number: (refs[number], _block(number)[2]) for number in self.known}
            assert totals.stored_bytes(connection) == self.store_bytes()
            for row in namespaces.page(connection, None, 10, None):
                assert row.stored_bytes == self.space_bytes(row.name)
            everything = [_block(number)[0] for number in range(8)]
            assert ownership.known(connection, everything) == {
                everything[number] for number in self.known
            }

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def the_blocks_of_a_state_are_its_own_in_order(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.owned)))
        with self.database.snapshot() as connection:
            found = states.blocks(connection, _state(connection, number))
        assert [(row.ordinal, row.seq, row.digest) for row in found] == [
            (ordinal, seq, _block(n)[0])
            for ordinal, run in sorted(self.owned[number].items())
            for seq, n in enumerate(run)
        ]


def test_every_count_agrees_with_a_recount_of_ones_own_after_every_step(tmp_path: Path) -> None:
    template = tmp_path / "template.db"
    upgrade(template)
    numbers = count()

    class OnItsOwnFile(Owners):
        def __init__(self) -> None:
            super().__init__(Path(shutil.copy(template, tmp_path / f"{next(numbers)}.db")))

    run_state_machine_as_test(
        OnItsOwnFile,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.mark.parametrize("limits", [Limits(0, 9), Limits(1 << 40, 9, namespace_bytes=0)])
def test_what_is_over_a_limit_leaves_nothing_at_all(
    fresh: Callable[[], Database], limits: Limits
) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        recordings.admit(connection, _new("ns", 1), "me", 0)
        _own(connection, 1, [0, 1], UNLIMITED)
        recordings.admit(connection, _new("ns", 2), "me", 0)
        before = _dump(connection)
    with pytest.raises(OverLimit), database.write(durable=False) as connection:
        _own(connection, 2, [0, 1, 2, 3, 3], limits)
    with database.read() as connection:
        assert _dump(connection) == before
        assert ownership.known(connection, [_block(2)[0], _block(3)[0]]) == set()
    database.close()


def test_a_limit_may_be_reached_exactly(fresh: Callable[[], Database]) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        recordings.admit(connection, _new("ns", 1), "me", 0)
        _own(connection, 1, [0, 0, 1], Limits(12_388, 9, namespace_bytes=12_388))
        assert totals.stored_bytes(connection) == 12_388
        with pytest.raises(OverLimit) as caught:
            ownership.check_room(connection, 1, Limits(12_388, 9), new_bytes=1)
        assert caught.value.need == 1
        ownership.check_room(connection, 1, Limits(12_388, 9, namespace_bytes=12_388))
    database.close()


def test_an_unowned_block_counts_in_the_store_until_it_is_forgotten_and_in_no_namespace(
    fresh: Callable[[], Database],
) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        recordings.admit(connection, _new("ns", 1), "me", 0)
        _own(connection, 1, [0, 1], UNLIMITED)
        row = states.by_state_id(connection, "state-1")
        assert row is not None
        assert states.drop(connection, row, cause=None) == 12_288
        assert totals.stored_bytes(connection) == 12_288
        assert namespaces.by_id(connection, 1).stored_bytes == 0
        found = ownership.unowned(connection, 10)
        assert [digest for _, digest in found] == [_block(0)[0], _block(1)[0]]
        ownership.forget(connection, [id_ for id_, _ in found])
        ownership.forget(connection, [id_ for id_, _ in found])
        assert totals.stored_bytes(connection) == 0
    database.close()


def test_an_unowned_block_taken_again_is_not_charged_twice_and_not_forgotten(
    fresh: Callable[[], Database],
) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        recordings.admit(connection, _new("ns", 1), "me", 0)
        recordings.admit(connection, _new("ns", 2), "me", 0)
        _own(connection, 1, [0], UNLIMITED)
        row = states.by_state_id(connection, "state-1")
        assert row is not None
        states.drop(connection, row, cause=None)
        found = ownership.unowned(connection, 10)
        _own(connection, 2, [0], UNLIMITED)
        ownership.forget(connection, [id_ for id_, _ in found])
        assert ownership.known(connection, [_block(0)[0]]) == {_block(0)[0]}
        assert totals.stored_bytes(connection) == 4096 + 100
        assert of_metadata(connection) == []
    database.close()


def test_a_block_keeps_the_size_it_was_first_stored_with(fresh: Callable[[], Database]) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        recordings.admit(connection, _new("ns", 1), "me", 0)
        recordings.admit(connection, _new("other", 2), "me", 0)
        _own(connection, 1, [0], UNLIMITED)
        digest, raw_bytes, stored_bytes = _block(0)
        ownership.own(
            connection,
            state=_state(connection, 2),
            namespace_id=2,
            ordinal=0,
            seqs=[0],
            blocks=[(digest, raw_bytes, 99 * stored_bytes)],
            limits=UNLIMITED,
        )
        assert namespaces.by_id(connection, 2).stored_bytes == stored_bytes + 100
        assert of_metadata(connection) == []
    database.close()


def test_letting_go_twice_changes_nothing(fresh: Callable[[], Database]) -> None:
    database = fresh()
    with database.write(durable=False) as connection:
        recordings.admit(connection, _new("ns", 1), "me", 0)
        _own(connection, 1, [0, 0], UNLIMITED)
        row = _state(connection, 1)
        assert ownership.release(connection, state=row, namespace_id=1, ordinal=1) == 0
        assert ownership.release(connection, state=row, namespace_id=1, ordinal=0) == 4096
        before = _dump(connection)
        assert ownership.release(connection, state=row, namespace_id=1, ordinal=0) == 0
        assert ownership.release(connection, state=row, namespace_id=1) == 0
        assert _dump(connection) == before
        assert connection.execute(select(state_block)).all() == []
    database.close()
