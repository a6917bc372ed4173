"""The radix tree against a dict: what it finds, how few nodes it needs, and that ids keep their meaning."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pysqlite3 import dbapi2
from sqlalchemy import Connection, bindparam, create_engine, insert, select, text, update
from sqlalchemy.pool import StaticPool

from migrations import upgrade
from storage.errors import Conflict
from storage.integrity import of_metadata
from storage.metadata import namespaces, radix, recordings, schema, states
from storage.metadata.database import Database
from storage.metadata.schema import namespace, radix_node, state
from storage.metadata.statements import HotStatement
from storage.rows import Limits, NewComponent, NewRecording

Tokens = tuple[int, ...]

_INT32 = struct.Struct("<i").pack

_walk = radix.walk(bindparam("namespace_id"), bindparam("query"))
_NODES_ON_PATH = HotStatement(select(_walk.c.id, _walk.c.depth).order_by(_walk.c.depth))
_STATES_ON_PATH = HotStatement(
    select(state.c.state_id, _walk.c.depth)
    .select_from(_walk.join(state, state.c.node_id == _walk.c.id))
    .order_by(_walk.c.depth, state.c.state_id)
)


def pack(tokens: Tokens) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


def depth_first(tokens: Tokens) -> tuple[bytes, ...]:
    """Sort key: siblings are in the order of their tokens' bytes."""
    return tuple(map(_INT32, tokens))


def common(a: Tokens, b: Tokens) -> Tokens:
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return a[:length]


def needed_nodes(held: set[Tokens]) -> list[Tokens]:
    """The prefixes of the smallest tree over `held`, depth first: root, held ones, where two part."""
    in_order = sorted(held, key=depth_first)
    # Every place where two held prefixes part is one where two neighbours in this order part.
    nodes = {(), *held, *(common(a, b) for a, b in pairwise(in_order))}
    return sorted(nodes, key=depth_first)


@contextmanager
def database() -> Iterator[Connection]:
    engine = create_engine(
        "sqlite://",
        module=dbapi2,
        poolclass=StaticPool,
        connect_args={"isolation_level": None, "check_same_thread": False},
        skip_autocommit_rollback=True,
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=ON")
        schema.metadata.create_all(connection)
        yield connection
    engine.dispose()


def add_namespace(connection: Connection, name: str) -> int:
    values = {"name": name, "entries": 0, "stored_bytes": 0, "logical_bytes": 0, "created_at_ms": 0}
    statement = insert(namespace).values(values).returning(namespace.c.id)
    return int(connection.execute(statement).scalar_one())


_ids = count()


def add_state(
    connection: Connection, namespace_id: int, node: int, tokens: Tokens, kind: str = "kv"
) -> str:
    name = f"state-{next(_ids):08}"
    connection.execute(
        insert(state).values(
            state_id=name,
            namespace_id=namespace_id,
            page_id="page",
            kind=kind,
            status="live",
            node_id=node,
            token_count=len(tokens),
            token_digest=b"\0" * 32,
            logical_bytes=0,
            overhead_bytes=0,
            created_at_ms=0,
            touched_at_ms=0,
            hits=0,
        )
    )
    return name


def hold(connection: Connection, namespace_id: int, tokens: Tokens) -> tuple[int, str]:
    node = radix.insert(connection, namespace_id, pack(tokens))
    return node, add_state(connection, namespace_id, node, tokens)


def let_go(connection: Connection, node: int, state_id: str) -> None:
    connection.execute(state.delete().where(state.c.state_id == state_id))
    radix.remove(connection, node)


def prefixes(connection: Connection, namespace_id: int) -> list[Tokens]:
    """What the listed nodes stand for, in the order of the listing."""
    found = []
    for row in radix.listing(connection, namespace_id, 10_000):
        packed = radix.tokens_of(connection, row.node_id)
        found.append(struct.unpack(f"<{len(packed) // 4}i", packed))
    return found


def depths_on_path(connection: Connection, namespace_id: int, query: Tokens) -> list[int]:
    rows = _NODES_ON_PATH.all(connection, namespace_id=namespace_id, query=pack(query))
    return [depth for _, depth in rows]


# Tokens that share bytes with each other at every offset: a comparison that is off by a byte shows.
_TOKEN = st.sampled_from([0, 1, 256, 1 << 24, -1])
_PIECE = st.one_of(
    st.lists(_TOKEN, min_size=1, max_size=4).map(tuple),
    st.sampled_from([(0,) * 40, (0,) * 39 + (1,), tuple(range(50))]),
)
_TOKENS = st.lists(_PIECE, min_size=1, max_size=3).map(lambda pieces: sum(pieces, ()))
_KIND = st.sampled_from(["kv", "full_state"])
_SPACE = st.sampled_from(["one", "two"])


class Tree(RuleBasedStateMachine):
    """Two namespaces in one table. The model is a dict: (namespace, tokens, kind) -> (node, state)."""

    @initialize()
    def begin(self) -> None:
        self.scope = database()
        self.connection = self.scope.__enter__()
        self.namespaces = [add_namespace(self.connection, name) for name in ("one", "two")]
        self.used: set[int] = set()
        self.held: dict[tuple[int, Tokens, str], tuple[int, str]] = {}

    def teardown(self) -> None:
        if hasattr(self, "scope"):
            try:
                for space in self.namespaces:
                    self.inspect_one(space)
            finally:
                self.scope.__exit__(None, None, None)

    def record_into(self, which: int, tokens: Tokens, kind: str) -> None:
        space = self.namespaces[which]
        node = radix.insert(self.connection, space, pack(tokens))
        self.used.add(space)
        siblings = {n for (s, t, _), (n, _) in self.held.items() if (s, t) == (space, tokens)}
        assert siblings <= {node}
        if (space, tokens, kind) not in self.held:
            name = add_state(self.connection, space, node, tokens, kind)
            self.held[space, tokens, kind] = (node, name)

    @rule(which=st.integers(0, 1), tokens=_TOKENS, kind=_KIND)
    def record(self, which: int, tokens: Tokens, kind: str) -> None:
        self.record_into(which, tokens, kind)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=_TOKENS, kind=_KIND)
    def record_a_relative(self, data: st.DataObject, more: Tokens, kind: str) -> None:
        space, tokens, _ = data.draw(st.sampled_from(sorted(self.held)))
        keep = data.draw(st.integers(1, len(tokens)))
        longer = data.draw(st.booleans())
        which = self.namespaces.index(space)
        self.record_into(which, tokens[:keep] + (more if longer else ()), kind)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        node, name = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        let_go(self.connection, node, name)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def detach_a_replaced_one(self, data: st.DataObject) -> None:
        node, name = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        where = state.c.state_id == name
        self.connection.execute(update(state).where(where).values(node_id=None))
        radix.remove(self.connection, node)

    @rule(which=st.integers(0, 1), tokens=_TOKENS)
    def record_and_roll_back(self, which: int, tokens: Tokens) -> None:
        self.connection.exec_driver_sql("BEGIN IMMEDIATE")
        radix.insert(self.connection, self.namespaces[which], pack(tokens))
        self.connection.exec_driver_sql("ROLLBACK")

    def expect_found(self, space: int, query: Tokens) -> None:
        rows = _STATES_ON_PATH.all(self.connection, namespace_id=space, query=pack(query))
        assert sorted(rows) == sorted(
            (name, len(tokens))
            for (of, tokens, _), (_, name) in self.held.items()
            if of == space and query[: len(tokens)] == tokens
        )

    @rule(which=st.integers(0, 1), query=_TOKENS)
    def look_up(self, which: int, query: Tokens) -> None:
        self.expect_found(self.namespaces[which], query)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), which=st.integers(0, 1), more=_TOKENS)
    def look_up_a_relative(self, data: st.DataObject, which: int, more: Tokens) -> None:
        _, tokens, _ = data.draw(st.sampled_from(sorted(self.held)))
        keep = data.draw(st.integers(1, len(tokens)))
        self.expect_found(self.namespaces[which], tokens[:keep] + more)
        self.expect_found(self.namespaces[which], tokens[:keep])

    @invariant()
    def it_is_the_smallest_tree_and_ids_keep_their_meaning(self) -> None:
        if not hasattr(self, "scope"):
            return
        rows = self.connection.exec_driver_sql(
            "SELECT id, namespace_id, parent_id, edge FROM radix_node"
        ).all()
        parents: dict[int, tuple[int | None, bytes]] = {
            node: (parent, edge) for node, _, parent, edge in rows
        }

        def stands_for(node: int) -> bytes:
            parent, edge = parents[node]
            return edge if parent is None else stands_for(parent) + edge

        for space in self.namespaces:
            found = sorted(stands_for(node) for node, of, _, _ in rows if of == space)
            assert found == sorted(map(pack, self.expected(space)))
        for (_, tokens, _), (node, _) in self.held.items():
            assert stands_for(node) == pack(tokens)

    @rule(which=st.integers(0, 1))
    def inspect(self, which: int) -> None:
        self.inspect_one(self.namespaces[which])

    def inspect_one(self, space: int) -> None:
        assert radix.check(self.connection, space) == []
        assert prefixes(self.connection, space) == self.expected(space)
        rows = radix.listing(self.connection, space, 10_000)
        assert {(row.node_id, kind, name) for row in rows for name, kind, _ in row.states} == {
            (node, kind, name) for (of, _, kind), (node, name) in self.held.items() if of == space
        }

    def expected(self, space: int) -> list[Tokens]:
        if space not in self.used:
            return []
        return needed_nodes({tokens for of, tokens, _ in self.held if of == space})


TestTree = pytest.mark.timeout(120)(Tree.TestCase)
TestTree.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    # Explaining a failure runs many more examples than finding and shrinking it.
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


UNLIMITED = Limits(1 << 60, 1 << 40)


class Life(RuleBasedStateMachine):
    """States are recorded, replaced and dropped as the service does it, on a migrated database file.

    The model is a dict: (namespace, tokens, kind) -> state id.
    """

    def __init__(self, database_file: Path) -> None:
        super().__init__()
        self.database = Database(database_file)
        self.held: dict[tuple[str, Tokens, str], str] = {}

    def teardown(self) -> None:
        try:
            with self.database.snapshot() as connection:
                assert of_metadata(connection) == []
        finally:
            self.database.close()

    def publish(self, key: tuple[str, Tokens, str], *, replace: bool) -> str:
        space, tokens, kind = key
        name = f"state-{next(_ids):08}"
        with self.database.write(durable=False) as connection:
            new = NewRecording(
                state_id=name,
                namespace=space,
                page_id="page",
                kind=kind,
                tokens=pack(tokens),
                token_digest=name.encode().ljust(32),
                components=(NewComponent("full", 1),),
                kv_descriptor=None,
                overhead_bytes=1,
                replace=replace,
                ttl_ms=1000,
            )
            recordings.admit(connection, new, "me", 0)
            recording = recordings.find(connection, name)
            assert recording is not None
            states.publish(connection, recording, b"digest", UNLIMITED, 0)
            recordings.finish(connection, recording.state.id)
        return name

    def record_or_replace(self, key: tuple[str, Tokens, str], *, replace: bool) -> None:
        if key in self.held and not replace:
            with pytest.raises(Conflict):
                self.publish(key, replace=False)
        else:
            self.held[key] = self.publish(key, replace=replace)

    @rule(space=_SPACE, tokens=_TOKENS, kind=_KIND, replace=st.booleans())
    def record(self, space: str, tokens: Tokens, kind: str, replace: bool) -> None:
        self.record_or_replace((space, tokens, kind), replace=replace)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=st.one_of(st.just(()), _TOKENS), kind=_KIND)
    def record_a_relative(self, data: st.DataObject, more: Tokens, kind: str) -> None:
        space, tokens, _ = data.draw(st.sampled_from(sorted(self.held)))
        keep = data.draw(st.integers(1, len(tokens)))
        self.record_or_replace((space, tokens[:keep] + more, kind), replace=True)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), cause=st.sampled_from([None, "capacity"]))
    def drop(self, data: st.DataObject, cause: str | None) -> None:
        name = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        with self.database.write(durable=False) as connection:
            row = states.by_state_id(connection, name)
            assert row is not None
            states.drop(connection, row, cause)

    def expect_found(self, space: str, query: Tokens) -> None:
        with self.database.read() as connection:
            row = namespaces.find(connection, space)
            found = [] if row is None else states.on_path(connection, row.id, pack(query))
        counts = [state_row.token_count for state_row in found]
        assert counts == sorted(counts, reverse=True)
        assert sorted((state_row.state_id, state_row.token_count) for state_row in found) == sorted(
            (name, len(tokens))
            for (of, tokens, _), name in self.held.items()
            if of == space and query[: len(tokens)] == tokens
        )

    @rule(space=_SPACE, query=_TOKENS)
    def look_up(self, space: str, query: Tokens) -> None:
        self.expect_found(space, query)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), space=_SPACE, more=_TOKENS)
    def look_up_a_relative(self, data: st.DataObject, space: str, more: Tokens) -> None:
        _, tokens, _ = data.draw(st.sampled_from(sorted(self.held)))
        keep = data.draw(st.integers(1, len(tokens)))
        for query in (tokens, tokens[:keep], tokens[:keep] + more):
            self.expect_found(space, query)

    @invariant()
    def the_tree_is_sound_and_no_larger_than_needed(self) -> None:
        with self.database.snapshot() as connection:
            for row in namespaces.page(connection, None, 10, None):
                assert radix.check(connection, row.id) == []
                held = {tokens for of, tokens, _ in self.held if of == row.name}
                nodes = radix.listing(connection, row.id, 10_000)
                assert [node.depth for node in nodes] == [len(p) for p in needed_nodes(held)]


def test_states_found_are_those_of_a_dict_and_the_tree_is_sound_after_every_step(
    tmp_path: Path,
) -> None:
    template = tmp_path / "template.db"
    upgrade(template)
    numbers = count()

    class OnItsOwnFile(Life):
        def __init__(self) -> None:
            super().__init__(Path(shutil.copy(template, tmp_path / f"{next(numbers)}.db")))

    run_state_machine_as_test(
        OnItsOwnFile,
        settings=settings(
            max_examples=20,
            stateful_step_count=50,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.fixture
def connection() -> Iterator[Connection]:
    with database() as opened:
        yield opened


@pytest.fixture
def space(connection: Connection) -> int:
    return add_namespace(connection, "one")


def test_a_namespace_nothing_was_recorded_into_has_no_nodes(
    connection: Connection, space: int
) -> None:
    assert depths_on_path(connection, space, (1, 2)) == []
    assert radix.listing(connection, space, 10) == []
    assert radix.check(connection, space) == []


def test_the_same_tokens_are_the_same_node(connection: Connection, space: int) -> None:
    first = radix.insert(connection, space, pack((1, 2, 3)))
    assert radix.insert(connection, space, pack((1, 2, 3))) == first
    other = add_namespace(connection, "two")
    assert radix.insert(connection, other, pack((1, 2, 3))) != first


@pytest.mark.parametrize("shorter_first", [True, False])
def test_a_prefix_of_a_held_prefix_lies_on_its_way(
    connection: Connection, space: int, shorter_first: bool
) -> None:
    both: list[Tokens] = [(1, 2), (1, 2, 3, 4)]
    for tokens in both if shorter_first else reversed(both):
        hold(connection, space, tokens)
    assert prefixes(connection, space) == [(), (1, 2), (1, 2, 3, 4)]
    assert depths_on_path(connection, space, (1, 2, 3)) == [0, 2]
    assert depths_on_path(connection, space, (1, 2, 3, 4, 5)) == [0, 2, 4]


def test_equal_bytes_across_a_token_border_are_not_a_match(
    connection: Connection, space: int
) -> None:
    # 00 01 00 00 | 00 00 00 00 against 00 01 00 00 | 00 01 ...: alike for five bytes, one token.
    hold(connection, space, (256, 0))
    hold(connection, space, (256, 256))
    assert prefixes(connection, space) == [(), (256,), (256, 0), (256, 256)]
    assert depths_on_path(connection, space, (256, 1 << 24)) == [0, 1]


def test_a_difference_at_the_last_token_of_a_long_edge_is_seen(
    connection: Connection, space: int
) -> None:
    long = tuple(range(128_000))
    changed = (*long[:-1], -1)
    node, _ = hold(connection, space, long)
    assert depths_on_path(connection, space, changed) == [0]
    assert depths_on_path(connection, space, (*long, 7)) == [0, 128_000]
    other, name = hold(connection, space, changed)
    assert depths_on_path(connection, space, changed) == [0, 127_999, 128_000]
    let_go(connection, other, name)
    assert [row.node_id for row in radix.listing(connection, space, 9)][1:] == [node]
    assert radix.tokens_of(connection, node) == pack(long)


def test_a_chain_of_turns_goes_down_to_the_root_when_the_last_state_leaves(
    connection: Connection, space: int
) -> None:
    turns = [tuple(range(length)) for length in range(1, 40)]
    held = [hold(connection, space, turn) for turn in turns]
    assert len(radix.listing(connection, space, 100)) == 40
    for node, name in held:
        let_go(connection, node, name)
        assert radix.check(connection, space) == []
    assert prefixes(connection, space) == [()]


def test_a_node_with_another_state_stays(connection: Connection, space: int) -> None:
    node, name = hold(connection, space, (1, 2))
    add_state(connection, space, node, (1, 2), kind="full_state")
    let_go(connection, node, name)
    assert prefixes(connection, space) == [(), (1, 2)]


def test_a_listing_stops_at_its_limit_and_shows_depth_first(
    connection: Connection, space: int
) -> None:
    for tokens in [(2,), (1, 9), (1, 8, 8)]:
        hold(connection, space, tokens)
    assert prefixes(connection, space) == [(), (1,), (1, 8, 8), (1, 9), (2,)]
    rows = radix.listing(connection, space, 3)
    assert [(row.depth, row.edge_tokens) for row in rows] == [(0, 0), (1, 1), (3, 2)]
    assert [len(row.states) for row in rows] == [0, 0, 1]


def test_the_longest_ones_of_a_very_long_conversation_are_found(
    connection: Connection, space: int
) -> None:
    longest = states.MOST_ON_PATH + 10
    everything = tuple(range(longest))
    for length in range(1, longest + 1):
        hold(connection, space, everything[:length])
    found = states.on_path(connection, space, pack(everything))
    expected = list(range(longest, longest - states.MOST_ON_PATH, -1))
    assert [row.token_count for row in found] == expected


def test_several_states_of_one_prefix_are_found_newest_first(
    connection: Connection, space: int
) -> None:
    node, first = hold(connection, space, (1, 2))
    second = add_state(connection, space, node, (1, 2), kind="full_state")
    _, shorter = hold(connection, space, (1,))
    found = [row.state_id for row in states.on_path(connection, space, pack((1, 2, 3)))]
    assert found == [second, first, shorter]


def test_the_tokens_of_every_listed_node_are_the_edges_on_its_way(
    connection: Connection, space: int
) -> None:
    long = tuple(range(1000, 6000))
    wanted = [(1, 2, 3), (1, 2, 4), (1, *long), (1, *long[:2500], 7), (-1, 0)]
    nodes = {tokens: hold(connection, space, tokens)[0] for tokens in wanted}
    for tokens, node in nodes.items():
        assert radix.tokens_of(connection, node) == pack(tokens)
    rows = {row.node_id: row for row in radix.listing(connection, space, 100)}
    assert len(rows) == len(needed_nodes(set(wanted)))
    for row in rows.values():
        packed = radix.tokens_of(connection, row.node_id)
        assert len(packed) == 4 * row.depth
        if row.parent_id is not None:
            parent = rows[row.parent_id]
            assert row.depth == parent.depth + row.edge_tokens
            assert packed.startswith(radix.tokens_of(connection, parent.node_id))


def test_a_listing_keeps_to_its_namespace(connection: Connection, space: int) -> None:
    other = add_namespace(connection, "two")
    hold(connection, space, (1, 2))
    hold(connection, other, (1, 3))
    assert prefixes(connection, space) == [(), (1, 2)]
    assert prefixes(connection, other) == [(), (1, 3)]
    assert radix.listing(connection, space, 0) == []


def test_the_walk_never_scans_the_table(connection: Connection, space: int) -> None:
    statement = select(_walk.c.id, _walk.c.depth)
    plan = connection.execute(
        text(f"EXPLAIN QUERY PLAN {statement.compile(connection)}".replace("?", "NULL"))
    ).all()
    steps = [row.detail for row in plan if "radix_node" in row.detail]
    assert len(steps) == 2
    assert all(step.startswith("SEARCH") for step in steps), steps


# (1, 2) parts into 3 and 4; the damaged node is the one that ends at 3.
_DAMAGE: list[tuple[str, dict[str, Any], str]] = [
    ("leaf", {"edge": pack((9,))}, "does not begin with its first token"),
    ("leaf", {"first_token": pack((9,))}, "does not begin with its first token"),
    ("leaf", {"edge": b"", "first_token": b"", "depth": 2}, "does not begin with its first token"),
    ("leaf", {"edge": pack((3, 4))}, "does not lie where its edge ends"),
    ("leaf", {"edge": pack((3,)) + b"\0"}, "does not lie where its edge ends"),
    ("leaf", {"depth": 4}, "does not lie where its edge ends"),
    ("root", {"depth": 1}, "is not empty"),
    ("root", {"edge": pack((1,))}, "is not empty"),
]


@pytest.mark.parametrize(("where", "values", "finding"), _DAMAGE)
def test_the_check_names_a_damaged_node(
    connection: Connection, space: int, where: str, values: dict[str, Any], finding: str
) -> None:
    leaf, _ = hold(connection, space, (1, 2, 3))
    hold(connection, space, (1, 2, 4))
    assert radix.check(connection, space) == []
    root = radix.listing(connection, space, 1)[0].node_id
    node = {"leaf": leaf, "root": root}[where]
    connection.execute(update(radix_node).where(radix_node.c.id == node).values(**values))
    assert any(f"{node} {finding}" in found for found in radix.check(connection, space))


def test_the_check_names_a_node_that_serves_nothing(connection: Connection, space: int) -> None:
    leaf = radix.insert(connection, space, pack((1, 2)))
    assert radix.check(connection, space) == [f"node {leaf} serves nothing"]
    hold(connection, space, (1, 2, 3))
    assert radix.check(connection, space) == [f"node {leaf} serves nothing"]


def test_the_check_names_a_node_below_another_namespace(connection: Connection, space: int) -> None:
    leaf, _ = hold(connection, space, (1, 2))
    other = add_namespace(connection, "two")
    hold(connection, other, (5,))
    where = radix_node.c.id == leaf
    connection.execute(update(radix_node).where(where).values(namespace_id=other))
    assert radix.check(connection, other) == [f"node {leaf} hangs in another namespace"]
