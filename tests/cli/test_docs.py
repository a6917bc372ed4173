"""docs/cli.md: its commands work as they stand there, and no command is missing."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from app.cli import parser
from tests.conftest import ServerFactory
from tests.support.client import Client
from tests.support.command import Command
from tests.support.jobs import begin, ended

_PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
# They take the folder from whoever has it: run by tests of their own, and only parsed here.
_ALONE = frozenset({"serve", "migrate", "check", "restore", "salvage"})


def _lines() -> list[list[str]]:
    """The commands of the page, each as its arguments."""
    blocks = re.findall(r"```sh\n(.*?)```", _PAGE.read_text(), re.S)
    found = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    assert all(words[0] == "statehold" for words in found)
    return [words[1:] for words in found]


def _actions() -> set[tuple[str, ...]]:
    """Every command, and every action of those that have some."""

    def choices(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
        parts = [part for part in of._actions if isinstance(part, argparse._SubParsersAction)]
        return dict(parts[0].choices) if parts else {}

    found: set[tuple[str, ...]] = set()
    for name, command in choices(parser()).items():
        found |= {(name, action) for action in choices(command)} or {(name,)}
    return found


def _action(words: list[str]) -> tuple[str, ...]:
    return tuple(words[:2]) if tuple(words[:2]) in _actions() else (words[0],)


def test_every_command_and_action_has_an_example() -> None:
    assert {_action(words) for words in _lines()} == _actions()


def test_every_example_is_understood() -> None:
    for words in _lines():
        assert parser().parse_args(words).command == words[0]


def test_every_example_works(
    statehold: Command, start: ServerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where evidence is saved
    server = start()
    settings = {"data_dir": server.data, "port": server.port}
    with Client(server.url) as client:
        names = {
            "NAMESPACE": "ns",
            "STATE": client.record_full("ns", [1, 2], b"x" * 5000),
            "OTHER": client.record_full("ns", [1, 3], b"y" * 5000),
            "JOB": str(begin(client, "checkpoint")["job_id"]),
        }
        ended(client, {"job_id": names["JOB"]})
    # The last: with a token nobody is served any more without one.
    lines = sorted(_lines(), key=lambda words: words[0] == "token")
    offline = [
        words
        for words in lines
        if "--offline" in words or words in (["verify"], ["compact", "--json"])
    ]
    online = [words for words in lines if words not in offline and words[0] not in _ALONE]
    for words in online:
        if words[:2] == ["token", "revoke"]:
            listed = statehold("token", "list", "--json", **settings).document
            names["TOKEN"] = listed[0]["token_id"]
        arguments = [names[word[1:]] if word.startswith("$") else word for word in words]
        done = statehold(*arguments, **settings)
        if words[:2] == ["jobs", "cancel"]:
            assert done.sentence == "the job has ended (job_ended)"
        else:
            assert done.code == 0, (words, done)
        if words[0] == "evict" and "--dry-run" not in words:
            with Client(server.url) as client:  # the examples that follow show a state
                names["STATE"] = client.record_full("ns", [1, 2], b"x" * 5000, replace=True)
    server.stop()
    for words in offline:
        arguments = [names[word[1:]] if word.startswith("$") else word for word in words]
        done = statehold(*arguments, **settings)
        assert done.code == 0, (words, done)


def test_every_exit_code_is_named() -> None:
    page = _PAGE.read_text()
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert f"\n| {code} | " in page
