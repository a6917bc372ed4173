"""The units: systemd's own verifier and its exposure score, and what they must agree on with the service."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.settings import Settings
from tests.support.client import Client
from tests.support.folders import statehold
from tests.support.server import Server

_UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
_NAMES = ["statehold.service", "statehold-backup.service", "statehold-backup.timer"]
_SERVICES = _NAMES[:2]
_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here"
)


class _Unit(configparser.RawConfigParser):
    """A unit file; of keys that stand several times the last counts here."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",))
        self.read(_UNITS / name)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@_analyze
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """With a program in place of the installed one, which is all that is missing here."""
    program = tmp_path / "statehold"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in _NAMES:
        text = (_UNITS / name).read_text().replace("/opt/statehold/bin/statehold", str(program))
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / name for name in _NAMES)],
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "info"},
        check=False,
    )
    said = [
        line for line in done.stderr.splitlines() if str(tmp_path) in line or "statehold" in line
    ]
    assert (done.returncode, said) == (0, []), done.stderr


@_analyze
@pytest.mark.parametrize("name", _SERVICES)
def test_the_exposure_that_systemd_counts_is_low(name: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", _UNITS / name],
        capture_output=True,
        text=True,
        check=False,
    )
    score = re.search(r"exposure level for \S+: (\d+\.\d)", done.stdout)
    assert score is not None, done.stderr
    assert float(score[1]) <= 1.5


def test_the_service_is_given_longer_to_stop_than_its_requests_have() -> None:
    service = _Unit("statehold.service")["Service"]
    grace_s = Settings.model_fields["shutdown_grace_s"].default
    assert int(service["TimeoutStopSec"]) >= 2 * grace_s
    assert service["KillMode"] == "mixed"
    assert service["Type"] == "exec"  # it does not notify


def test_a_failing_start_is_tried_a_few_times_and_wrong_settings_once(tmp_path: Path) -> None:
    unit = _Unit("statehold.service")
    assert unit["Service"]["Restart"] == "on-failure"
    tries, seconds = (
        int(unit["Unit"]["StartLimitBurst"]),
        int(unit["Unit"]["StartLimitIntervalSec"]),
    )
    assert tries * float(unit["Service"]["RestartSec"]) < seconds
    wrong = statehold(tmp_path, "serve", port="many")
    assert str(wrong.returncode) in unit["Service"]["RestartPreventExitStatus"].split()


def test_the_example_settings_are_settings_and_closed_to_strangers(tmp_path: Path) -> None:
    example = _UNITS / "statehold.toml"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from app.settings import Settings; s = Settings(); print(s.data_dir, s.socket, s.access)",
        ],
        cwd=_UNITS.parents[1],
        env={"PATH": "/usr/bin:/bin", "STATEHOLD_CONFIG": str(example)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["/var/lib/statehold", "/run/statehold/http.sock", "tokens"], (
        done.stderr
    )
    service = _Unit("statehold.service")["Service"]
    assert str(example.name) in service["ExecStart"]
    assert service["StateDirectory"] == service["RuntimeDirectory"] == "statehold"


def test_the_daily_backup_is_made_and_old_ones_of_it_go(server: Server, tmp_path: Path) -> None:
    """The unit's own lines, with its variables and names filled in as systemd does."""
    service = _Unit("statehold-backup.service")["Service"]
    with Client(server.url) as client:
        client.record_full("ns", [1], b"x" * 10_000)
    backups = server.data / "backups"
    backups.mkdir(mode=0o700)
    week = time.time() - 9 * 86_400
    for name in ("daily-2026-01-01T031700", "by-hand"):
        (backups / name).mkdir()
        (backups / name / "manifest.json").write_text("{}")
        os.utime(backups / name, (week, week))
    (backups / "daily-2026-01-02T031700").mkdir()
    program = tmp_path / "statehold"
    program.write_text(f'#!/bin/sh\ncd {_UNITS.parents[1]} && exec {sys.executable} -m app "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "STATEHOLD_DATA_DIR": str(server.data)}
    environment["STATEHOLD_FREE_DISK_RESERVE_BYTES"] = "64MiB"
    for line in (service["ExecStart"], service["ExecStartPost"]):
        filled = line.replace("/opt/statehold/bin/statehold", str(program))
        filled = filled.replace("${BACKUPS}", str(backups)).replace("$$", "$").replace("%%", "%")
        # systemd splits words and quotes as a shell does, and expands nothing more.
        subprocess.run(shlex.split(filled), env=environment, check=True)
    names = {path.name for path in backups.iterdir() if path.is_dir()}
    new = names - {"by-hand", "daily-2026-01-02T031700"}
    assert len(new) == 1, names
    made = new.pop()
    assert re.fullmatch(r"daily-\d{4}-\d\d-\d\dT\d{6}", made)
    restored = statehold(tmp_path / "back", "restore", str(backups / made))
    assert restored.returncode == 0, restored.stderr
