"""`quarantine`: out of service and back, seen, proven, saved and removed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from tests.cli.conftest import Answer, says
from tests.conftest import Sample
from tests.support.client import Client
from tests.support.command import Command, Done
from tests.support.damage import flip_value, sql
from tests.support.server import Server
from tests.support.terminal import on_terminal

NONE = "01938c0d-e000-7000-8000-000000000000"


class Desk:
    """`statehold quarantine` at one server."""

    def __init__(self, command: Command, server: Server) -> None:
        self._command = command
        self._url = ("--url", server.url)

    def __call__(self, *arguments: object) -> Done:
        return self._command("quarantine", *arguments, *self._url)


@pytest.fixture
def desk(statehold: Command, server: Server) -> Desk:
    return Desk(statehold, server)


@pytest.fixture
def body() -> bytes:
    return os.urandom(300_000)


@pytest.fixture
def state(operator: Client, body: bytes) -> str:
    return operator.record_full("ns", [1, 2], body)


def test_a_state_is_taken_out_of_service_seen_and_put_back(
    desk: Desk, operator: Client, state: str
) -> None:
    added = desk("add", state, "--reason", "suspected driver bug")
    assert (added.code, added.out) == (0, f"{state} is out of service\n")
    assert not operator.lookup("ns", [1, 2])["hit"]
    head, row = desk("list").out.splitlines()
    assert head.split()[:2] == ["STATE", "CLASS"]
    assert row.startswith(state)
    assert row.endswith("suspected driver bug")
    listed = desk("list", "--json").document
    assert [one["state_id"] for one in listed["states"]] == [state]
    assert desk("show", state, "--json").document == listed["states"][0]
    shown = desk("show", state)
    assert shown.code == 0
    assert "suspected driver bug" in shown.out
    released = desk("release", state, "--json")
    assert (released.code, released.document["status"]) == (0, "live")
    assert operator.lookup("ns", [1, 2])["hit"]
    again = desk("show", state)
    assert (again.code, again.sentence) == (1, "it is not quarantined (state_not_quarantined)")


def test_a_list_is_filtered_and_goes_on(desk: Desk, operator: Client, state: str) -> None:
    other = operator.record_full("other", [1], b"x" * 1000)
    for one in (state, other):
        assert desk("add", one, "--reason", "a doubt", "--json").code == 0
    found = desk("list", "--json", "--namespace", "other").document["states"]
    assert [one["state_id"] for one in found] == [other]
    kind = found[0]["evidence"]["failure_class"]
    assert len(desk("list", "--json", "--class", kind).document["states"]) == 2
    assert desk("list", "--json", "--class", "none").document["states"] == []
    assert desk("list", "--json", "--tenant", "none").document["states"] == []
    first = desk("list", "--json", "--limit", 1).document
    rest = desk("list", "--json", "--after", first["next"]).document
    ids = [one["state_id"] for one in first["states"] + rest["states"]]
    assert ids == [other, state]  # newest first
    wrong = desk("list", "--after", "nonsense")
    assert (wrong.code, "(invalid_request)" in wrong.sentence) == (1, True)


def test_an_intact_state_is_proven(desk: Desk, state: str, body: bytes) -> None:
    live = desk("verify", state)
    assert live.code == 0
    assert live.out.startswith(f"{state}: every byte is as recorded (")
    desk("add", state, "--reason", "a doubt")
    found = desk("verify", state, "--json")
    assert (found.code, found.document["intact"]) == (0, True)
    assert found.document["verified_bytes"] == len(body)


def test_a_damaged_state_is_found_kept_out_and_saved_as_far_as_it_goes(
    desk: Desk, server: Server, operator: Client, tmp_path: Path
) -> None:
    body = os.urandom(1_500_000)
    state = operator.record_full("ns", [1, 2], body)
    blocks = sql(
        server.data,
        "SELECT b.digest, b.raw_bytes FROM state_block s JOIN block b ON b.id = s.block ORDER BY s.seq",
    )
    (digest, size), *others = blocks
    assert isinstance(digest, bytes)
    assert isinstance(size, int)
    assert others
    flip_value(server.data, digest)
    found = desk("verify", state)
    assert found.code == 1
    assert found.out.startswith(f"{state}: it is not as recorded")
    assert "block_damaged" in found.out
    again = desk("verify", state, "--json")
    assert (again.code, again.document["intact"]) == (1, False)
    refused = desk("release", state)
    assert (refused.code, refused.sentence.rpartition(" ")[2]) == (1, "(still_failing)")
    output = tmp_path / "evidence.bin"
    saved = desk("download", state, "--output", output)
    assert saved.code == 0
    assert saved.sentence == "blocks 0 could not be read: zeros stand in their place"
    # Zeros in the place of the block that cannot be read, and all the others as they were.
    assert output.read_bytes() == bytes(size) + body[size:]


def test_a_download_is_a_new_file_of_its_owner_alone(
    desk: Desk, state: str, tmp_path: Path, body: bytes
) -> None:
    output = tmp_path / "evidence.bin"
    done = desk("download", state, "-o", output, "--json")
    assert done.document == {
        "state_id": state,
        "component": "full",
        "file": str(output),
        "bytes": len(body),
        "damaged_blocks": None,
        "manifest_intact": True,
    }
    assert output.read_bytes() == body
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    output.write_bytes(b"mine")
    there = desk("download", state, "--output", output)
    assert (there.code, "--force replaces it" in there.sentence) == (2, True)
    assert output.read_bytes() == b"mine"
    assert desk("download", state, "--output", output, "--force").code == 0
    assert output.read_bytes() == body
    nowhere = desk("download", state, "--output", tmp_path / "none" / "x")
    assert (nowhere.code, "cannot be written" in nowhere.sentence) == (1, True)
    assert desk("download", NONE, "--output", tmp_path / "x").code == 1
    assert sorted(path.name for path in tmp_path.glob("*.bin")) == ["evidence.bin"]
    assert list(tmp_path.glob(".statehold-*")) == []


def test_a_component_has_to_be_named_where_there_are_several(
    desk: Desk, operator: Client, hybrid: list[Sample], tmp_path: Path
) -> None:
    state = operator.record_sample("ns", hybrid[0])
    output = tmp_path / "x.bin"
    done = desk("download", state, "--output", output)
    assert (done.code, done.sentence) == (2, "say which with --component: kv, recurrent")
    assert desk("download", state, "--output", output, "--component", "recurrent").code == 0
    assert output.read_bytes() == hybrid[0].components["recurrent"]
    wrong = desk("download", state, "--output", output, "--force", "--component", "full")
    assert (wrong.code, wrong.sentence.rpartition(" ")[2]) == (1, "(component_not_found)")
    # What was there before is as it was.
    assert output.read_bytes() == hybrid[0].components["recurrent"]


def test_a_download_that_breaks_off_leaves_nothing(
    statehold: Command, answering: Callable[[Answer], str], tmp_path: Path
) -> None:
    url = answering(says(200, b"x" * 1000, "application/octet-stream", length="5000"))
    where = ("--component", "full", "--output", tmp_path / "x")
    done = statehold("quarantine", "download", NONE, *where, "--url", url)
    assert (done.code, "broke off" in done.sentence) == (4, True)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing(
    statehold: Command, shared: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(shared.url) as client:
        state = client.record_full("disk", [1], b"x" * 5000)

    # Everything that is written into the folder goes to a device that is always full.
    def full(**arguments: Any) -> Any:
        file = NamedTemporaryFile(**arguments)  # noqa: SIM115
        device = os.open("/dev/full", os.O_WRONLY)
        os.dup2(device, file.fileno())
        os.close(device)
        return file

    monkeypatch.setattr("app.commands.quarantine.NamedTemporaryFile", full)
    output = tmp_path / "x"
    done = statehold("quarantine", "download", state, "--output", output, "--url", shared.url)
    assert (done.code, done.sentence) == (
        1,
        f"{output} cannot be written: No space left on device",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_purged_with_its_evidence(desk: Desk, operator: Client, state: str) -> None:
    live = desk("purge", state, "--yes")
    assert (live.code, live.sentence.rpartition(" ")[2]) == (1, "(state_not_quarantined)")
    desk("add", state, "--reason", "a doubt")
    # Without a terminal nobody is asked.
    done = desk("purge", state)
    assert (done.code, done.out) == (0, f"{state} is gone\n")
    assert operator.get(f"/admin/v1/states/{state}").status_code == 404
    gone = desk("purge", state, "--json")
    assert (gone.code, gone.sentence.rpartition(" ")[2]) == (1, "(state_not_found)")


def test_on_a_terminal_a_purge_is_asked_about(
    desk: Desk, server: Server, operator: Client, state: str
) -> None:
    desk("add", state, "--reason", "a doubt")
    purge = ("quarantine", "purge", state, "--url", server.url)
    no = on_terminal(*purge, types="n\n")
    assert no.code == 1
    assert f"remove {state} and its evidence for good? [y/N]" in no.shown
    assert "nothing was changed" in no.shown
    assert operator.get(f"/admin/v1/states/{state}").status_code == 200
    yes = on_terminal(*purge, types="y\n")
    assert yes.code == 0
    assert operator.get(f"/admin/v1/states/{state}").status_code == 404


def test_a_stopped_folder_shows_what_its_server_showed(
    desk: Desk, statehold: Command, server: Server, operator: Client, state: str
) -> None:
    desk("add", state, "--reason", "a doubt")
    online = desk("list", "--json").document
    in_use = statehold("quarantine", "list", "--offline", data_dir=server.data)
    assert (in_use.code, "a server is using it" in in_use.sentence) == (3, True)
    shown = desk("show", state, "--json").document
    server.stop()

    def offline(*arguments: object) -> Done:
        return statehold("quarantine", *arguments, "--offline", data_dir=server.data)

    assert offline("list", "--json").document == online
    assert offline("list", "--json", "--namespace", "none").document["states"] == []
    assert offline("list").out.splitlines()[1].startswith(state)
    assert offline("show", state, "--json").document == shown
    assert "a doubt" in offline("show", state).out
    assert offline("show", NONE).sentence.endswith("(state_not_found)")
    wrong = offline("list", "--after", "nonsense")
    assert (wrong.code, "(invalid_request)" in wrong.sentence) == (1, True)


def test_every_action_needs_its_scope(
    statehold: Command, server: Server, operator: Client, state: str, tmp_path: Path
) -> None:
    def secret(*scopes: str) -> str:
        answer = operator.post("/admin/v1/tokens", json={"label": "t", "scopes": scopes})
        operator.headers.setdefault("Authorization", f"Bearer {answer.json()['secret']}")
        return str(answer.json()["secret"])

    secret("admin:write")
    reader, writer, witness = secret("admin:read"), secret("admin:write"), secret("forensics")
    output = tmp_path / "x"
    for arguments, good in (
        (("add", state, "--reason", "a doubt"), writer),
        (("list",), reader),
        (("show", state), reader),
        (("download", state, "--component", "full", "--output", output), witness),
        (("verify", state), writer),
        (("release", state), writer),
    ):
        for token in {reader, writer, witness} - {good}:
            done = statehold("quarantine", *arguments, "--url", server.url, token=token)
            assert (done.code, done.sentence.rpartition(" ")[2]) == (5, "(forbidden)"), arguments
        done = statehold("quarantine", *arguments, "--url", server.url, token=good)
        assert done.code == 0, (arguments, done)


def test_evidence_that_a_terminal_would_obey_does_not_reach_it(desk: Desk, state: str) -> None:
    evil = "look\x1b]0;title\x07 here"
    assert desk("add", state, "--reason", evil).code == 0
    for done in (desk("list"), desk("show", state)):
        assert r"look\x1b]0;title\x07 here" in done.out
        assert "\x1b" not in done.out
