"""docs/deployment.md is run: its upgrade and its way back on a real service, every token it makes.

What only a whole machine has (systemctl, sudo, an installed package) is played by small programs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from app.settings import Settings
from tests.support.client import Client
from tests.support.dockerfile import stages
from tests.support.folders import statehold
from tests.support.server import Server

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "deployment.md").read_text()
_INSTALLED = "/opt/statehold/bin/statehold"
_CONFIG = "/etc/statehold/statehold.toml"

# Starts and stops the service as systemd would, and waits for as long.
_SYSTEMCTL = """#!/bin/bash
set -e
cd {root}
case "$1" in
  start)
    STATEHOLD_CONFIG={config} {python} -m app serve > /dev/null 2>> {folder}/log & echo $! > {folder}/pid
    for i in $(seq 300); do
      STATEHOLD_CONFIG={config} {python} -m app health --ready 2> /dev/null && exit
      kill -0 "$(cat {folder}/pid)"
    done
    exit 1 ;;
  stop)
    kill "$(cat {folder}/pid)" 2> /dev/null || exit 0
    while kill -0 "$(cat {folder}/pid)" 2> /dev/null; do sleep 0.05; done ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """Where the documented commands run."""

    folder: Path
    environment: dict[str, str]

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.log()}"
        return done.stdout

    def log(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def client(self, secret: str) -> Client:
        client = Client("http://statehold")
        client._transport = httpx.HTTPTransport(uds=str(self.folder / "s"))
        client.headers["Authorization"] = f"Bearer {secret}"
        return client


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    config = tmp_path / "statehold.toml"
    config.write_text(
        f'data_dir = "{tmp_path / "data"}"\nsocket = "{tmp_path / "s"}"\naccess = "tokens"\n'
        'free_disk_reserve_bytes = "64MiB"\n'
    )
    names = {"root": _ROOT, "config": config, "python": sys.executable, "folder": tmp_path}
    programs = {
        "systemctl": _SYSTEMCTL.format(**names),
        "sudo": '#!/bin/bash\n[ "$1 $2" = "-u statehold" ] && shift 2\nexec "$@"\n',
        "git": '#!/bin/sh\n[ "$1" = checkout ]\n',
        "pip": '#!/bin/sh\n[ "$1" = install ]\n',
        "statehold": f'#!/bin/sh\ncd {_ROOT} && exec {sys.executable} -m app "$@"\n',
    }
    programs_folder = tmp_path / "bin"
    programs_folder.mkdir()
    for name, text in programs.items():
        (programs_folder / name).write_text(text)
        (programs_folder / name).chmod(0o755)
    path = f"{programs_folder}:/usr/bin:/bin"
    found = Machine(tmp_path, {"PATH": path, "VERSION_BEFORE": "v0.1.0"})
    yield found
    found.run("systemctl stop statehold" if (tmp_path / "pid").exists() else "true")


def _documented(machine: Machine, name: str) -> str:
    """A block of the page with this machine's paths, and the function that the page defines."""
    function = re.search(r"^as_statehold\(\) .*$", _PAGE, re.M)
    assert function is not None
    marker = f"<!-- executed by tests/deploy/test_upgrade_steps.py: {name} -->\n```sh\n"
    block = _PAGE.split(marker)[1].split("```")[0]
    script = f"{function[0]}\n{block}"
    programs = machine.folder / "bin"
    script = script.replace(_INSTALLED, str(programs / "statehold"))
    script = script.replace("/opt/statehold/bin/pip", str(programs / "pip"))
    assert _CONFIG in script
    return script.replace(_CONFIG, str(machine.folder / "statehold.toml"))


def test_an_upgrade_keeps_everything_and_the_way_back_is_the_backup(machine: Machine) -> None:
    data = machine.folder / "data"
    made = statehold(
        data, "token", "create", "--label", "x", "--scope", "record", "--scope", "lookup"
    )
    secret = made.stdout.strip()
    machine.run("systemctl start statehold")
    with machine.client(secret) as client:
        client.record_full("ns", [1], b"before" * 10_000)
    assert machine.run(_documented(machine, "upgrade")).rstrip().endswith("well")
    with machine.client(secret) as client:
        assert client.restore("ns", [1]).content == b"before" * 10_000
        client.record_full("ns", [2], b"after" * 10_000)
    assert machine.run(_documented(machine, "rollback")).rstrip().endswith("well")
    with machine.client(secret) as client:
        assert client.restore("ns", [1]).content == b"before" * 10_000
        assert client.restore("ns", [2]).status_code == 204
    assert "Traceback" not in machine.log()


def _tokens() -> list[str]:
    return re.findall(r"token create [^>`|\n]+", _PAGE)


@pytest.mark.parametrize("command", _tokens())
def test_every_token_of_the_page_can_be_made(command: str, tmp_path: Path) -> None:
    made = statehold(tmp_path / "data", *shlex.split(command))
    assert made.returncode == 0, made.stderr
    # A file of it holds the secret and nothing else.
    assert re.fullmatch(r"sth_\S+\n", made.stdout)


def test_the_page_names_files_that_are_there_and_the_image_s_user() -> None:
    assert len(_tokens()) >= 6
    for path in re.findall(r"(?<![/\w])deploy/[a-z./*-]+", _PAGE):
        if path in ("deploy/.env", "deploy/"):
            continue
        assert list(_ROOT.glob(path.rstrip("."))), path
    uid = stages(_ROOT / "Dockerfile")[-1].last("USER").rest.split(":")[0]
    assert f"runAsUser: {uid}, runAsGroup: {uid}, fsGroup: {uid}" in _PAGE


def test_the_pod_s_settings_are_settings_and_it_is_closed_from_the_start() -> None:
    pod: dict[str, Any] = YAML(typ="safe", pure=True).load(
        _PAGE.split("```yaml\n")[1].split("```")[0]
    )["spec"]
    (container,) = pod["containers"]
    values = {item["name"]: item["value"] for item in container["env"]}
    assert values["STATEHOLD_ACCESS"] == "tokens"
    names = {name.removeprefix("STATEHOLD_").lower() for name in values}
    assert names <= set(Settings.model_fields)
    grace_s = Settings.model_fields["shutdown_grace_s"].default
    assert pod["terminationGracePeriodSeconds"] >= 2 * grace_s
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert [probe["path"] for probe in probes] == ["/readyz", "/readyz", "/healthz"]


def test_the_page_s_cron_line_makes_a_name_that_backups_take(server: Server) -> None:
    line = next(line for line in _PAGE.splitlines() if line.startswith("17 3 * * *"))
    command = line.removeprefix("17 3 * * *").strip().replace("\\%", "%")  # as cron reads it
    name = subprocess.run(
        ["bash", "-c", command.replace("docker exec statehold statehold backup", "echo")],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    done = statehold(server.data, "backup", name)
    assert done.returncode == 0, done.stderr
    assert (server.data / "backups" / name / "manifest.json").exists()
