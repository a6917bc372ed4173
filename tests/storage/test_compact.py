"""`statehold compact`: gives space back, loses nothing at any crash point, and refuses what it must."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from app.cli import main
from storage.failpoints import OFFLINE_POINTS
from storage.layout import DataFolder
from tests.conftest import ServerFactory
from tests.support.client import Client
from tests.support.damage import checked, sql

_ROOT = Path(__file__).parents[2]
_FILES = ("blocks/large/data.mdb", "blocks/small/data.mdb", "metadata.db")


def noise(name: object, size: int) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


def compact(
    data: Path, *options: str, failpoint: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"STATEHOLD_DATA_DIR": str(data), "STATEHOLD_LOG_LEVEL": "error"}
    if failpoint is not None:
        environment["STATEHOLD_FAILPOINT"] = failpoint
    return subprocess.run(
        [sys.executable, "-m", "app", "compact", *options],
        cwd=_ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[int, bytes]]]:
    """A folder whose server stopped cleanly after most of what it held was evicted."""
    from tests.support.server import Server

    data = tmp_path_factory.mktemp("compact") / "data"
    server = Server(data)
    server.start()
    kept: dict[int, bytes] = {}
    gone = []
    try:
        with Client(server.url) as client:
            for token in range(1, 31):
                payload = noise(token, 300_000 if token % 3 else 900_000)
                state_id = client.record_full("ns", [token, 1, 2], payload)
                if token % 10:
                    gone.append(state_id)
                else:
                    kept[token] = payload
            client.post("/admin/v1/evictions", json={"state_ids": gone})
    finally:
        server.stop()
    yield data, kept


@pytest.fixture
def folder(lived_in: tuple[Path, dict[int, bytes]], tmp_path: Path) -> Path:
    """A copy of it, where the `start` fixture looks for it."""
    shutil.copytree(lived_in[0], tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def kept(lived_in: tuple[Path, dict[int, bytes]]) -> dict[int, bytes]:
    """What must still be restored: first token and bytes."""
    return lived_in[1]


def all_is_there(start: ServerFactory, kept: dict[int, bytes]) -> None:
    server = start()
    with Client(server.url) as client:
        for token, payload in kept.items():
            assert client.restore("ns", [token, 1, 2]).content == payload
        assert client.restore("ns", [1, 1, 2]).status_code == 204
        client.record_full("ns", [99], noise(99, 300_000))
        assert client.restore("ns", [99]).content == noise(99, 300_000)
    server.stop()
    assert checked(server.data) == []


def leftovers(data: Path) -> list[Path]:
    return list(data.rglob("*.compact"))


def test_compaction_gives_space_back_and_keeps_every_state(
    start: ServerFactory, folder: Path, kept: dict[int, bytes]
) -> None:
    before = sum((folder / name).stat().st_size for name in _FILES)
    done = compact(folder, "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    after = sum((folder / name).stat().st_size for name in _FILES)
    assert figures["before_bytes"] == before
    assert figures["after_bytes"] == after
    assert [file["name"] for file in figures["files"]] == list(_FILES)
    # 12.6 MB were recorded, 2.1 MB are left.
    assert after < before - 8_000_000
    assert after < 1.3 * sum(map(len, kept.values())) + 1_000_000
    assert checked(folder) == []
    assert leftovers(folder) == []
    assert {(folder / name).stat().st_mode & 0o777 for name in _FILES} == {0o600}
    all_is_there(start, kept)


def test_a_second_compaction_finds_nothing_more(folder: Path) -> None:
    first = json.loads(compact(folder, "--json").stdout)
    second = json.loads(compact(folder, "--json").stdout)
    assert second["after_bytes"] == first["after_bytes"]


def test_the_figures_are_printed_for_people(folder: Path) -> None:
    lines = compact(folder).stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == [*_FILES, "together"]
    assert lines[4].startswith("0 blocks without an owner removed, ")


def test_what_nobody_owns_is_not_copied(
    start: ServerFactory, folder: Path, kept: dict[int, bytes]
) -> None:
    """After a kill: an upload that will never end, and blocks that wait to be reclaimed."""
    server = start()
    with Client(server.url) as client:
        pending = client.admit("ns", [200], "full_state", {"full": 2_000_000}).json()["state_id"]
        client.upload(pending, "full", noise(200, 2_000_000))
    server.kill()
    figures = json.loads(compact(folder, "--json").stdout)
    assert figures["reclaimed_blocks"] >= 2
    assert figures["recovered"]["was_clean"] is False
    assert figures["after_bytes"] < 1.3 * sum(map(len, kept.values())) + 1_000_000
    assert checked(folder) == []
    all_is_there(start, kept)


@pytest.mark.parametrize("count", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3))])
@pytest.mark.parametrize("point", OFFLINE_POINTS)
def test_a_kill_leaves_the_old_file_or_the_new_one(
    start: ServerFactory, folder: Path, kept: dict[int, bytes], point: str, count: int
) -> None:
    """`count` is the file that is being compacted: large blocks, small blocks, metadata."""
    assert compact(folder, failpoint=f"{point}:{count}").returncode == -signal.SIGKILL
    assert checked(folder) == []
    again = compact(folder, "--json")
    assert again.returncode == 0, again.stderr
    assert leftovers(folder) == []
    assert checked(folder) == []
    all_is_there(start, kept)


def test_a_start_removes_the_copy_of_a_compaction_that_was_killed(
    start: ServerFactory, folder: Path, kept: dict[int, bytes]
) -> None:
    compact(folder, failpoint="compact.after_copy:2")
    assert [path.name for path in leftovers(folder)] == ["data.mdb.compact"]
    all_is_there(start, kept)
    assert leftovers(folder) == []


def test_it_refuses_while_a_server_runs(start: ServerFactory) -> None:
    server = start()
    done = compact(server.data)
    assert done.returncode == 3
    assert f"the data folder {server.data}: a server is using it: stop it, or use" in done.stderr


def test_it_refuses_while_another_process_reads_the_blocks(folder: Path) -> None:
    with contextlib.closing(lmdb.open(str(folder / "blocks" / "large"), readonly=True)):
        done = compact(folder)
    assert done.returncode == 3
    assert "another process is reading" in done.stderr
    assert compact(folder).returncode == 0


def test_it_refuses_without_room_for_a_copy(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: (folder / name).stat().st_ino for name in _FILES}
    monkeypatch.setenv("STATEHOLD_DATA_DIR", str(folder))
    monkeypatch.setattr(DataFolder, "free_bytes", lambda _: 50_000_000)
    assert main(["compact"]) == 3
    assert "bytes of free disk for the largest copy" in capsys.readouterr().err
    assert {name: (folder / name).stat().st_ino for name in _FILES} == before
    assert checked(folder) == []


def test_it_refuses_a_folder_without_data_and_makes_none(tmp_path: Path) -> None:
    done = compact(tmp_path / "nothing")
    assert done.returncode == 3
    assert "there is no data in" in done.stderr
    assert not (tmp_path / "nothing").exists()


def test_it_refuses_a_schema_of_another_version(folder: Path) -> None:
    sql(folder, "UPDATE alembic_version SET version_num = '0001'")
    done = compact(folder)
    assert done.returncode == 3
    assert "statehold migrate" in done.stderr
