"""`stats`, `states list` and `states show`: the same of a running server and of its stopped folder."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from app.commands.showing import counted
from tests.cli.conftest import Answer, says
from tests.support.client import Client
from tests.support.command import Command, Done
from tests.support.damage import sql
from tests.support.server import Server

EVIL = "evil\x1b[2J\x07\u202ename"


@dataclass(frozen=True)
class Held:
    """A server with something in it, and what that is."""

    server: Server
    ids: list[str]

    @property
    def url(self) -> tuple[str, str]:
        return "--url", self.server.url


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """Four states in two namespaces, the last of them quarantined."""
    server = Server(tmp_path_factory.mktemp("held") / "data")
    server.start()
    with Client(server.url) as client:
        ids = [client.record_full("ns", [1, n], bytes([n]) * 1000 * n) for n in (1, 2, 3)]
        ids.append(client.record_full("other/名前", [9], b"x" * 4000))
        client.lookup("ns", [1, 2], acquire=True)
        answer = client.post(f"/admin/v1/states/{ids[3]}/quarantine", json={"reason": "a doubt"})
        assert answer.status_code == 200, answer.text
        until = time.monotonic() + 60
        while not client.get(f"/admin/v1/states/{ids[1]}").json()[
            "hits"
        ]:  # written some time later
            assert time.monotonic() < until
            time.sleep(0.05)
    yield Held(server, ids)
    server.stop()


@pytest.fixture(scope="module")
def stopped(held: Held, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lies in that server's folder, as a backup gives it back, with nobody using it."""
    from tests.support.jobs import result

    with Client(held.server.url) as client:
        result(client, "backup", name="b")
    data = tmp_path_factory.mktemp("stopped") / "data"
    shutil.copytree(held.server.data / "backups" / "b", data)
    (data / "manifest.json").unlink()
    (data / "instances").mkdir(mode=0o700)
    return data


# ---- stats -------------------------------------------------------------------------------------


def test_figures_of_a_server(statehold: Command, held: Held) -> None:
    found = statehold("stats", *held.url, "--json").document
    assert (found["live"], found["quarantined"], found["namespaces"]) == (3, 1, 2)
    done = statehold("stats", *held.url)
    assert done.err == ""
    # Aligned: the values begin in one column, behind the longest name.
    column = len("live, as recorded  ")
    rows = {line[:column].rstrip(): line[column:] for line in done.out.splitlines()}
    assert rows["live states"] == "3 of at most 1,000,000"
    assert rows["quarantined"] == "1"
    assert rows["namespaces"] == "2"
    assert rows["budget"].startswith("64.0 GiB, ")
    assert rows["lookups, hit"] == "1"
    assert rows["stored"].endswith(" KiB")  # blocks of three bytes save nothing


def test_what_is_saved_is_said_where_something_is(
    statehold: Command, answering: Callable[[Answer], str], held: Held
) -> None:
    found = statehold("stats", *held.url, "--json").document
    found |= {"logical_bytes": 4 << 30, "block_raw_bytes": 1 << 30, "block_stored_bytes": 1 << 29}
    shown = statehold("stats", "--url", answering(says(200, json.dumps(found).encode()))).out
    assert "1.00 GiB (saves 75.0 %)\n" in shown
    assert " (saves 50.0 %)\n" in shown


def test_all_counters_are_shown_on_demand(statehold: Command, held: Held) -> None:
    done = statehold("stats", *held.url, "--counters")
    assert any(line.split()[:2] == ["lookups", "hit"] for line in done.out.splitlines())
    assert "COUNTER" not in statehold("stats", *held.url).out


def test_figures_of_a_stopped_folder(statehold: Command, held: Held, stopped: Path) -> None:
    online = statehold("stats", *held.url, "--json").document
    offline = statehold("stats", "--offline", "--json", data_dir=stopped).document
    assert offline.keys() == online.keys()
    same = ("live", "quarantined", "namespaces", "logical_bytes", "block_count", "stored_bytes")
    assert {name: offline[name] for name in same} == {name: online[name] for name in same}


# ---- states list -------------------------------------------------------------------------------


def _ids(done: Done) -> list[str]:
    return [row["state_id"] for row in done.document["states"]]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), [0, 1, 2, 3]),
        (("--namespace", "ns"), [0, 1, 2]),
        (("--namespace", "none"), []),
        (("--tenant", "default"), [0, 1, 2, 3]),
        (("--tenant", "somebody"), []),
        (("--status", "quarantined"), [3]),
        (("--kind", "kv"), []),
        (("--min-size", "2000"), [1, 2, 3]),
        (("--min-size", "1.5KiB", "--max-size", "3000"), [1, 2]),
        (("--max-age", "1h"), [0, 1, 2, 3]),
        (("--min-age", "1h"), []),
        (("--untouched-for", "2w"), []),
        (("--namespace", "ns", "--under", "1,3"), [2]),
        (("--namespace", "ns", "--under", "1"), [0, 1, 2]),
        (("--pinned",), []),
        (("--not-pinned",), [0, 1, 2, 3]),
        (("--order", "desc"), [3, 2, 1, 0]),
        (("--namespace", "ns", "--sort", "size", "--order", "desc"), [2, 1, 0]),
        (("--namespace", "ns", "--sort", "tokens"), [0, 1, 2]),
    ],
)
def test_filters_and_order_are_the_same_online_and_offline(
    statehold: Command, held: Held, stopped: Path, arguments: tuple[str, ...], wanted: list[int]
) -> None:
    expected = [held.ids[at] for at in wanted]
    online = statehold("states", "list", "--json", *arguments, *held.url)
    offline = statehold("states", "list", "--json", *arguments, "--offline", data_dir=stopped)
    assert _ids(online) == expected
    assert _ids(offline) == expected
    assert online.document["next"] is None
    assert offline.document == online.document


def test_a_list_goes_on_where_its_limit_cut_it(
    statehold: Command, held: Held, stopped: Path
) -> None:
    for where, settings in ((held.url, {}), (("--offline",), {"data_dir": stopped})):
        listing = ("states", "list", "--json", "--order", "desc", *where)
        first = statehold(*listing, "--limit", 3, **settings)
        rest = statehold(*listing, "--after", first.document["next"], **settings)
        assert _ids(first) + _ids(rest) == held.ids[::-1]
        shown = statehold("states", "list", "--limit", 3, *where, **settings)
        assert shown.sentence.startswith("there are more: --limit N, or --after ")
        strange = statehold(*listing, "--after", "nonsense", **settings)
        assert (strange.code, "(invalid_request)" in strange.sentence) == (1, True)


def test_all_pages_up_to_the_limit_are_fetched(
    statehold: Command, answering: Callable[[Answer], str], held: Held
) -> None:
    asked: list[str] = []
    # An empty page is not the last one.
    pages = [([0, 1], "a"), ([], "b"), ([2], "c"), ([3, 4], "d")]
    state = statehold("states", "list", "--json", *held.url).document["states"][0]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        rows, after = pages[len(asked)]
        asked.append(handler.path)
        body = {"states": [{**state, "hits": row} for row in rows], "next": after}
        says(200, json.dumps(body).encode())(handler)

    url = answering(answer)
    done = statehold("states", "list", "--json", "--limit", 5, "--url", url)
    assert [row["hits"] for row in done.document["states"]] == [0, 1, 2, 3, 4]
    assert done.document["next"] == "d"
    assert [path.rpartition("?")[2] for path in asked] == [
        "limit=5",
        "limit=3&after=a",
        "limit=3&after=b",
        "limit=2&after=c",
    ]


def test_a_table_has_a_row_for_each_state_under_its_headings(
    statehold: Command, held: Held
) -> None:
    done = statehold("states", "list", *held.url)
    head, *rows = done.out.splitlines()
    assert head.split() == [
        *("STATE", "STATUS", "KIND", "TOKENS", "SIZE", "HITS", "AGE", "UNUSED", "PIN", "NAMESPACE"),
    ]
    assert [row.split()[0] for row in rows] == held.ids
    assert "2.93 KiB" in rows[2]
    assert rows[3].endswith("other/名前")
    assert {row.index(name) for row, name in zip(rows, ("ns",) * 3, strict=False)} == {
        head.index("NAMESPACE")
    }


def test_tokens_need_a_namespace(statehold: Command, held: Held) -> None:
    done = statehold("states", "list", "--under", "1,2", *held.url)
    assert (done.code, "--namespace" in done.sentence) == (2, True)


# ---- states show -------------------------------------------------------------------------------


def test_a_state_is_shown_with_its_components(
    statehold: Command, held: Held, stopped: Path
) -> None:
    show = ("states", "show", held.ids[0])
    online = statehold(*show, "--json", *held.url)
    assert online.document["components"][0]["bytes"] == 1000
    assert statehold(*show, "--json", "--offline", data_dir=stopped).document == online.document
    shown = statehold(*show, *held.url).out
    assert f"state      {held.ids[0]}\n" in shown
    assert "\n  full  0.98 KiB (1,000 bytes)  " in shown
    again = statehold(*show, "--offline", data_dir=stopped).out
    assert _timeless(again) == _timeless(shown)


def _timeless(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.endswith(" ago)")]


def test_a_quarantined_state_is_shown_with_its_evidence(statehold: Command, held: Held) -> None:
    shown = statehold("states", "show", held.ids[3], *held.url).out
    assert "  reason " in shown
    assert "a doubt" in shown
    assert "  reported by " in shown


def test_what_is_not_there_is_told_in_a_sentence(
    statehold: Command, held: Held, stopped: Path
) -> None:
    none = "01938c0d-e000-7000-8000-000000000000"
    online = statehold("states", "show", none, *held.url)
    assert (online.code, online.sentence.rpartition(" ")[2]) == (1, "(state_not_found)")
    offline = statehold("states", "show", none, "--offline", data_dir=stopped)
    assert (offline.code, offline.sentence.rpartition(" ")[2]) == (1, "(state_not_found)")
    # An id is one part of a path, whatever is in it.
    strange = statehold("states", "show", "../stats?x=\x1b#", *held.url)
    assert (strange.code, strange.sentence.rpartition(" ")[2]) == (1, "(not_found)")


# ---- a stopped folder --------------------------------------------------------------------------


OFFLINE = (("stats",), ("states", "list"), ("states", "show", "x"))


@pytest.mark.parametrize("command", OFFLINE)
def test_a_folder_in_use_is_not_read(
    statehold: Command, held: Held, command: tuple[str, ...]
) -> None:
    done = statehold(*command, "--offline", data_dir=held.server.data)
    assert done.code == 3
    assert "a server is using it: stop it, or ask it by leaving out --offline" in done.sentence


@pytest.mark.parametrize("offline", [False, True])
def test_an_empty_list_says_whether_there_is_such_a_namespace(
    statehold: Command, held: Held, stopped: Path, offline: bool
) -> None:
    def listed(*arguments: str) -> Done:
        how = ("--offline",) if offline else held.url
        return statehold("states", "list", *arguments, *how, data_dir=stopped)

    done = listed("--namespace", "n*", "--json")
    assert (done.code, done.document["states"]) == (0, [])
    assert done.sentence == "there is no namespace 'n*'; a name is taken as it is, not as a pattern"
    assert listed("--namespace", "nowhere").sentence == "there is no namespace 'nowhere'"
    assert listed("--namespace", "ns", "--min-size", "1GiB").err == ""
    assert listed("--namespace", "ns").err == ""


@pytest.mark.parametrize("offline", [False, True])
def test_the_default_tenant_is_meant_by_its_name_and_by_none(
    statehold: Command, server: Server, operator: Client, offline: bool
) -> None:
    ours = operator.record_full("ns", [1], b"x")
    made = {"label": "t", "scopes": ["lookup", "record", "admin:read", "admin:write"]}
    secret = operator.post("/admin/v1/tokens", json=made).json()["secret"]
    operator.headers["Authorization"] = f"Bearer {secret}"
    theirs = operator.post("/admin/v1/tokens", json={**made, "tenant": "t"}).json()["secret"]
    operator.headers["Authorization"] = f"Bearer {theirs}"
    operator.record_full("ns", [1], b"y")
    file = server.data / "token"
    file.write_text(secret)
    file.chmod(0o600)
    how: tuple[str, ...] = ("--url", server.url, "--token-file", str(file))
    if offline:
        server.stop()
        how = ("--offline",)
    for name in ("", "default"):
        done = statehold("states", "list", "--tenant", name, "--json", *how, data_dir=server.data)
        assert [row["state_id"] for row in done.document["states"]] == [ours]


def test_a_count_of_one_is_of_one_thing() -> None:
    assert [counted(n, "state") for n in (0, 1, 1000)] == ["0 states", "1 state", "1,000 states"]


@pytest.mark.parametrize("command", OFFLINE)
def test_a_folder_of_another_version_or_without_data_is_not_read(
    statehold: Command, stopped: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = statehold(*command, "--offline", data_dir=tmp_path / "none")
    assert (done.code, "there is no data in" in done.sentence) == (3, True)
    shutil.copytree(stopped, tmp_path / "data")
    for revision, word in (("0001", "statehold migrate"), ("9999", "a newer version")):
        sql(tmp_path / "data", "UPDATE alembic_version SET version_num = ?", revision)
        done = statehold(*command, "--offline", data_dir=tmp_path / "data")
        assert (done.code, word in done.sentence) == (3, True)


# ---- terminals ---------------------------------------------------------------------------------


def test_a_name_that_a_terminal_would_obey_does_not_reach_it(
    statehold: Command, stopped: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    sql(data, "UPDATE namespace SET name = ? WHERE name = 'ns'", EVIL)
    sql(data, "UPDATE quarantine SET reason = ?", EVIL)
    (first, *_), last = (
        statehold(
            "states", "list", "--offline", "--json", "--status", status, data_dir=data
        ).document["states"]
        for status in ("live", "quarantined")
    )
    assert first["namespace"] == EVIL
    for command in (
        ("states", "list"),
        ("states", "show", first["state_id"]),
        ("states", "show", last[0]["state_id"]),
    ):
        done = statehold(*command, "--offline", data_dir=data)
        assert done.code == 0, done.err
        assert r"evil\x1b[2J\x07\u{202e}name" in done.out
        assert "\x1b" not in done.out
        assert "\u202e" not in done.out
    shown = statehold("states", "list", "--offline", "--json", data_dir=data).out
    assert shown.isascii()
