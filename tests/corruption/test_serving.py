"""Damage under a real server, at rest and while it runs, and what the next start makes of it."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from pysqlite3 import dbapi2
from sqlalchemy import text

from storage.faults import MOST_FAULTS
from storage.metadata import ownership
from tests.conftest import ServerFactory
from tests.corruption.places import SQLITE_PAGE, Chooser, Damage, apply, page_kinds
from tests.corruption.world import World
from tests.support.client import Client, code, prefix
from tests.support.damage import sql
from tests.support.folders import statehold
from tests.support.server import Server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield World(tmp_path_factory.mktemp("world"))


def _asked(world: World, client: Client, seed: int) -> None:
    """Exact bytes, a miss, or a declared refusal, to everything."""
    for known in world.questions(random.Random(seed)):
        try:
            answer = client.restore(known.namespace, known.tokens)
        except httpx.RemoteProtocolError:
            continue  # broken off before the announced length
        assert answer.status_code in (200, 204, 503), code(answer)
        if answer.status_code == 200:
            assert world.may_answer(known.namespace, known.tokens, answer.content)


def _damages(folder: Path, world: World, seed: int) -> Damage:
    chooser = Chooser(folder, random.Random(seed))
    ways = (
        lambda: chooser.zero("lmdb"),
        lambda: chooser.flip("sqlite"),
        lambda: Damage("blocks/large/data.mdb", "file", "truncate", 40_000),
        lambda: chooser.swap(),
        lambda: chooser.stale(world.older),
        lambda: chooser.zero("sqlite"),
    )
    return ways[seed % len(ways)]()


def _damaged_while_serving(world: World, data: Path, seed: int) -> None:
    shutil.copytree(world.clean, data)
    server = Server(data)
    server.start()
    try:
        with Client(server.url) as client:
            damage = _damages(data, world, seed)
            apply(damage, data, world.older)
            with suppress(httpx.TransportError):
                _asked(world, client, seed)
                admitted = client.admit("fresh", [1], "full_state", {"full": 3})
                assert admitted.status_code in (201, 503), code(admitted)
                if admitted.status_code == 201:
                    sent = client.upload(admitted.json()["state_id"], "full", b"new")
                    assert sent.status_code in (200, 503), code(sent)
        if server.exited:
            assert server.wait() < 0, damage
        else:
            server.kill()
        server = Server(data)
        server.launch()
        deadline = time.monotonic() + 60
        while not server.exited:
            assert time.monotonic() < deadline, "it neither serves nor refuses"
            with suppress(httpx.TransportError):
                if httpx.get(f"{server.url}/healthz", timeout=2).status_code == 200:
                    break
            time.sleep(0.05)
        if server.exited:
            assert server.wait() == 3, (damage, server.logged())
            assert "statehold salvage" in server.logged()
            assert "statehold restore" in server.logged()
            return
        with Client(server.url) as client, suppress(httpx.TransportError):
            _asked(world, client, seed + 1)
    finally:
        server.kill()


@pytest.mark.parametrize("seed", range(3))
def test_damage_under_a_running_server_is_never_served(
    world: World, tmp_path: Path, seed: int
) -> None:
    _damaged_while_serving(world, tmp_path / "data", seed)


@pytest.mark.soak
def test_damage_under_a_hundred_running_servers_is_never_served(
    world: World, tmp_path: Path
) -> None:
    for seed in range(102):
        _damaged_while_serving(world, tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))


def test_a_server_that_its_files_ended_is_not_ended_by_them_again(
    world: World, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(world.clean, data)
    apply(Damage("blocks/large/data.mdb", "file", "truncate", 40_000), data, world.older)
    codes, said = [], ""
    for _ in range(3):
        server = Server(data)
        with suppress(httpx.TransportError, RuntimeError):
            server.start(20)
            with Client(server.url) as client:
                _asked(world, client, 1)
        if not server.exited:
            server.kill()
        codes.append(server.wait())
        said += server.logged()
    assert codes[-1] == codes[-2] == 3, codes
    assert "statehold salvage" in said


def test_a_fault_is_noted_looked_into_and_forgotten_by_a_clean_stop(start: ServerFactory) -> None:
    server = start()
    for deaths in range(1, MOST_FAULTS + 1):
        os.kill(server.pid, signal.SIGBUS)
        assert server.wait() == -signal.SIGBUS
        if deaths < MOST_FAULTS:
            server = start()  # the files are whole
    refused = statehold(server.data, "serve")
    assert refused.returncode == 3
    assert "nothing was found wrong" in refused.stderr
    noted = server.data / "faults.log"
    assert "Bus error" in noted.read_text()
    assert noted.stat().st_mode & 0o777 == 0o600
    noted.unlink()
    server = start()
    os.kill(server.pid, signal.SIGBUS)
    server.wait()
    start().stop()
    assert (server.data / "faults.old.log").exists()
    assert not noted.exists() or noted.read_text() == ""


def test_a_worker_that_its_files_end_is_not_started_again_and_again(start: ServerFactory) -> None:
    server = start(workers=2)
    os.kill(server.worker_pids()[0], signal.SIGBUS)
    assert server.wait(60) == 3
    assert "statehold salvage" in server.logged()
    with Client(start(workers=2).url) as client:
        assert client.stats()["live"] == 0


def test_a_state_that_is_not_under_its_name_is_a_miss_and_no_hang(
    world: World, start: ServerFactory, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(world.clean, data)
    [(state_id,)] = sql(
        data, "SELECT state_id FROM state WHERE token_count = 9 AND status = 'live' LIMIT 1"
    )
    image = bytearray((data / "metadata.db").read_bytes())
    kinds = page_kinds(data)
    changed = 0
    for page in kinds["metadata.db", "table"]:
        at = image.find(str(state_id).encode(), page, page + SQLITE_PAGE)
        if at >= 0:
            image[at + 35] ^= 1  # a digit becomes another one
            changed += 1
    assert changed == 1
    (data / "metadata.db").write_bytes(image)
    with Client(start().url) as client:
        for namespace in ("chat", "other"):
            tokens = list(range(1, 10))
            for acquire in (False, True):
                found = client.lookup(namespace, tokens, acquire=acquire)
                assert found["hit"] is not None
            answer = client.restore(namespace, tokens)
            assert answer.status_code == 200
            assert world.may_answer(namespace, tuple(tokens), answer.content)


def test_a_circle_in_the_tree_ends_every_walk(
    world: World, start: ServerFactory, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(world.clean, data)
    # Two nodes that hang below each other, of the same depth, with an edge that matches at any place.
    [(first,), (second,)] = sql(
        data, "SELECT id FROM radix_node WHERE parent_id IS NOT NULL ORDER BY id LIMIT 2"
    )
    for node, parent in ((first, second), (second, first)):
        sql(data, "UPDATE radix_node SET parent_id = ? WHERE id = ?", parent, node)
    with Client(start().url) as client:
        for known in world.questions(random.Random(1)):
            answer = client.restore(known.namespace, known.tokens, allow_truncated=True)
            assert answer.status_code in (200, 204, 503)
            if answer.status_code == 200:
                assert world.may_answer(known.namespace, known.tokens, answer.content)
        body = {"candidates": [prefix("hybrid", [1])]}
        assert client.post("/v1/lookup", json=body).status_code in (200, 503)


def test_a_row_that_never_was_put_there_is_damage_and_no_fault_of_ours(
    start: ServerFactory,
) -> None:
    server = start()
    with Client(server.url) as client:
        client.record_full("ns", [1, 2], b"x" * 100)
    server.stop()
    sql(server.data, "UPDATE namespace SET identity = '{not json', identity_digest = x'00'")
    with Client(start().url) as client:
        assert code(client.get("/v1/namespaces")) == (503, "store_damaged")
        assert client.restore("ns", [1, 2]).content == b"x" * 100


def test_a_counter_that_is_no_text_is_damage(start: ServerFactory) -> None:
    """As a page of another table in the place of one of the counters' has it."""
    server = start()
    server.stop()
    connection = dbapi2.connect(str(server.data / "metadata.db"), isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    [(strict,)] = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'counter'")
    change = "UPDATE sqlite_schema SET sql = ? WHERE name = 'counter'"
    lax = re.sub(r",\s*STRICT\s*$", "", str(strict))
    assert lax != strict
    connection.execute(change, (lax,))
    connection.execute("PRAGMA writable_schema=RESET")
    connection.execute("INSERT INTO counter VALUES (x'00', x'01', 1)")
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute(change, (strict,))
    connection.close()
    with Client(start().url) as client:
        assert code(client.get("/admin/v1/stats")) == (503, "store_damaged")
        client.record_full("ns", [1, 2], b"x" * 100)
        assert client.restore("ns", [1, 2]).content == b"x" * 100


def _name_what_is_owned() -> None:
    every = text("SELECT id, digest FROM block")
    ownership.unowned = lambda connection, limit: [
        (int(row), digest) for row, digest in connection.execute(every)
    ]


def test_an_index_that_names_what_is_owned_ends_an_eviction_and_costs_no_block(
    tmp_path: Path,
) -> None:
    """Whoever removes until nothing is left would go on for ever, and remove what others hold."""
    server = Server(tmp_path / "data", sabotage=_name_what_is_owned)
    server.start()
    try:
        with Client(server.url) as client:
            client.record_full("ns", [1, 2], b"x" * 100)
            answer = client.post("/admin/v1/evictions", json={"untouched_for_s": 3600})
            assert code(answer) == (503, "store_damaged")
            assert client.restore("ns", [1, 2]).content == b"x" * 100
    finally:
        server.stop()
