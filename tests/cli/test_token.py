"""`statehold token` on a data folder, stopped or served."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import ServerFactory
from tests.support.client import Client
from tests.support.command import Command

_ROOT = Path(__file__).parents[2]


def _secret(statehold: Command, data: Path, *more: str) -> str:
    done = statehold("token", "create", "--label", "first", *more, data_dir=data)
    assert done.code == 0, done.err
    return done.out.strip()


def _status(url: str, secret: str, path: str = "/admin/v1/whoami") -> int:
    with Client(url) as client:
        return client.get(path, headers={"Authorization": f"Bearer {secret}"}).status_code


def test_the_first_token_is_made_on_a_new_folder_and_opens_another_address(
    start: ServerFactory, tmp_path: Path
) -> None:
    # As an operator does it: a process of its own, before anything is there.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "app", "token", "create"),
            "--label",
            "x",
            "--scope",
            "admin:read",
        ],
        cwd=_ROOT,
        env={"PATH": "/usr/bin:/bin", "STATEHOLD_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    secret = done.stdout.strip()
    server = start(host="0.0.0.0")
    assert _status(server.url, secret) == 200
    with Client(server.url) as client:
        assert client.get("/admin/v1/whoami").status_code == 401


def test_a_running_server_takes_notice_within_a_second(
    start: ServerFactory, statehold: Command
) -> None:
    server = start()
    secret = _secret(
        statehold, server.data, "--scope", "lookup", "--tenant", "t", "--namespace", "a*"
    )
    time.sleep(1.1)
    assert _status(server.url, secret) == 200
    assert _status(server.url, secret, "/admin/v1/stats") == 403
    (row,) = statehold("token", "list", "--json", data_dir=server.data).document
    assert (row["standing"], row["tenant"], row["namespaces"]) == ("good", "t", ["a*"])
    assert secret not in str(row)
    assert statehold("token", "revoke", row["token_id"], data_dir=server.data).code == 0
    time.sleep(1.1)
    assert _status(server.url, secret) == 401
    assert "revoked" in statehold("token", "list", data_dir=server.data).out
    operator = _secret(statehold, server.data, "--scope", "admin:read", "--expires-in-days", "1")
    with Client(server.url) as client:
        client.headers["Authorization"] = f"Bearer {operator}"
        entries = client.get("/admin/v1/audit").json()["entries"]
    assert [(e["actor"], e["action"]) for e in entries] == [
        ("command line", "token create"),
        ("command line", "token revoke"),
        ("command line", "token create"),
    ]


def test_wrong_use_says_so(statehold: Command, tmp_path: Path) -> None:
    def code(*arguments: str) -> int:
        return statehold("token", *arguments, data_dir=tmp_path).code

    assert code("create", "--label", "x") == 2
    bad = ("create", "--label", "x", "--scope", "lookup")
    assert code(*bad, "--tenant", "a/b") == 2
    assert code(*bad, "--expires-in-days", "0") == 2
    assert code("revoke", "nothing") == 3


def test_a_label_that_a_terminal_would_obey_is_not_listed_as_it_is(
    statehold: Command, tmp_path: Path
) -> None:
    made = statehold(
        *("token", "create", "--label", "evil\x1b[2J", "--scope", "lookup"), data_dir=tmp_path
    )
    assert made.code == 0
    assert r"evil\x1b[2J" in statehold("token", "list", data_dir=tmp_path).out


def test_a_token_is_told_by_its_id_and_listed_under_headings(
    statehold: Command, tmp_path: Path
) -> None:
    arguments = ("token", "create", "--label", "of a gateway", "--scope", "lookup")
    made = statehold(*arguments, "--namespace", "a*", "--namespace", "b", data_dir=tmp_path / "d")
    (row,) = statehold("token", "list", "--json", data_dir=tmp_path / "d").document
    assert row["token_id"] in made.err
    assert "a new data folder was made there" in made.err
    assert made.out.count("\n") == 1  # the secret, for a file
    bound = statehold(*arguments, "--tenant", "default", data_dir=tmp_path / "d")
    assert "new data folder" not in bound.err
    first, *rows = statehold("token", "list", data_dir=tmp_path / "d").out.splitlines()
    assert first.split() == ["TOKEN", "STANDING", "TENANT", "SCOPES", "NAMESPACES", "ENDS", "LABEL"]
    ours, other = rows if row["token_id"] in rows[0] else reversed(rows)
    assert "  whole store  lookup  a* b " in ours
    assert "  default      lookup  all " in other


def test_only_the_first_token_makes_a_folder(statehold: Command, tmp_path: Path) -> None:
    for arguments in (("list",), ("revoke", "0198c0de-0000-7000-8000-000000000000")):
        done = statehold("token", *arguments, data_dir=tmp_path / "mistyped")
        assert (done.code, done.sentence) == (3, f"there is no data in {tmp_path / 'mistyped'}")
        assert not (tmp_path / "mistyped").exists()
