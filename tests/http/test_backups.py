"""Backups: of one moment while clients go on, whole or not there, and proven before they count again."""

from __future__ import annotations

import calendar
import dataclasses
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from alembic import command

import migrations
from storage.backups import manifest as manifests
from storage.backups.copying import back_up
from storage.backups.manifest import FILES, MANIFEST
from storage.blocks.lmdb import LmdbBlocks
from storage.errors import BackupDamaged, DiskFull
from storage.failpoints import BACKUP_POINTS, RESTORE_POINTS
from storage.layout import DataFolder
from tests.conftest import ServerFactory
from tests.support.client import Client, code
from tests.support.damage import checked, flip_block, sql
from tests.support.folders import statehold
from tests.support.jobs import begin, children_of, ended, result
from tests.support.server import Server


def noise(name: object, size: int = 150_000) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


def record(client: Client, *tokens: int) -> None:
    for token in tokens:
        client.record_full("ns", [token, 1], noise(token), page_id=f"page-{token}")


def serves(data: Path, *tokens: int) -> None:
    """A server on that folder gives back exactly these states, and records another."""
    server = Server(data)
    server.start()
    try:
        with Client(server.url) as client:
            held = client.get("/admin/v1/states", params={"limit": 1000}).json()["states"]
            assert {row["page_id"] for row in held} == {f"page-{token}" for token in tokens}
            for token in tokens:
                assert client.restore("ns", [token, 1]).content == noise(token)
            record(client, 999)
            assert client.restore("ns", [999, 1]).content == noise(999)
    finally:
        server.stop()
    assert checked(data) == []


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with states 1 to 4 and a backup `whole` of it, nobody using it."""
    data = tmp_path_factory.mktemp("backups") / "data"
    server = Server(data)
    server.start()
    with Client(server.url) as client:
        record(client, 1, 2, 3, 4)
        result(client, "backup", name="whole")
    server.stop()
    return data


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, where the `start` fixture looks for it."""
    shutil.copytree(stopped, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def backup(data: Path) -> Path:
    return data / "backups" / "whole"


# ---- making one --------------------------------------------------------------------------------


def test_a_backup_made_while_clients_record_and_evict_holds_one_moment(
    start: ServerFactory, tmp_path: Path
) -> None:
    server = start(workers=2, budget_bytes="12MiB")
    faults: list[str] = []
    ends = threading.Event()
    with Client(server.url) as client:
        record(client, *range(10))

    def live(seed: int) -> None:
        chance = random.Random(seed)
        mine: dict[int, str] = {}
        token = 1000 * seed
        with Client(server.url) as client:
            while not ends.is_set():
                try:
                    if len(mine) > 4:
                        gone = mine.pop(chance.choice(sorted(mine)))
                        client.post("/admin/v1/evictions", json={"state_ids": [gone]})
                    token += 1
                    # Half of the blocks of one client are those of another.
                    body = noise(token % 1000, 150_000)
                    mine[token] = client.record_full(
                        "ns", [token, 1], body, page_id=f"page-{token % 1000}-{token}"
                    )
                except (AssertionError, httpx.HTTPError) as error:
                    faults.append(repr(error))
                    return

    threads = [threading.Thread(target=live, args=(seed,)) for seed in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    with Client(server.url) as client:
        counts = [result(client, "backup", name=f"b{n}")["states"] for n in range(3)]
    ends.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(set(counts)) > 1 or counts[0] > 10  # the store moved on meanwhile
    server.stop()
    assert checked(server.data) == []
    for n, count in enumerate(counts):
        into = tmp_path / f"elsewhere-{n}"
        done = statehold(server.data, "restore", f"b{n}", "--into", str(into))
        assert done.returncode == 0, done.stderr
        assert checked(into) == []
        restored = Server(into)
        restored.start()
        try:
            with Client(restored.url) as client:
                rows = client.get("/admin/v1/states", params={"limit": 1000}).json()["states"]
                assert len(rows) == count
                assert {row["status"] for row in rows} == {"live"}
                for row in rows:
                    body, _, token = row["page_id"].removeprefix("page-").partition("-")
                    answer = client.restore("ns", [int(token or body), 1])
                    assert answer.content == noise(int(body))
                assert {f"page-{token}" for token in range(10)} <= {r["page_id"] for r in rows}
        finally:
            restored.stop()


def test_a_backup_says_what_it_holds(server: Server, client: Client) -> None:
    record(client, 1, 2)
    job = ended(client, begin(client, "backup", name="first"))
    found = manifests.read(server.data / "backups" / "first")
    assert job["result"] == {
        "name": "first",
        "states": 2,
        "quarantined": 0,
        "quarantined_here": 0,
        "blocks": found.blocks,
        "bytes": found.size_bytes,
    }
    assert job["done"] == job["total"] > 0
    assert found.schema == migrations.head()
    for entry in found.files:
        assert manifests.entry(server.data / "backups" / "first", entry.name) == entry
    modes = {p.stat().st_mode & 0o77 for p in (server.data / "backups").rglob("*")}
    assert modes == {0}


def test_a_backup_leaves_out_what_is_under_way(
    server: Server, client: Client, tmp_path: Path
) -> None:
    record(client, 1)
    admitted = client.admit("ns", [5, 5], "full_state", {"full": 150_000}).json()["state_id"]
    client.upload(admitted, "full", noise(5))
    client.lookup("ns", [1, 1], acquire=True)
    assert result(client, "backup", name="b")["states"] == 1
    done = statehold(server.data, "restore", "b", "--into", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert sql(tmp_path / "new", "SELECT count(*) FROM state") == [(1,)]
    assert sql(tmp_path / "new", "SELECT count(*) FROM lease") == [(0,)]
    assert sql(tmp_path / "new", "SELECT count(*) FROM job WHERE status = 'running'") == [(0,)]
    serves(tmp_path / "new", 1)


def test_backups_go_where_the_operator_says(start: ServerFactory, tmp_path: Path) -> None:
    server = start(backup_dir=tmp_path / "far" / "away")
    with Client(server.url) as client:
        record(client, 1)
        result(client, "backup", name="b")
    assert (tmp_path / "far" / "away" / "b" / MANIFEST).exists()
    assert not (server.data / "backups").exists()


def test_a_name_is_given_once(server: Server, client: Client) -> None:
    result(client, "backup", name="b")
    again = client.post("/admin/v1/jobs", json={"kind": "backup", "name": "b"})
    assert code(again) == (409, "backup_exists")


def test_two_backups_at_once_are_refused(client: Client) -> None:
    record(client, 1)
    begin(client, "backup", name="a")
    second = client.post("/admin/v1/jobs", json={"kind": "backup", "name": "b"})
    assert code(second) == (409, "job_running")


def test_a_backup_that_was_stopped_leaves_nothing(server: Server, client: Client) -> None:
    record(client, 1, 2, 3)
    job = begin(client, "backup", name="b")
    client.post(f"/admin/v1/jobs/{job['job_id']}/cancel")
    assert ended(client, job)["status"] == "cancelled"
    assert [p.name for p in (server.data / "backups").iterdir()] in ([], [".lock"])
    assert children_of(server.pid) == []
    assert result(client, "backup", name="b")["states"] == 3


def test_a_damaged_state_goes_out_of_service_and_the_backup_holds_the_others(
    server: Server, client: Client, tmp_path: Path
) -> None:
    record(client, 1, 2, 3)
    flip_block(server.data, noise(2))
    found = result(client, "backup", name="b")
    assert (found["states"], found["quarantined"], found["quarantined_here"]) == (2, 1, 1)
    assert client.stats()["quarantined"] == 1
    server.stop()
    done = statehold(server.data, "restore", "b", "--into", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    restored = Server(tmp_path / "new")
    restored.start()
    with Client(restored.url) as other:
        for token in (1, 3):
            assert other.restore("ns", [token, 1]).content == noise(token)
        assert other.restore("ns", [2, 1]).status_code == 204
        (held,) = other.get("/admin/v1/quarantine").json()["states"]
        where = held["evidence"]["component"], held["evidence"]["first_bad_block"]
        assert where == ("full", 0)
        record(other, 2)  # the block is written anew
        assert other.restore("ns", [2, 1]).content == noise(2)
    restored.stop()


def test_the_command_backs_up_beside_a_running_server(
    server: Server, client: Client, tmp_path: Path
) -> None:
    record(client, 1, 2)
    done = statehold(server.data, "backup", "hot", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["states"] == 2
    record(client, 3)
    assert statehold(server.data, "backup", "hot").returncode == 1
    done = statehold(server.data, "restore", "hot", "--into", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    serves(tmp_path / "new", 1, 2)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/tmp/x", "a/b", ".hidden", "x" * 65])
def test_the_command_refuses_names_that_are_paths(data: Path, name: str) -> None:
    done = statehold(data, "backup", name)
    assert done.returncode == 2
    assert "letters, digits, '.', '_' and '-', and does not begin with '.'" in done.stderr
    assert [p.name for p in (data / "backups").iterdir() if p.is_dir()] == ["whole"]


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_has_the_name_of_an_unfinished_backup_goes_and_what_a_link_leads_to_stays(
    start: ServerFactory, tmp_path: Path, kind: str
) -> None:
    server = start()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    backups = server.data / "backups"
    backups.mkdir()
    partial = backups / ".b.partial"
    if kind == "file":
        partial.write_text("x")
    elif kind == "link":
        partial.symlink_to(tmp_path / "mine")
    else:
        partial.mkdir()
        (partial / "within").symlink_to(tmp_path / "mine")
    with Client(server.url) as client:
        record(client, 1)
        assert result(client, "backup", name="b")["states"] == 1
    assert sorted(p.name for p in backups.iterdir()) == [".lock", "b"]
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["backups", "backups/.lock"])
def test_a_folder_of_backups_that_cannot_be_used_has_a_code_of_its_own(
    server: Server, client: Client, name: str
) -> None:
    record(client, 1)
    taken = server.data / name
    taken.parent.mkdir(exist_ok=True)
    if name == "backups":
        taken.write_text("x")
    else:
        taken.mkdir()
    job = ended(client, begin(client, "backup", name="b"))
    assert (job["status"], job["error"]) == ("failed", "backup_dir_unusable")
    done = statehold(server.data, "backup", "b")
    assert done.returncode == 3
    assert f"the folder of backups {server.data / 'backups'} cannot be used" in done.stderr


# ---- kills and full disks ----------------------------------------------------------------------


@pytest.mark.parametrize("point", BACKUP_POINTS)
def test_a_kill_leaves_a_whole_backup_or_none(data: Path, tmp_path: Path, point: str) -> None:
    assert statehold(data, "backup", "b", failpoint=point).returncode == -signal.SIGKILL
    made = (data / "backups" / "b").exists()
    assert made == (point == "backup.after_rename")
    assert checked(data) == []
    again = statehold(data, "backup", "c" if made else "b")
    assert again.returncode == 0, again.stderr
    assert [p for p in (data / "backups").iterdir() if p.name.endswith(".partial")] == []
    done = statehold(data, "restore", "b", "--into", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    serves(tmp_path / "new", 1, 2, 3, 4)


def test_a_copying_child_that_is_killed_fails_the_job_alone(start: ServerFactory) -> None:
    server = start(failpoint="backup.after_database")
    with Client(server.url) as client:
        record(client, 1)
        job = ended(client, begin(client, "backup", name="b"))
        assert (job["status"], job["error"]) == ("failed", "interrupted")
        assert client.restore("ns", [1, 1]).content == noise(1)
        assert [p.name for p in (server.data / "backups").iterdir()] == [".lock"]


def test_a_server_that_is_killed_during_a_backup_leaves_none(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:
        record(client, 1, 2)
        for n in range(60):
            client.record_full("more", [n], noise(n, 1_000_000))
        job = begin(client, "backup", name="b")
        deadline = time.monotonic() + 20
        while not list((server.data / "backups").glob(".b.partial/*")):
            assert time.monotonic() < deadline
            time.sleep(0.002)
    server.kill()
    deadline = time.monotonic() + 5
    while children_of(server.pid):
        assert time.monotonic() < deadline, "the copying child outlives its server"
        time.sleep(0.05)
    assert not (server.data / "backups" / "b").exists()
    with Client(start().url) as client:
        assert ended(client, job)["error"] == "interrupted"
        assert [p.name for p in (server.data / "backups").iterdir()] == [".lock"]
        assert result(client, "backup", name="b")["states"] == 62


def test_too_little_room_is_low_space_and_leaves_nothing(start: ServerFactory) -> None:
    server = start(free_disk_reserve_bytes="64MiB")
    with Client(server.url) as client:
        record(client, 1)
    server.stop()
    server = start(free_disk_reserve_bytes="900TiB", mode="lookup")
    with Client(server.url) as client:
        job = ended(client, begin(client, "backup", name="b"))
        assert (job["status"], job["error"]) == ("failed", "low_space")
        assert [p.name for p in (server.data / "backups").iterdir()] == [".lock"]
    done = statehold(server.data, "backup", "b", free_disk_reserve_bytes="900TiB")
    assert done.returncode == 1
    assert "low_space" in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A device of 100 MiB of its own."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a device")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("left_bytes", [8192, 400_000])
def test_a_disk_that_fills_up_meanwhile_is_low_space_and_is_given_back(
    data: Path, small_disk: Path, left_bytes: int
) -> None:
    """Somebody else takes the rest of the device once the copy has begun."""
    taken = False

    def take(done: int, total: int) -> None:
        nonlocal taken
        if not taken:
            taken = True
            with (small_disk / "others").open("wb") as file:
                os.posix_fallocate(
                    file.fileno(), 0, shutil.disk_usage(small_disk).free - left_bytes
                )

    with pytest.raises(DiskFull):
        back_up(
            DataFolder(data), small_disk / "b", "x", version="t", reserve_bytes=0, progress=take
        )
    assert taken
    assert [p.name for p in (small_disk / "b").iterdir()] == [".lock"]
    assert checked(data) == []


@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_a_kill_during_a_restore_leaves_the_old_data_or_the_new(
    data: Path, tmp_path: Path, point: str
) -> None:
    server = Server(tmp_path / "target")
    server.start()
    with Client(server.url) as client:
        record(client, 7, 8)
    server.stop()
    killed = statehold(
        tmp_path / "target",
        *("restore", str(data / "backups" / "whole"), "--replace"),
        failpoint=point,
    )
    assert killed.returncode == -signal.SIGKILL
    decided = RESTORE_POINTS.index(point) >= RESTORE_POINTS.index("restore.after_decision")
    serves(tmp_path / "target", *((1, 2, 3, 4) if decided else (7, 8)))
    assert not (tmp_path / "target" / "restoring").exists()
    assert not (tmp_path / "target" / "placing").exists()


@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_a_restore_that_was_killed_can_be_run_again(data: Path, tmp_path: Path, point: str) -> None:
    backup = str(data / "backups" / "whole")
    into = ("--into", str(tmp_path / "new"))
    killed = statehold(data, "restore", backup, *into, failpoint=point)
    assert killed.returncode == -signal.SIGKILL
    again = statehold(data, "restore", backup, *into, "--replace")
    assert again.returncode == 0, again.stderr
    serves(tmp_path / "new", 1, 2, 3, 4)


# ---- bringing one back -------------------------------------------------------------------------


def _flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x20
    file.write_bytes(content)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize(
    "damage",
    ["flipped", *(pytest.param(how, marks=pytest.mark.soak) for how in ("truncated", "removed"))],
)
def test_a_damaged_backup_is_named_and_leaves_nothing(
    data: Path, backup: Path, tmp_path: Path, name: str, damage: str
) -> None:
    file = backup / name
    size = file.stat().st_size
    if damage == "flipped":
        _flip(file, size // 2)
    elif damage == "truncated":
        os.truncate(file, size - 1)
    else:
        file.unlink()
    done = statehold(data, "restore", "whole", "--into", str(tmp_path / "a" / "b"))
    assert done.returncode == 1
    assert name in done.stderr
    assert not (tmp_path / "a").exists()
    # Over what is there: it stays.
    assert statehold(data, "restore", "whole", "--replace").returncode == 1
    serves(data, 1, 2, 3, 4)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_should_be_a_file_of_a_backup_and_is_none_is_damage(
    data: Path, backup: Path, name: str, kind: str
) -> None:
    (backup / name).unlink()
    if kind == "folder":
        (backup / name).mkdir()
    else:
        os.mkfifo(backup / name)  # who opens it waits for ever
    done = statehold(data, "restore", "whole", "--replace")
    assert done.returncode == 1
    assert f"{name} is no file" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("at", [0, 60, -2])
def test_every_byte_of_the_manifest_counts(data: Path, backup: Path, at: int) -> None:
    _flip(backup / MANIFEST, at)
    done = statehold(data, "restore", "whole", "--replace")
    assert done.returncode == 1
    assert MANIFEST in done.stderr


def _seal_again(backup: Path, **changed: object) -> None:
    found = manifests.read(backup)
    (backup / MANIFEST).unlink()
    files = tuple(manifests.entry(backup, name) for name in FILES)
    manifests.write(backup, dataclasses.replace(found, files=files, **changed))  # type: ignore[arg-type]


def test_a_backup_of_a_newer_version_is_refused_with_a_sentence(
    data: Path, backup: Path, tmp_path: Path
) -> None:
    _seal_again(backup, schema="9999", version="99.0")
    done = statehold(data, "restore", "whole", "--into", str(tmp_path / "new"))
    assert done.returncode == 3
    assert "newer version (99.0, schema 9999): restore it with that version" in done.stderr
    assert not (tmp_path / "new").exists()
    (backup / MANIFEST).write_bytes(_sealed(backup, {"format": 2}))
    done = statehold(data, "restore", "whole", "--into", str(tmp_path / "new"))
    assert done.returncode == 3
    assert "newer version (format 2): restore it with that version" in done.stderr
    assert not (tmp_path / "new").exists()


def _sealed(backup: Path, changed: dict[str, object]) -> bytes:
    """The manifest with other values and a digest that is right."""
    return manifests._line({**dataclasses.asdict(manifests.read(backup)), **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"states": "many"},
        {"states": True},
        {"blocks": -1},
        {"commit": 1.5},
        {"schema": 4},
        {"version": None},
        {"format": "1"},
        {"format": 0},
        {"files": None},
        {"files": [[]]},
        {"files": [{"name": name, "bytes": "5", "blake3": "00"} for name in FILES]},
        {"files": [{"name": name, "bytes": 5, "blake3": 0} for name in FILES]},
        {"more": 1},
    ],
    ids=str,
)
def test_a_manifest_of_other_types_is_damaged_though_its_digest_is_right(
    backup: Path, changed: dict[str, object]
) -> None:
    (backup / MANIFEST).write_bytes(_sealed(backup, changed))
    with pytest.raises(BackupDamaged, match="is not as it was written"):
        manifests.read(backup)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"backup":' * 100_000, b"[]", b"1", b'{"backup":[]}', b"\xff"]
)
def test_a_manifest_that_is_none_is_damaged(backup: Path, content: bytes) -> None:
    (backup / MANIFEST).write_bytes(content)
    with pytest.raises(BackupDamaged, match="is not as it was written"):
        manifests.read(backup)


def test_a_backup_of_an_older_version_is_migrated(data: Path, backup: Path) -> None:
    (backup / "metadata.db").unlink()
    command.upgrade(migrations._config(backup / "metadata.db"), "0002")
    for environment in ("large", "small"):
        shutil.rmtree(backup / "blocks" / environment)
    LmdbBlocks(backup / "blocks").close()
    _seal_again(backup, schema="0002", states=0)
    done = statehold(data, "restore", "whole", "--replace")
    assert done.returncode == 0, done.stderr
    assert migrations.current(data / "metadata.db") == migrations.head()
    serves(data)


def test_a_backup_whose_blocks_are_not_what_they_were_is_refused_though_its_digests_are_right(
    data: Path, backup: Path, tmp_path: Path
) -> None:
    flip_block(backup, noise(3))
    _seal_again(backup)
    done = statehold(data, "restore", "whole", "--into", str(tmp_path / "new"))
    assert done.returncode == 1
    assert "(1 findings): block " in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_backup_whose_rows_were_changed_is_refused_though_its_digests_are_right(
    data: Path, backup: Path, tmp_path: Path
) -> None:
    sql(backup, "UPDATE state SET token_count = 17 WHERE id = 2")
    sql(backup, "UPDATE store SET entries = 40")
    sql(backup, "PRAGMA wal_checkpoint(TRUNCATE)")
    _seal_again(backup)
    done = statehold(data, "restore", "whole", "--into", str(tmp_path / "new"))
    assert done.returncode == 1
    assert "the store counts 40 live states but holds 4" in done.stderr
    assert "the manifest is not the one that was recorded" in done.stderr


def test_a_folder_that_holds_something_is_refused_unless_told(data: Path, tmp_path: Path) -> None:
    refused = statehold(data, "restore", "whole")
    assert refused.returncode == 3
    assert "is not empty" in refused.stderr
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    refused = statehold(data, "restore", "whole", "--into", str(other))
    assert refused.returncode == 3
    assert "notes.txt" in refused.stderr
    assert [p.name for p in other.iterdir()] == ["notes.txt"]


def test_a_restore_replaces_data_beside_its_own_backups(start: ServerFactory, data: Path) -> None:
    server = start()
    with Client(server.url) as client:
        record(client, 50, 51)
    server.stop()
    done = statehold(data, "restore", "whole", "--replace")
    assert done.returncode == 0, done.stderr
    assert "4 states, all verified" in done.stdout
    assert (data / "backups" / "whole" / MANIFEST).exists()
    serves(data, 1, 2, 3, 4)


def test_a_restore_onto_a_device_without_room_is_refused_and_leaves_nothing(
    data: Path, small_disk: Path
) -> None:
    with (small_disk / "others").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 60 << 20)
    done = statehold(data, "restore", "whole", "--into", str(small_disk / "new"))
    assert done.returncode == 3
    assert "bytes of free disk" in done.stderr
    assert [p.name for p in small_disk.iterdir()] == ["others"]


def test_a_restore_beside_a_running_server_is_refused(server: Server, client: Client) -> None:
    record(client, 1)
    result(client, "backup", name="b")
    done = statehold(server.data, "restore", "b", "--replace")
    assert done.returncode == 3
    assert "a server is using it: stop it first" in done.stderr
    assert client.restore("ns", [1, 1]).content == noise(1)


def test_an_unknown_name_is_answered_with_the_names_there_are(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "backups" / "whole", data / "backups" / "another")
    (data / "backups" / "no-backup").mkdir()
    shutil.copytree(data / "backups" / "whole", data / "backups" / ".cut-off.partial")
    done = statehold(data, "restore", "who1e", "--into", str(tmp_path / "new"))
    assert done.returncode == 1
    assert done.stderr == (
        f"statehold: there is no backup who1e in {data}/backups; there are: another, whole\n"
    )
    done = statehold(data, "restore", "whole", backup_dir=tmp_path / "none")
    assert "there are: none" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_restore_that_leaves_the_service_open_says_so(data: Path, tmp_path: Path) -> None:
    """A backup made before the first token brings back a folder in which there never was one."""
    made = statehold(data, "token", "create", "--label", "o", "--scope", "admin:read")
    assert made.returncode == 0, made.stderr
    assert statehold(data, "backup", "closed").returncode == 0
    opened = statehold(data, "restore", "whole", "--replace")
    assert opened.returncode == 0
    assert "there is no access token" in opened.stderr
    assert "STATEHOLD_ACCESS=tokens" in opened.stderr
    guarded = statehold(data, "restore", "whole", "--replace", access="tokens")
    assert (guarded.returncode, guarded.stderr) == (0, "")
    closed = statehold(data, "restore", "closed", "--replace")
    assert (closed.returncode, closed.stderr) == (0, "")


# ---- verify on a stopped folder ----------------------------------------------------------------


def test_verify_finds_nothing_in_an_intact_folder(data: Path) -> None:
    done = statehold(data, "verify")
    assert (done.returncode, done.stdout) == (0, "0 findings\n"), done.stderr


def test_verify_names_the_damaged_block_and_how_many_states_have_it(data: Path) -> None:
    flip_block(data, noise(2))
    done = statehold(data, "verify", "--json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding.startswith("block ")
    assert "(1 states, the first " in finding


def test_verify_outlives_a_file_that_kills_its_reader(data: Path) -> None:
    file = data / "blocks" / "large" / "data.mdb"
    os.truncate(file, file.stat().st_size // 2)
    done = statehold(data, "verify")
    assert done.returncode == 1, done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 1


def test_a_folder_that_was_never_served_has_nothing_to_back_up(tmp_path: Path) -> None:
    data = tmp_path / "new"
    assert statehold(data, "migrate").returncode == 0
    done = statehold(data, "backup", "b")
    assert done.returncode == 3
    assert "was never served: there is nothing to back up" in done.stderr


def test_a_backup_without_a_name_gets_the_time_and_is_read_before_it_is_served(
    server: Server, client: Client, tmp_path: Path
) -> None:
    client.record_full("ns", [1], b"x")
    name = result(client, "backup")["name"]
    assert abs(time.time() - calendar.timegm(time.strptime(name, "%Y%m%dT%H%M%SZ"))) < 60
    into = tmp_path / "new"
    assert statehold(server.data, "restore", name, "--into", str(into)).returncode == 0
    for arguments in (
        ("stats", "--offline"),
        ("states", "list", "--offline"),
        ("quarantine", "list", "--offline"),
        ("compact",),
    ):
        shutil.rmtree(into / "instances", ignore_errors=True)
        done = statehold(into, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)


def test_verify_refuses_a_folder_that_is_served_or_empty(server: Server, tmp_path: Path) -> None:
    done = statehold(server.data, "verify")
    assert done.returncode == 3
    assert "statehold verify --online" in done.stderr
    assert statehold(tmp_path / "nothing", "verify").returncode == 3
    assert not (tmp_path / "nothing").exists()
