"""A data folder of every revision, as its release left it: migrated, every byte of it is given back.

`tests/data/folders/REVISION.tar.xz` was written over HTTP by the last commit of that revision and stopped with
SIGTERM. It holds small states in both block environments, a compressed one, prefixes of one another, a
quarantined one and, from revision 0002 on, one of token windows; `recorded.json` says what was sent.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from pysqlite3 import dbapi2

import migrations
from tests.conftest import ServerFactory
from tests.support.client import Client, state_header
from tests.support.damage import checked
from tests.support.folders import statehold

_FOLDERS = Path(__file__).parents[1] / "data" / "folders"


def _unpacked(revision: str, into: Path) -> list[dict[str, Any]]:
    archive = _FOLDERS / f"{revision}.tar.xz"
    assert archive.exists(), "a new revision ships a small folder that its release wrote"
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")
    assert migrations.current(into / "metadata.db") == revision
    recorded: list[dict[str, Any]] = json.loads((into / "recorded.json").read_text())
    (into / "recorded.json").unlink()
    return recorded


@pytest.mark.parametrize("revision", sorted(migrations.revisions()))
def test_a_folder_of_every_revision_gives_back_every_byte(
    start: ServerFactory, tmp_path: Path, revision: str
) -> None:
    recorded = _unpacked(revision, tmp_path / "data")
    assert len(recorded) >= 6
    server = start()
    with Client(server.url) as client:
        for known in recorded:
            answer = client.restore(known["namespace"], known["tokens"])
            if known["status"] == "quarantined":
                assert answer.status_code == 204
                assert client.post(f"/admin/v1/states/{known['state_id']}/release").is_success
                answer = client.restore(known["namespace"], known["tokens"])
            assert answer.status_code == 200, answer.headers
            assert state_header(answer)[0] == known["state_id"]
            assert len(answer.content) == known["bytes"]
            assert blake3(answer.content).hexdigest() == known["blake3"]
        # The old blocks are blocks like any other: what is recorded now shares them.
        before = client.stats()["stored_bytes"]
        first = recorded[0]
        data = client.restore(first["namespace"], first["tokens"]).content
        client.record_full(first["namespace"], [90, 91], data)
        assert client.stats()["stored_bytes"] - before < len(data) + 4096
    server.stop()
    assert migrations.current(tmp_path / "data" / "metadata.db") == migrations.head()
    assert checked(tmp_path / "data") == []


@pytest.mark.parametrize("revision", sorted(migrations.revisions()))
def test_a_folder_of_every_revision_can_be_salvaged_as_it_is(tmp_path: Path, revision: str) -> None:
    recorded = _unpacked(revision, tmp_path / "data")
    done = statehold(tmp_path / "data", "salvage", str(tmp_path / "new"), "--json")
    assert done.returncode == 0, done.stderr
    live = sum(known["status"] == "live" for known in recorded)
    assert json.loads(done.stdout)["states"] == live
    assert checked(tmp_path / "new") == []


@pytest.mark.parametrize("command", ["serve", "migrate", "verify", "compact"])
def test_a_folder_of_a_newer_version_is_refused_and_left_as_it_is(
    tmp_path: Path, command: str
) -> None:
    data = tmp_path / "data"
    _unpacked(migrations.head(), data)
    connection = dbapi2.connect(str(data / "metadata.db"))
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    before = (data / "metadata.db").read_bytes()
    done = statehold(data, command)
    assert done.returncode == 3
    assert "newer version" in done.stderr
    assert "9999" in done.stderr
    assert (data / "metadata.db").read_bytes() == before
