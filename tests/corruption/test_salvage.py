"""`statehold salvage`: what still verifies comes into a new folder, and nothing else."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.failpoints import SALVAGE_POINTS
from tests.corruption.inside import Service, forked
from tests.corruption.places import Chooser, apply, page_kinds
from tests.corruption.world import World
from tests.support.damage import checked, sql
from tests.support.folders import statehold


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield World(tmp_path_factory.mktemp("world"))


def _everything(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def _given_back(world: World, folder: Path) -> tuple[int, list[str]]:
    """How many of the recorded prefixes a service gives back exactly, and what is wrong."""

    def work() -> tuple[int, list[str]]:
        service = Service(folder)
        service.start()
        exact, wrong = 0, []
        for known in world.known:
            answer = service.restore(known.namespace, known.tokens)
            if answer.status == 200:
                exact += answer.body == known.payload
                if not world.may_answer(known.namespace, known.tokens, answer.body):
                    wrong.append(f"wrong bytes: {known.namespace} {known.tokens[:4]}")
            elif answer.status != 204:
                wrong.append(f"{answer.status}")
        service.stop()
        return exact, wrong

    found: tuple[int, list[str]] = forked(work, 60)
    return found


def _live(world: World) -> int:
    return len({(k.namespace, k.tokens) for k in world.known}) - 2  # two are quarantined


def test_an_intact_folder_is_salvaged_whole_and_only_read(world: World, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(world.killed, damaged)
    before = _everything(damaged)
    done = statehold(damaged, "salvage", str(tmp_path / "new"), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["states"], report["quarantined_left"]) == (_live(world), 2)
    assert report["lost"] == report["unread"] == []
    assert _everything(damaged) == before
    assert checked(tmp_path / "new") == []
    assert _given_back(world, tmp_path / "new") == (_live(world), [])
    identity = "SELECT count(*) FROM namespace WHERE identity_digest IS NOT NULL"
    assert sql(tmp_path / "new", identity) == [(1,)]
    assert [path.name for path in tmp_path.iterdir() if "salvaging" in path.name] == []


def test_an_empty_folder_is_not_said_to_be_verified(tmp_path: Path) -> None:
    assert statehold(tmp_path / "old", "migrate").returncode == 0
    done = statehold(tmp_path / "old", "salvage", str(tmp_path / "new"))
    assert (done.returncode, "verified" in done.stdout) == (0, False)
    assert "there was no live state to copy" in done.stdout


@pytest.mark.parametrize("seed", range(2))
def test_what_random_damage_leaves_is_salvaged_and_nothing_else(
    world: World, tmp_path: Path, seed: int
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(world.clean, damaged)
    chooser = Chooser(damaged, random.Random(seed))
    damages = [chooser.zero("lmdb"), chooser.zero("sqlite"), chooser.flip("values")]
    for damage in damages:
        apply(damage, damaged, world.older)
    done = statehold(damaged, "salvage", str(tmp_path / "new"), "--json")
    assert done.returncode in (0, 1), (damages, done.stderr)
    report = json.loads(done.stdout)
    exact, wrong = _given_back(world, tmp_path / "new")
    assert wrong == []
    assert (
        exact >= report["states"] * 0.9 > 0
    )  # a longer prefix lost is answered with a shorter one
    assert checked(tmp_path / "new") == []


def test_a_block_store_without_metas_and_branches_loses_nothing(
    world: World, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(world.clean, damaged)
    for (file, kind), places in page_kinds(damaged).items():
        if kind in ("meta", "branch"):
            with (damaged / file).open("r+b") as handle:
                for at in places:
                    handle.seek(at)
                    handle.write(bytes(4096))
    refused = statehold(damaged, "serve")
    assert refused.returncode == 3
    assert "statehold salvage" in refused.stderr
    assert "statehold restore" in refused.stderr
    done = statehold(damaged, "salvage", str(tmp_path / "new"), "--json")
    assert json.loads(done.stdout)["states"] == _live(world)


@pytest.mark.parametrize("size", [100, 16384])
def test_a_database_without_its_first_page_loses_nothing(
    world: World, tmp_path: Path, size: int
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(world.clean, damaged)
    with (damaged / "metadata.db").open("r+b") as handle:
        handle.write(bytes(size))
    refused = statehold(damaged, "serve")
    assert refused.returncode == 3
    assert "statehold salvage" in refused.stderr
    done = statehold(damaged, "salvage", str(tmp_path / "new"), "--json")
    assert json.loads(done.stdout)["states"] == _live(world)


def test_a_flipped_byte_is_not_salvaged(world: World, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(world.clean, damaged)
    lost = sql(damaged, "SELECT state_id, node_id FROM state WHERE status = 'live' LIMIT 1")[0]
    sql(
        damaged,
        "UPDATE radix_node SET edge = CAST(edge || x'00000000' AS BLOB) WHERE id = ?",
        lost[1],
    )
    done = statehold(damaged, "salvage", str(tmp_path / "new"), "--json")
    assert done.returncode == 1
    assert lost[0] in [state_id for state_id, _ in json.loads(done.stdout)["lost"]]


@pytest.mark.parametrize("point", SALVAGE_POINTS)
def test_a_salvage_that_is_killed_leaves_no_folder_and_can_be_done_again(
    world: World, tmp_path: Path, point: str
) -> None:
    killed = statehold(world.clean, "salvage", str(tmp_path / "new"), failpoint=point)
    assert killed.returncode == -9
    assert not (tmp_path / "new").exists()
    done = statehold(world.clean, "salvage", str(tmp_path / "new"), "--json")
    assert done.returncode == 0, done.stderr
    assert _given_back(world, tmp_path / "new") == (_live(world), [])


def test_a_salvage_refuses_what_it_may_not_do(world: World, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for target, sentence in (
        (tmp_path / "full", "not empty"),
        (world.clean / "new", "outside"),
        (world.clean, "outside"),
    ):
        done = statehold(world.clean, "salvage", str(target))
        assert done.returncode == 3
        assert sentence in done.stderr
    assert (tmp_path / "full" / "file").read_text() == "mine"
    done = statehold(tmp_path / "absent", "salvage", str(tmp_path / "new"))
    assert (done.returncode, "no data" in done.stderr) == (3, True)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "metadata.db").write_bytes(b"x" * 100_000)
    done = statehold(empty, "salvage", str(tmp_path / "new"))
    assert done.returncode == 3
    assert "nothing" in done.stderr
    assert not (tmp_path / "new").exists()
