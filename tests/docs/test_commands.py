"""Every block of commands in the documentation runs as pasted, each page against a server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ServerFactory
from tests.support.pages import PAGES, REASONS, ROOT, Block, blocks

_WITH_COMMANDS = [page for page in PAGES if any(not block.not_run for block in blocks(page))]
# What a later block may use of an earlier one: variables and functions.
_KEEP = (
    'trap "{ export -p; declare -f; } > $KEPT" EXIT; [ -f $KEPT ] && . $KEPT; set -aeuo pipefail\n'
)


@pytest.mark.parametrize("page", _WITH_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_a_page_work(start: ServerFactory, tmp_path: Path, page: Path) -> None:
    server = start()
    folder = tmp_path / "reader"
    folder.mkdir()
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "STATEHOLD_DATA_DIR": str(server.data),
        "STATEHOLD_PORT": str(server.port),
        "STATEHOLD_FREE_DISK_RESERVE_BYTES": "64MiB",
        "ROOT": str(ROOT),
        "KEPT": str(tmp_path / "kept"),
    }
    for block in blocks(page):
        if block.not_run:
            continue
        if block.stopped:
            server.stop()
        _run(block, environment, folder, server.url)
        if block.stopped:
            server.start()


def _run(block: Block, environment: dict[str, str], folder: Path, url: str) -> None:
    script = block.script.replace("/tmp/", f"{folder}/")
    for place in ("http://127.0.0.1:8080", "http://localhost:8080", "localhost:8080"):
        script = script.replace(place, url)
    done = subprocess.run(
        ["bash", "-c", _KEEP + script],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, f"{block.page}:\n{script}\n{done.stdout}\n{done.stderr}"


def test_a_block_that_is_not_run_says_why() -> None:
    given = {block.not_run for page in PAGES for block in blocks(page) if block.not_run}
    assert given <= REASONS
