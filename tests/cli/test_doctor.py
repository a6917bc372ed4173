"""`doctor`: every fault that it knows is provoked, and named with what to do."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.commands.checks import folder, machine
from app.commands.checks.finding import Finding
from app.settings import Settings
from storage.layout import DataFolder, running_processes
from tests.cli.conftest import Answer, says
from tests.conftest import ServerFactory
from tests.support.client import Client
from tests.support.command import Command, Done
from tests.support.damage import sql
from tests.support.server import Server, free_port

MOUNTS = """\
21 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 21 0:40 / /mnt/share rw shared:1 - nfs4 server:/export rw
31 21 0:41 / /mnt/share/local rw - xfs /dev/sdb rw
32 21 0:42 / /mnt/with\\040space rw - cifs //server/x rw
33 21 0:43 / /mnt/sshfs rw - fuse.sshfs me@host: rw
34 21 0:44 / /mnt/merged rw - fuse.mergerfs a:b rw
35 21 0:45 / /mnt/tmp rw - tmpfs tmpfs rw
36 21 0:46 / /mnt/stick rw - vfat /dev/sdc rw
37 21 0:47 / /mnt/layer rw - overlay overlay rw
38 21 0:48 / /mnt/twice rw - nfs server:/a rw
39 21 0:49 / /mnt/twice rw - ext4 /dev/sdd rw
40 21 0:50 / /mnt/sharepoint rw - 9p host rw
a line that is none
"""


def level(done: Done, check: str) -> tuple[str, str]:
    """(level, detail) of the worst finding of a check."""
    found = [one for one in done.document["checks"] if one["check"] == check]
    assert found, f"{check} was not looked at: {done.out}"
    worst = max(found, key=lambda one: ("ok", "warn", "fail").index(one["level"]))
    return worst["level"], worst["detail"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def doctor(statehold: Command, data: Path) -> Callable[..., Done]:
    """The command in JSON, on a folder of the test's own and a port that nobody listens on."""

    def run(*arguments: object, **settings: object) -> Done:
        # A budget that fits on any machine.
        given = {"data_dir": data, "port": free_port(), "budget_bytes": "64MiB", **settings}
        return statehold("doctor", "--json", *arguments, **given)

    return run


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a server has used and left."""
    server = Server(tmp_path_factory.mktemp("used") / "data")
    server.start()
    with Client(server.url) as client:
        client.record_full("ns", [1], b"x" * 100_000)
    server.stop()
    return server.data


@pytest.fixture
def left(used: Path, data: Path) -> Path:
    """A copy of it as the test's own."""
    shutil.copytree(used, data)
    return data


# ---- all is well -------------------------------------------------------------------------------


def test_a_new_folder_has_nothing_wrong(doctor: Callable[..., Done], data: Path) -> None:
    done = doctor()
    assert (done.code, done.document["fail"]) == (0, 0)
    assert level(done, "schema")[0] == "ok"
    assert level(done, "server")[0] == "ok"
    assert not data.exists()  # it changes nothing


def test_a_served_folder_has_nothing_wrong_but_open_access(
    doctor: Callable[..., Done], statehold: Command, start: ServerFactory
) -> None:
    server = start()
    done = doctor(port=server.port)
    assert done.code == 0
    assert level(done, "server")[1].startswith(f"{server.url} answers, version ")
    (pid,) = running_processes(DataFolder(server.data))
    assert f"the server (process {pid}) may" in level(done, "open files")[1]
    assert "leftovers" not in {one["check"] for one in done.document["checks"]}
    warned = {one["check"] for one in done.document["checks"] if one["level"] == "warn"}
    assert warned >= {"address", "readyz"}
    shown = statehold("doctor", data_dir=server.data, port=server.port, budget_bytes="64MiB")
    assert shown.err == ""
    *lines, last = shown.out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn"}
    assert last == f"0 failed, {done.document['warn']} warnings"


def test_a_folder_that_was_left_is_as_new_and_stays_as_it_is(
    doctor: Callable[..., Done], left: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in left.rglob("*") if path.is_file()}
    done = doctor()
    assert done.code == 0
    for check in ("data folder", "files", "schema", "leftovers", "clock", "free disk"):
        assert level(done, check)[0] == "ok", level(done, check)
    after = {path: path.stat().st_mtime_ns for path in left.rglob("*") if path.is_file()}
    assert after == before


# ---- settings ----------------------------------------------------------------------------------


def test_every_wrong_setting_is_named(doctor: Callable[..., Done]) -> None:
    done = doctor(bugdet_bytes="1GiB", hots="x", workers="many", low_water=7)
    assert done.code == 1
    said = [one["detail"] for one in done.document["checks"] if one["check"] == "settings"]
    assert len(said) == 4
    for name in ("STATEHOLD_BUGDET_BYTES", "STATEHOLD_HOTS", "STATEHOLD_WORKERS"):
        assert any(name in sentence for sentence in said), said
    assert any("did you mean STATEHOLD_BUDGET_BYTES?" in sentence for sentence in said)
    # What does not need settings is looked at all the same.
    assert level(done, "sqlite")[0] == "ok"


def test_a_wrong_settings_file_is_named(
    doctor: Callable[..., Done], statehold: Command, tmp_path: Path
) -> None:
    path = tmp_path / "statehold.toml"
    path.write_text("budget = 3\n")
    assert "budget" in level(doctor(config=path), "settings")[1]
    path.write_text("not toml")
    done = statehold("--config", path, "doctor", "--json")
    assert (done.code, "is not TOML" in level(done, "settings")[1]) == (1, True)


def test_a_place_where_backups_cannot_go_is_named(
    doctor: Callable[..., Done], tmp_path: Path
) -> None:
    assert level(doctor(backup_dir=tmp_path / "to" / "come"), "backups")[0] == "ok"
    (tmp_path / "taken").write_text("x")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        found, detail = level(doctor(backup_dir=place), "backups")
        assert found == "fail"
        assert detail.startswith(f"STATEHOLD_BACKUP_DIR: backups cannot go into {place}, ")


# ---- the machine -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (machine.python((3, 10, 2)), "fail"),
        (machine.python((3, 11, 0)), "ok"),
        (machine.sqlite((3, 40, 1), 1), "warn"),
        (machine.sqlite((3, 40, 1), 2), "fail"),
        (machine.sqlite((3, 51, 2), 2), "fail"),
        (machine.sqlite((3, 44, 6), 2), "ok"),
        (machine.sqlite((3, 50, 7), 2), "ok"),
        (machine.sqlite((3, 51, 3), 2), "ok"),
        (machine.of_lmdb("2.2.0", (0, 9, 33)), "fail"),
        (machine.of_lmdb("3.0.0", (1, 0, 2)), "fail"),
        (machine.of_lmdb("3.0.0", (0, 9, 36)), "ok"),
        (machine.of_zstandard("0.22.0"), "fail"),
        (machine.of_zstandard("0.25.0"), "ok"),
        (machine.open_files(256, "a process"), "fail"),
        (machine.open_files(1024, "a process"), "warn"),
        (machine.open_files(4096, "a process"), "ok"),
        (machine.open_files(-1, "a process"), "ok"),
    ],
)
def test_versions_and_limits(finding: Finding, expected: str) -> None:
    assert finding.level == expected, finding
    if expected != "ok":
        assert any(word in finding.detail for word in ("install", "raise")), finding.detail


def test_limits_of_this_process_are_looked_at(
    doctor: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {
        resource.RLIMIT_NOFILE: 100,
        resource.RLIMIT_AS: 8 << 30,
        resource.RLIMIT_FSIZE: 1 << 30,
    }
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which], -1))
    done = doctor(budget_bytes="2GiB")
    assert done.code == 1
    assert level(done, "open files") == (
        "fail",
        "a process started from here may have 100 files open, which clients use up: raise it to 4,096 "
        "or more (LimitNOFILE= of a systemd unit, ulimit -n)",
    )
    assert level(done, "address space")[0] == "fail"
    assert level(done, "file size")[0] == "fail"


def test_memory_that_the_settings_allow_and_the_machine_has_not(
    doctor: Callable[..., Done],
) -> None:
    assert level(doctor(restore_buffer_bytes="900TiB"), "memory")[0] == "fail"
    assert level(doctor(workers=64, restore_buffer_bytes="900GiB"), "memory")[0] == "fail"
    settings = Settings(restore_buffer_bytes=1 << 30, buffer_bytes=128 << 20)
    assert machine.memory(settings, int(1.3 * (1 << 30))).level == "warn"
    assert machine.memory(settings, 4 << 30).level == "ok"
    assert machine.memory(settings, None).level == "ok"


def test_memory_is_what_a_control_group_leaves(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:       1048576 kB\n")
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    (groups / "a" / "b").mkdir(parents=True)
    assert machine.memory_bytes(groups, proc) == 1 << 30
    (groups / "a" / "b" / "memory.max").write_text("max\n")
    assert machine.memory_bytes(groups, proc) == 1 << 30
    (groups / "a" / "memory.max").write_text(f"{256 << 20}\n")
    assert machine.memory_bytes(groups, proc) == 256 << 20
    (groups / "memory").mkdir()
    (groups / "memory" / "memory.limit_in_bytes").write_text(f"{64 << 20}\n")
    assert machine.memory_bytes(groups, proc) == 64 << 20


def test_a_clock_that_is_behind_is_a_fault(doctor: Callable[..., Done], left: Path) -> None:
    assert machine.clock(0, None).level == "fail"
    assert machine.clock(1_900_000_000, 1_900_000_030_000).level == "ok"
    assert machine.clock(1_900_000_000, 1_900_000_120_000).level == "fail"
    sql(left, "UPDATE state SET created_at_ms = 4102444800000")
    done = doctor()
    assert (done.code, "2100-01-01" in level(done, "clock")[1]) == (1, True)


# ---- the data folder ---------------------------------------------------------------------------


def test_a_folder_that_others_may_enter(doctor: Callable[..., Done], left: Path) -> None:
    left.chmod(0o755)
    done = doctor()
    assert (done.code, level(done, "data folder")) == (
        1,
        (
            "fail",
            f"{left} has mode 0755, and others can reach prompts and states: chmod 700 {left}",
        ),
    )


def test_files_that_others_may_read(doctor: Callable[..., Done], left: Path) -> None:
    (left / "metadata.db").chmod(0o644)
    done = doctor()
    assert done.code == 0
    assert level(done, "files")[0] == "warn"
    assert str(left / "metadata.db") in level(done, "files")[1]


def test_files_of_another_user(left: Path) -> None:
    (finding,) = folder._files(left, os.getuid() + 1)
    assert (finding.level, "chown" in finding.detail) == ("fail", True)
    assert " more belong to another user" in finding.detail


def test_a_folder_of_another_user(
    doctor: Callable[..., Done], left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert level(doctor(), "data folder")[0] == "warn"


def test_a_folder_that_cannot_be_used(
    doctor: Callable[..., Done], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.write_text("a file")
    assert level(doctor(), "data folder")[0] == "fail"
    assert "cannot be made" in level(doctor(data_dir=data / "below"), "data folder")[1]
    data.unlink()
    data.mkdir(mode=0o700)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != data)
    done = doctor()
    assert (done.code, level(done, "data folder")[0]) == (1, "fail")
    assert "schema" not in {one["check"] for one in done.document["checks"]}


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("/srv/data", "ext4", "ok"),
        ("/mnt/share", "nfs4", "fail"),
        ("/mnt/share/x/y", "nfs4", "fail"),
        ("/mnt/share/local/x", "xfs", "ok"),
        ("/mnt/sharepoint", "9p", "fail"),
        ("/mnt/shareware", "ext4", "ok"),
        ("/mnt/with space/x", "cifs", "fail"),
        ("/mnt/sshfs", "fuse.sshfs", "fail"),
        ("/mnt/merged", "fuse.mergerfs", "warn"),
        ("/mnt/tmp", "tmpfs", "warn"),
        ("/mnt/stick", "vfat", "warn"),
        ("/mnt/layer", "overlay", "warn"),
        ("/mnt/twice", "ext4", "ok"),
    ],
)
def test_file_systems_that_data_should_not_lie_on(path: str, kind: str, expected: str) -> None:
    finding = folder.file_system(Path(path), MOUNTS)
    assert (finding.level, finding.detail.split()[0]) == (expected, kind)


def test_the_file_system_is_asked_of_the_kernel(doctor: Callable[..., Done]) -> None:
    assert " at /" in level(doctor(), "file system")[1]
    assert folder.mounted(Path("/proc/self"), Path("/proc/self/mountinfo").read_text())[0] == "proc"


def test_too_little_disk(doctor: Callable[..., Done], left: Path) -> None:
    reserve = doctor(free_disk_reserve_bytes="1024PiB")
    assert (reserve.code, level(reserve, "free disk")[0]) == (1, "fail")
    budget = doctor(budget_bytes="1024PiB")
    assert (budget.code, level(budget, "free disk")[0]) == (0, "warn")
    assert "set it to" in level(budget, "free disk")[1]


def test_limits_changed_at_run_time_count(
    doctor: Callable[..., Done], start: ServerFactory
) -> None:
    server = start()
    with Client(server.url) as client:
        answer = client.patch("/admin/v1/limits", json={"budget_bytes": 1 << 60})
        assert answer.status_code == 200, answer.text
    done = doctor(port=server.port)
    assert level(done, "free disk")[0] == "warn"
    assert level(done, "limits")[0] == "ok"
    assert (
        "budget_bytes is 1024 PiB, set at run time; the setting says 64.0 MiB"
        in level(done, "limits")[1]
    )


def test_a_limit_below_what_is_held_is_warned_of(
    doctor: Callable[..., Done], start: ServerFactory
) -> None:
    server = start()
    with Client(server.url) as client:
        client.record_full("ns", [1], b"x")
        client.record_full("ns", [2], b"x")
        assert client.patch("/admin/v1/limits", json={"max_entries": 1}).status_code == 200
    found = level(doctor(port=server.port), "limits")
    assert (found[0], found[1].split(":")[0]) == (
        "warn",
        "max_entries (1) is below what is held (2)",
    )


@pytest.mark.parametrize(
    "name",
    [
        "spool-abc",
        "blocks/large/data.mdb.compact/",
        "metadata.db.compact/",
        "restoring/",
        "backups/.x.partial/",
        "instances/1-2.new",
    ],
)
def test_what_was_cut_off(doctor: Callable[..., Done], left: Path, name: str) -> None:
    path = left / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700) if name.endswith("/") else path.touch(0o600)
    assert level(doctor(), "leftovers")[0] == "warn"
    assert str(path) in level(doctor(), "leftovers")[1]


def test_a_restore_that_was_cut_off(doctor: Callable[..., Done], left: Path) -> None:
    (left / "placing").mkdir(mode=0o700)
    assert "the next start finishes it" in level(doctor(), "leftovers")[1]


@pytest.mark.parametrize(
    ("revision", "expected", "do"),
    [("0001", "warn", "statehold migrate"), ("9999", "fail", "run that one")],
)
def test_a_schema_of_another_version(
    doctor: Callable[..., Done], left: Path, revision: str, expected: str, do: str
) -> None:
    sql(left, "UPDATE alembic_version SET version_num = ?", revision)
    found = level(doctor(), "schema")
    assert (found[0], do in found[1]) == (expected, True)


def test_a_database_that_is_none(doctor: Callable[..., Done], left: Path) -> None:
    (left / "metadata.db").write_bytes(b"not a database " * 1000)
    done = doctor()
    assert (done.code, level(done, "schema")[0]) == (1, "fail")


def test_an_empty_database_is_none_of_ours(doctor: Callable[..., Done], data: Path) -> None:
    data.mkdir(mode=0o700)
    (data / "metadata.db").touch(0o600)
    assert level(doctor(), "schema")[0] == "fail"


# ---- the address -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected", "word"),
    [
        ({}, "warn", "everybody on this machine"),
        ({"host": "0.0.0.0"}, "fail", "does not start"),
        ({"host": "0.0.0.0", "access": "open"}, "warn", "STATEHOLD_ACCESS=open"),
        ({"access": "tokens"}, "warn", "nobody is served"),
    ],
)
def test_who_reaches_it_without_a_token(
    doctor: Callable[..., Done], settings: dict[str, str], expected: str, word: str
) -> None:
    found = level(doctor(**settings), "address")
    assert (found[0], word in found[1]) == (expected, True)


def test_with_a_token_every_address_is_in_order(
    doctor: Callable[..., Done], statehold: Command, data: Path
) -> None:
    made = statehold("token", "create", "--label", "x", "--scope", "admin:read", data_dir=data)
    assert made.code == 0
    assert level(doctor(host="0.0.0.0"), "address")[0] == "ok"
    assert level(doctor(access="open"), "address")[0] == "warn"


def test_a_socket_that_cannot_be_made_or_is_open_to_all(
    doctor: Callable[..., Done], tmp_path: Path
) -> None:
    path = tmp_path / "http.sock"
    assert level(doctor(socket=path), "address") == ("ok", f"unix socket {path}, mode 0600")
    assert level(doctor(socket=path, socket_mode="0666"), "address")[0] == "warn"
    assert level(doctor(socket=tmp_path / "none" / "s"), "address")[0] == "fail"
    path.write_text("a file")
    assert "is another file" in level(doctor(socket=path), "address")[1]


def test_a_port_of_root(doctor: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    assert level(doctor(port=80), "port")[0] == "warn"


# ---- the server --------------------------------------------------------------------------------


def test_something_else_on_the_port(
    doctor: Callable[..., Done], answering: Callable[[Answer], str]
) -> None:
    url = answering(says(200, b"<html>", "text/html"))
    done = doctor(port=url.rpartition(":")[2])
    assert (done.code, "something else listens" in level(done, "server")[1]) == (1, True)


def test_a_folder_that_is_served_elsewhere(
    doctor: Callable[..., Done], start: ServerFactory
) -> None:
    start()
    found = level(doctor(), "server")
    assert (found[0], "is it served elsewhere?" in found[1]) == ("warn", True)


def test_a_server_of_another_folder_at_the_address(
    doctor: Callable[..., Done], start: ServerFactory, tmp_path: Path
) -> None:
    server = start(workers=2)
    assert level(doctor(port=server.port), "server")[0] == "ok"
    other = tmp_path / "another"
    found = level(doctor(port=server.port, data_dir=other), "server")
    assert (found[0], f"another data folder than {other}" in found[1]) == ("fail", True)
    # Who names a server may mean one of another folder.
    assert level(doctor("--url", server.url, data_dir=other), "server")[0] == "ok"


def _ready(**more: Any) -> bytes:
    """What the checks read, of both routes that they ask."""
    ready = {"ready": True, "degraded": [], "warnings": [], "mode": "lookup_record", "workers": 1}
    rest = {"sqlite_version": "3", "free_disk_bytes": 1, "recovered": {}, "version": "0.0.1"}
    return json.dumps({**ready, **rest, **more}).encode()


def test_another_version_and_what_is_degraded(
    doctor: Callable[..., Done], answering: Callable[[Answer], str]
) -> None:
    url = answering(says(200, _ready(degraded=["writer stopped: \x1b[31m"], warnings=["open"])))
    done = doctor("--url", url)
    assert done.code == 0
    assert "restart it after an upgrade" in level(done, "server")[1]
    said = [one["detail"] for one in done.document["checks"] if one["check"] == "readyz"]
    assert len(said) == 2
    assert said[0].startswith("degraded: writer stopped")


def test_a_server_that_says_less_than_this_version_reads(
    doctor: Callable[..., Done], answering: Callable[[Answer], str]
) -> None:
    done = doctor("--url", answering(says(200, b'{"status": "alive", "version": "0.0.1"}')))
    assert done.code == 1
    assert "restart it after an upgrade" in level(done, "server")[1]
    assert level(done, "readyz")[0] == "fail"


def test_what_a_terminal_would_obey_is_not_shown_as_it_is(
    statehold: Command, answering: Callable[[Answer], str], data: Path
) -> None:
    url = answering(says(200, _ready(degraded=["stopped \x1b[31m"])))
    done = statehold("doctor", "--url", url, data_dir=data)
    assert r"degraded: stopped \x1b[31m" in done.out
    assert "\x1b" not in done.out


def test_a_server_that_is_not_ready(
    doctor: Callable[..., Done], answering: Callable[[Answer], str]
) -> None:
    from app import VERSION

    def answer(handler: Any) -> None:
        status = 503 if handler.path == "/readyz" else 200
        says(status, _ready(ready=False, version=VERSION))(handler)

    done = doctor("--url", answering(answer))
    assert (done.code, "is not ready" in level(done, "server")[1]) == (1, True)


def test_a_mode_that_was_changed_is_told(doctor: Callable[..., Done], start: ServerFactory) -> None:
    server = start(mode="lookup")
    assert level(doctor(port=server.port), "readyz")[0] == "warn"


def test_the_token_that_is_given_is_tried(
    doctor: Callable[..., Done], statehold: Command, start: ServerFactory
) -> None:
    server = start()
    scopes = ("--scope", "admin:read", "--scope", "lookup")
    made = statehold("token", "create", "--label", "x", *scopes, data_dir=server.data)
    secret = made.out.strip()
    done = doctor(port=server.port, token=secret)
    assert level(done, "token") == ("ok", "good for lookup, admin:read of the whole store")
    wrong = doctor(port=server.port, token=secret[:-2])
    assert (wrong.code, level(wrong, "token")[0]) == (1, "fail")
    assert secret not in wrong.out + wrong.err


def test_a_server_that_cannot_be_named(doctor: Callable[..., Done]) -> None:
    assert level(doctor(port=0), "server")[0] == "fail"
    assert level(doctor("--url", "nonsense"), "server")[0] == "fail"


def test_a_socket_somebody_else_listens_on(doctor: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert stat.S_ISSOCK(path.stat().st_mode)
        found = level(doctor("--timeout", "0.3", socket=path), "server")
    assert (found[0], "something else listens" in found[1]) == ("fail", True)
