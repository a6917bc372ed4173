"""Settings, the command line and what a start needs: what is wrong stops it with one sentence."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import ByteSize, TypeAdapter, ValidationError

from app import sizes
from app.settings import Settings, explain
from tests.support.server import Server

_ROOT = Path(__file__).parents[1]


def _settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    for name, value in values.items():
        monkeypatch.setenv(f"STATEHOLD_{name}", value)
    return Settings()


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("STATEHOLD_") and name != "STATEHOLD_SHARED":
            monkeypatch.delenv(name)


def test_sizes_take_iec_units(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _settings(monkeypatch, BUDGET_BYTES="3GiB").budget_bytes == 3 << 30
    assert _settings(monkeypatch, BUDGET_BYTES="5000000").budget_bytes == 5_000_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUDGET_BYTES", "lots"),
        ("BUDGET_BYTES", "-1"),
        ("LOW_WATER", "1.5"),
        ("MODE", "sometimes"),
        ("PORT", "70000"),
        ("WORKERS", "0"),
        ("LEASE_TTL_S", "x"),
        ("DATA_DIR", ""),
        ("BACKUP_DIR", ""),
        ("BACKUP_DIR", " "),
        ("SOCKET", ""),
        ("HOST", ""),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, **{name: value})
    (sentence,) = explain(caught.value)
    assert sentence.startswith(f"STATEHOLD_{name}: ")


def test_a_setting_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, BUDGET="1GiB")
    assert explain(caught.value) == [
        "there is no setting STATEHOLD_BUDGET; did you mean STATEHOLD_BUDGET_BYTES?"
    ]


def test_only_a_name_that_is_near_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, COLOUR="red", PROT="80")
    assert explain(caught.value) == [
        "there is no setting STATEHOLD_COLOUR",
        "there is no setting STATEHOLD_PROT; did you mean STATEHOLD_PORT?",
    ]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SOCKET_MODE", "rw", "three digits from 0 to 7, as in 0660"),
        ("BUDGET_BYTES", "5GO", "write bytes, or KiB, MiB, GiB, TiB as in 64GiB"),
        ("BUDGET_BYTES", "lots", "write bytes, or KiB, MiB, GiB, TiB as in 64GiB"),
        ("LOG_JSON", "perhaps", "true or false"),
    ],
)
def test_what_is_wanted_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, **{name: value})
    (sentence,) = explain(caught.value)
    assert sentence.endswith(said)


def test_settings_that_contradict_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, LEASE_TTL_S="100", MAX_LEASE_TTL_S="50")
    (sentence,) = explain(caught.value)
    assert "STATEHOLD_MAX_LEASE_TTL_S" in sentence


def _command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_a_wrong_setting_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    done = _command("serve", STATEHOLD_DATA_DIR=str(tmp_path), STATEHOLD_PORT="nope")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "STATEHOLD_PORT" in done.stderr


def test_every_wrong_setting_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "statehold.toml"
    file.write_text('budget = 1\nworkers = true\nlog_level = "loud"\n')
    done = _command(
        "serve",
        STATEHOLD_CONFIG=str(file),
        STATEHOLD_DATA_DIR="",
        STATEHOLD_PORT="nope",
        STATEHOLD_COLOUR="red",
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 6, done.stderr
    for said in (
        "STATEHOLD_DATA_DIR: it is empty",
        "STATEHOLD_PORT: ",
        "there is no setting STATEHOLD_COLOUR",
        f"there is no setting budget, which {file} sets",
        f"workers in {file}: ",
        f"log_level in {file}: ",
    ):
        assert done.stderr.count(f"statehold: {said}") == 1, (said, done.stderr)


@pytest.mark.parametrize("inside", ["", "/below"])
def test_a_place_for_backups_that_is_no_folder_stops_the_start(tmp_path: Path, inside: str) -> None:
    data = tmp_path / "data"
    for place in ("/dev/null", str(tmp_path / "link")):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "nothing")
        done = _command(
            "serve", STATEHOLD_DATA_DIR=str(data), STATEHOLD_BACKUP_DIR=f"{place}{inside}"
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr == (
            f"statehold: STATEHOLD_BACKUP_DIR: backups cannot go into {place}{inside}, because "
            f"{place} is no folder\n"
        )
    assert not (data / "metadata.db").exists()


def test_a_port_that_is_taken_stops_the_start_with_its_settings_named(tmp_path: Path) -> None:
    file = tmp_path / "statehold.toml"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file.write_text(f"port = {port}\n")
        done = _command("serve", "--config", str(file), STATEHOLD_DATA_DIR=str(tmp_path / "data"))
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"statehold: 127.0.0.1 port {port} cannot be listened on: Address already in use "
        f"(set by STATEHOLD_HOST and port in {file})"
    )


def test_a_data_folder_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = _command("serve", STATEHOLD_DATA_DIR=str(tmp_path / "file"))
    assert done.returncode == 3
    assert "cannot be used" in done.stderr


def test_check_finds_nothing_in_a_new_folder_and_something_in_a_broken_one(tmp_path: Path) -> None:
    from pysqlite3 import dbapi2

    from app.engine.cache import Cache
    from storage.layout import DataFolder

    assert _command("migrate", STATEHOLD_DATA_DIR=str(tmp_path)).returncode == 0
    cache = Cache(Settings(data_dir=tmp_path), DataFolder(tmp_path), lambda: None)
    import asyncio

    asyncio.run(cache.close())
    well = _command("check", STATEHOLD_DATA_DIR=str(tmp_path))
    assert (well.returncode, well.stdout) == (0, "0 findings\n")
    connection = dbapi2.connect(str(tmp_path / "metadata.db"))
    connection.execute("UPDATE store SET stored_bytes = 5")
    connection.commit()
    connection.close()
    broken = _command("check", STATEHOLD_DATA_DIR=str(tmp_path))
    assert broken.returncode == 1
    assert "the store counts 5 bytes but holds 0" in broken.stdout


def test_a_folder_that_is_served_is_not_checked(server: Server) -> None:
    done = _command("check", STATEHOLD_DATA_DIR=str(server.data))
    assert (done.returncode, done.stdout) == (3, "")
    assert "a server is using it: stop it first" in done.stderr


def test_sizes_of_the_command_line_are_those_of_settings() -> None:
    adapter = TypeAdapter(ByteSize)
    for text in ("7", "100 GB", "100g", "1.5GiB", "10kB", "0.5 KiB", "3mib", "2TB", "1pb", "9 B"):
        assert sizes.parse(text) == adapter.validate_python(text)
    for text in ("", "GB", "1 XB", "-1", "9" * 400 + ".0"):
        with pytest.raises(ValueError, match="is no size"):
            sizes.parse(text)


def _names(requirements: list[str]) -> set[str]:
    found = [re.match(r"[A-Za-z0-9._-]+", line) for line in requirements]
    return {re.sub(r"[-_.]+", "-", match[0]).lower() for match in found if match}


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("requirements.lock", ["build"]), ("requirements-dev.lock", ["build", "dev"])],
)
def test_a_lock_pins_every_dependency_that_is_declared(lock: str, extras: list[str]) -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    wanted = _names(project["dependencies"])
    for extra in extras:
        wanted |= _names(project["optional-dependencies"][extra])
    assert wanted - _names((_ROOT / lock).read_text().splitlines()) == set(), "run `make lock`"


@pytest.mark.parametrize("log_json", ["true", "false"])
def test_a_logged_exception_shows_no_local_variables(log_json: str) -> None:
    script = """
import logging
import structlog
from app.logs import configure
from app.settings import Settings

configure(Settings())

def fail(text):
    secret = text[::-1]
    raise ValueError("expected")

try:
    fail("neddih")
except ValueError:
    structlog.get_logger("ours").exception("failed")
    logging.getLogger("uvicorn.error").exception("failed")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "STATEHOLD_LOG_JSON": log_json},
        timeout=60,
        check=True,
    )
    assert done.stderr.count("ValueError: expected") == 2
    assert "hidden" not in done.stderr
