"""What the Dockerfile makes, built by its own steps and run as a container is: read-only, nobody's root.

Only in `make soak`: it installs the locked dependencies. Skipped without root and overlayfs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conftest import Sample
from tests.support.client import Client
from tests.support.image import Image, possible
from tests.support.jobs import result
from tests.support.server import free_port

pytestmark = pytest.mark.soak
_ROOT = Path(__file__).parents[2]
_OWNER = 10001


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)
    (folder / "trial").mkdir()
    if not possible(folder / "trial"):
        pytest.skip("no overlay of the root can be mounted here")
    found = Image(folder)
    found.build()
    return found


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """As an engine makes it: with the owner and mode of the image's folder."""
    return _owned(tmp_path / "volume")


def _owned(path: Path) -> Path:
    path.mkdir(mode=0o700)
    os.chown(path, _OWNER, _OWNER)
    return path


def _run(
    image: Image, mounts: dict[Path, str], *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    program = image.last.last("ENTRYPOINT").words
    return _done(image.command([*program, *arguments], mounts, **settings))


def _exec(
    image: Image, first: int, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """In a running container, as its environment has it."""
    return _done(image.command_inside(first, ["statehold", *arguments], **settings))


def _done(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def _running(image: Image, mounts: dict[Path, str], log: Path, **settings: str) -> Iterator[int]:
    """The container with the image's own command; its process 1 as seen from here."""
    command = [*image.last.last("ENTRYPOINT").words, *image.last.last("CMD").words]
    with log.open("wb") as output:
        process = subprocess.Popen(image.command(command, mounts, **settings), stderr=output)
    try:
        health = image.last.last("HEALTHCHECK").rest.split("CMD ", 1)[1]
        deadline = time.monotonic() + 60
        while True:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if children:
                asked = image.command_inside(int(children[0]), json.loads(health), **settings)
                if _done(asked).returncode == 0:
                    break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        first = int(children[0])
        yield first
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait(30)


def test_it_has_what_the_lock_pins_and_nothing_that_builds(image: Image) -> None:
    (packages,) = image.path("/srv/venv/lib").glob("python*/site-packages")
    pinned = dict(
        line.split(";")[0].strip().split("==")
        for line in (_ROOT / "requirements.lock").read_text().splitlines()
        if "numpy" not in line  # two versions, by Python
    )
    found = dict(
        p.name.removesuffix(".dist-info").rsplit("-", 1) for p in packages.glob("*.dist-info")
    )
    ours = {name.replace("_", "-"): version for name, version in found.items()}
    assert ours.pop("statehold")
    assert ours.pop("numpy")
    assert ours.items() <= pinned.items()
    assert not {"pip", "hatchling", "editables", "setuptools"} & set(ours)
    assert (packages / "app" / "ui" / "index.html").is_file()


def test_nothing_is_left_to_compile_at_a_start(image: Image) -> None:
    (packages,) = image.path("/srv/venv/lib").glob("python*/site-packages")
    missing = [
        path
        for path in packages.rglob("*.py")
        if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))
    ]
    assert missing == []


def test_a_network_address_without_a_token_is_refused_with_the_way_out(
    image: Image, volume: Path
) -> None:
    done = _run(image, {volume: "/data"}, "serve")
    assert done.returncode == 2
    assert "make one with `statehold token create`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_serves_backs_up_and_ends_on_a_root_that_nobody_can_write(
    image: Image, volume: Path, tmp_path: Path, hybrid: list[Sample], workers: str
) -> None:
    backups = _owned(tmp_path / "backups")
    mounts = {volume: "/data", backups: "/backups"}
    scopes = ["lookup", "record", "admin:read", "admin:write"]
    made = _run(
        image, mounts, "token", "create", "--label", "x", *(f"--scope={scope}" for scope in scopes)
    )
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert secret.startswith("sth_")
    assert secret not in made.stderr
    port = str(free_port())
    settings = {"STATEHOLD_PORT": port, "STATEHOLD_WORKERS": workers}
    settings |= {"STATEHOLD_BACKUP_DIR": "/backups", "STATEHOLD_FREE_DISK_RESERVE_BYTES": "64MiB"}
    with _running(image, mounts, tmp_path / "log", **settings) as first:
        status = Path(f"/proc/{first}/status").read_text()
        assert re.search(rf"^Uid:\t{_OWNER}\t{_OWNER}\t{_OWNER}", status, re.M)
        assert re.search(r"^CapBnd:\t0+$", status, re.M)
        assert not os.access(f"/proc/{first}/root/work", os.F_OK) or not list(
            Path(f"/proc/{first}/root/work").iterdir()
        )
        with Client(f"http://127.0.0.1:{port}") as client:
            assert client.get("/admin/v1/stats").status_code == 401
            client.headers["Authorization"] = f"Bearer {secret}"
            client.record_sample("ns", hybrid[0])
            client.record_full("ns", [5], os.urandom(9_000_000))
            assert client.restore("ns", hybrid[0].tokens).content == hybrid[0].payload
            for kind in ("verify", "reclaim", "checkpoint"):
                result(client, kind)
            result(client, "backup", name="first")
        beside = _exec(image, first, "backup", "second", **settings)
        assert beside.returncode == 0, beside.stderr
        listed = _exec(image, first, "token", "list", **settings)
        assert listed.stdout.count("good") == 1
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert sorted(p.name for p in backups.iterdir() if p.is_dir()) == ["first", "second"]
    for command in (["verify"], ["check"], ["compact"], ["restore", "second", "--replace"]):
        done = _run(image, mounts, *command, **settings)
        assert done.returncode == 0, (command, done.stderr)
    for path in volume.rglob("*"):
        assert path.stat().st_uid == _OWNER
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_second_container_on_the_volume_says_where_to_run_instead(
    image: Image, volume: Path, tmp_path: Path
) -> None:
    """Both have a process 1, and LMDB tells readers apart by their numbers."""
    settings = {"STATEHOLD_PORT": str(free_port()), "STATEHOLD_ACCESS": "tokens"}
    settings["STATEHOLD_FREE_DISK_RESERVE_BYTES"] = "64MiB"
    with _running(image, {volume: "/data"}, tmp_path / "log", **settings):
        beside = _run(image, {volume: "/data"}, "backup", "x", **settings)
        assert beside.returncode == 3
        assert "run the command inside that container" in beside.stderr
        another = _run(image, {volume: "/data"}, "serve", **settings)
        assert another.returncode == 3
        assert "another server or a compaction is using it" in another.stderr
        # A token needs no block: this way is good for the first one and for any other.
        made = _run(image, {volume: "/data"}, "token", "create", "--label=y", "--scope=lookup")
        assert made.returncode == 0


def test_a_volume_of_another_owner_s_group_takes_a_folder_of_ours(
    image: Image, tmp_path: Path
) -> None:
    """What Kubernetes mounts with fsGroup: root's, writable for the group."""
    mounted = tmp_path / "claim"
    mounted.mkdir()
    os.chown(mounted, 0, _OWNER)
    mounted.chmod(0o2775)
    refused = _run(image, {mounted: "/data"}, "token", "list")
    assert refused.returncode == 3
    assert refused.stderr == (
        "statehold: the data folder /data cannot be used: Operation not permitted\n"
    )
    inside = {"STATEHOLD_DATA_DIR": "/data/store"}
    done = _run(image, {mounted: "/data"}, "token", "list", **inside)
    assert done.returncode == 0, done.stderr
    port = str(free_port())
    inside |= {"STATEHOLD_PORT": port, "STATEHOLD_ACCESS": "tokens"}
    with _running(image, {mounted: "/data"}, tmp_path / "log", **inside):
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
