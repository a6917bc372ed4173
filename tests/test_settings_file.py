"""Settings from a TOML file, and listening on a unix socket."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.command import Command

_ROOT = Path(__file__).parents[1]


def _run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {f"STATEHOLD_{name}": value for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=_ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def _file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "statehold.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("way", ["option", "option behind", "variable"])
def test_a_file_sets_what_the_environment_does_not(tmp_path: Path, way: str) -> None:
    named = _file(tmp_path, f'data_dir = "{tmp_path}/from-file"\nbudget_bytes = "2GiB"\n')
    done = {
        "option": lambda: _run("--config", named, "migrate"),
        "option behind": lambda: _run("migrate", "--config", named),
        "variable": lambda: _run("migrate", CONFIG=named),
    }[way]()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "from-file" / "metadata.db").exists()
    done = _run("migrate", CONFIG=named, DATA_DIR=str(tmp_path / "from-environment"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "from-environment" / "metadata.db").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget = 1", "there is no setting budget, which "),
        ("prot = 1", "did you mean port?"),
        ('port = "many"', "port in "),
        ("port = true", "port in "),
        ('budget_bytes = "1KB"', "budget_bytes in "),
        ("port = [", "is not TOML"),
        ('data_dir = ""', "data_dir in "),
        ('backup_dir = ""', "backup_dir in "),
        ("lease_ttl_s = 500\nmax_lease_ttl_s = 100", "lease_ttl_s in "),
    ],
)
def test_a_wrong_file_stops_the_start_with_a_sentence_that_names_the_setting(
    tmp_path: Path, text: str, said: str
) -> None:
    named = _file(tmp_path, text)
    # What the file sets is looked at, and not hidden by the environment.
    folder = {} if "data_dir" in text else {"DATA_DIR": str(tmp_path / "d")}
    done = _run("migrate", CONFIG=named, **folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert named in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "d").exists()


def test_a_file_that_is_not_there_is_not_passed_over(tmp_path: Path) -> None:
    done = _run("migrate", CONFIG=str(tmp_path / "none.toml"), DATA_DIR=str(tmp_path / "d"))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "FILE", "states", "list"],
        ["states", "--config", "FILE", "list"],
        ["states", "list", "--config", "FILE"],
        ["token", "list", "--config", "FILE"],
        ["doctor", "--config", "FILE"],
    ],
)
def test_the_file_is_named_in_front_of_a_command_or_behind_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    named = _file(tmp_path, "prot = 1\n")
    done = Command(capsys)(*(named if one == "FILE" else one for one in arguments))
    assert f"there is no setting prot, which {named} sets" in done.out + done.err


def test_an_empty_name_of_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    statehold = Command(capsys)
    for done in (statehold("check", config=""), statehold("check", "--config", "")):
        assert done.code == 2
        assert done.sentence.startswith("STATEHOLD_CONFIG (or --config) is empty")


@contextmanager
def _served(data: Path, path: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {f"STATEHOLD_{name}": value for name, value in settings.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve"],
        cwd=_ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "STATEHOLD_DATA_DIR": str(data),
            "STATEHOLD_SOCKET": str(path),
            "STATEHOLD_FREE_DISK_RESERVE_BYTES": "64MiB",
            **environment,
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 90
        while process.poll() is None:
            assert time.monotonic() < until
            try:
                if _get(path).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _get(path: Path) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        return client.get("http://statehold/readyz")


@pytest.mark.parametrize(("workers", "mode"), [("1", "0600"), ("2", "0660")])
def test_the_service_listens_on_a_socket_of_the_mode_that_is_set(
    tmp_path: Path, workers: str, mode: str
) -> None:
    path = tmp_path / "s"
    with _served(tmp_path / "d", path, WORKERS=workers, SOCKET_MODE=mode, HOST="0.0.0.0"):
        assert _get(path).status_code == 200
        assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
    assert not path.exists()


def test_a_socket_left_by_a_killed_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with _served(tmp_path / "d", path):
        assert _get(path).status_code == 200


def test_a_path_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("mine")
    done = _run("serve", DATA_DIR=str(tmp_path / "d"), SOCKET=str(path))
    assert done.returncode == 3
    assert "another file has the name" in done.stderr
    assert path.read_text() == "mine"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        done = _run("serve", DATA_DIR=str(tmp_path / "d2"), SOCKET=str(path))
    assert done.returncode == 3
    assert "another server listens on it" in done.stderr
    assert path.exists()


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    done = _run("serve", DATA_DIR=str(tmp_path / "d"), SOCKET="/tmp/" + "x" * 110)
    assert done.returncode == 2
    assert "STATEHOLD_SOCKET" in done.stderr
    assert list(tmp_path.iterdir()) == []
