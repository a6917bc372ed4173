"""`evict` and `states pin`: what goes, what would go, and what stays."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Answer, says
from tests.support.client import Client
from tests.support.command import Command, Done
from tests.support.server import Server
from tests.support.terminal import on_terminal

NONE = "01938c0d-e000-7000-8000-000000000000"


@pytest.fixture
def ids(operator: Client) -> list[str]:
    """Four states, the last in a namespace of its own."""
    found = [operator.record_full("ns", [n], bytes([n]) * 100_000) for n in (1, 2, 3)]
    return [*found, operator.record_full("other", [1], b"x" * 100_000)]


@pytest.fixture
def live(operator: Client) -> Callable[[], list[str]]:
    """The ids of the states that are held now."""
    return lambda: [row["state_id"] for row in operator.get("/admin/v1/states").json()["states"]]


@pytest.fixture
def evict(statehold: Command, server: Server) -> Callable[..., Done]:
    return lambda *arguments: statehold("evict", *arguments, "--url", server.url)


def test_states_go_by_their_ids(
    evict: Callable[..., Done], ids: list[str], live: Callable[[], list[str]]
) -> None:
    done = evict(ids[0], ids[2])
    assert (done.code, done.err) == (0, "")
    *gone, last = done.out.splitlines()
    assert sorted(gone) == sorted([ids[0], ids[2]])
    assert last.startswith("2 states went and freed ")
    assert live() == [ids[1], ids[3]]
    absent = evict(ids[0])
    assert (absent.code, absent.sentence.rpartition(" ")[2]) == (1, "(state_not_found)")


@pytest.mark.parametrize(
    ("arguments", "stay"),
    [
        (("--namespace", "ns"), [3]),
        (("--tenant", "default", "--untouched-for", "0"), []),
        (("--untouched-for", "1h"), [0, 1, 2, 3]),
        (("--target", "0"), []),
        (("--target", "1GiB"), [0, 1, 2, 3]),
        (("--namespace", "other", "--target", "0"), [0, 1, 2]),
    ],
)
def test_states_go_by_what_they_have_in_common(
    evict: Callable[..., Done],
    ids: list[str],
    live: Callable[[], list[str]],
    arguments: tuple[str, ...],
    stay: list[int],
) -> None:
    dry = evict(*arguments, "--dry-run", "--json").document
    assert live() == ids
    done = evict(*arguments, "--json")
    assert (done.code, done.document) == (0, {**dry, "dry_run": False})
    assert done.document["evicted_count"] == len(ids) - len(stay)
    assert live() == [ids[at] for at in stay]


def test_a_dry_run_says_what_would_go(
    evict: Callable[..., Done], ids: list[str], live: Callable[[], list[str]]
) -> None:
    done = evict(ids[0], "--dry-run")
    assert done.code == 0
    assert done.out.splitlines()[0] == ids[0]
    assert done.out.splitlines()[1].startswith("1 state would go and free ")
    assert live() == ids


def test_what_is_read_or_pinned_is_kept_and_named(
    evict: Callable[..., Done], statehold: Command, server: Server, operator: Client, ids: list[str]
) -> None:
    operator.lookup("ns", [1], acquire=True)
    assert statehold("states", "pin", ids[1], "--reason", "x", "--url", server.url).code == 0
    done = evict(*ids)
    assert done.code == 0
    assert f"kept {ids[0]}: somebody reads it\n" in done.out
    assert f"kept {ids[1]}: it is pinned\n" in done.out
    assert "2 states went" in done.out


@pytest.mark.parametrize(
    "arguments",
    [(), ("--yes",), (NONE, "--target", "1"), (NONE, "--tenant", "x"), ("--tenant", "x")],
)
def test_it_has_to_be_said_what_goes(
    evict: Callable[..., Done], arguments: tuple[str, ...]
) -> None:
    done = evict(*arguments)
    assert (done.code, done.sentence.startswith("say what is to go: ")) == (2, True)


def test_on_a_terminal_it_asks_and_says_how_much(
    server: Server, ids: list[str], live: Callable[[], list[str]]
) -> None:
    command = ("evict", "--namespace", "ns", "--url", server.url)
    for answer in ("n\n", "\n", "yes please\n", "\x04"):
        no = on_terminal(*command, types=answer)
        assert no.code == 1
        assert "evict 3 states and free " in no.shown
        assert live() == ids
    assert on_terminal(*command, "--dry-run").code == 0
    yes = on_terminal(*command, types="yes\n")
    assert yes.code == 0
    assert live() == ids[3:]
    assert on_terminal("evict", ids[3], "--yes", "--url", server.url).code == 0
    assert live() == []


def test_long_lists_are_shortened_for_people(
    statehold: Command, answering: Callable[[Answer], str]
) -> None:
    found = {
        **{"dry_run": False, "evicted": [f"s{n}" for n in range(30)], "evicted_count": 12_345},
        **{"kept_leased": [f"l{n}" for n in range(22)], "kept_leased_count": 22},
        **{
            "kept_pinned": ["p\x1b[1m"],
            "kept_pinned_count": 1,
            "freed_bytes": 5 << 30,
            "more": False,
        },
    }
    url = answering(says(200, json.dumps(found).encode()))
    done = statehold("evict", NONE, "--url", url)
    lines = done.out.splitlines()
    assert lines[19:22] == ["s19", "and 12,325 more", "12,345 states went and freed 5.00 GiB"]
    assert lines[-3:] == [
        "kept l19: somebody reads it",
        "kept 2 more: somebody reads it",
        r"kept p\x1b[1m: it is pinned",
    ]
    assert done.err == ""
    assert statehold("evict", NONE, "--json", "--url", url).document == found
    url = answering(says(200, json.dumps({**found, "dry_run": True, "more": True}).encode()))
    dry = statehold("evict", NONE, "--dry-run", "--url", url)
    assert "12,345 states would go and free 5.00 GiB" in dry.out
    assert dry.sentence == "and more: the dry run ended early, a real one would go on"


# ---- pins --------------------------------------------------------------------------------------


def test_a_state_is_pinned_listed_and_let_go(
    statehold: Command, server: Server, operator: Client, ids: list[str]
) -> None:
    url = ("--url", server.url)
    pinned = statehold("states", "pin", ids[0], "--reason", "the launch", *url)
    assert (pinned.code, pinned.out) == (0, f"{ids[0]} is pinned for ever\n")
    again = statehold("states", "pin", ids[0], "--reason", "again", "--ttl", "2h", "--json", *url)
    assert again.document["reason"] == "again"
    assert again.document["expires_at_ms"] > again.document["created_at_ms"]
    listed = statehold("states", "pins", "--json", *url).document
    assert [row["state_id"] for row in listed["pins"]] == [ids[0]]
    head, row, last = statehold("states", "pins", *url).out.splitlines()
    assert head.split() == ["STATE", "SIZE", "PINNED", "LEFT", "BY", "NAMESPACE", "REASON"]
    assert (row.split()[0], row.split()[-1]) == (ids[0], "again")
    assert last.startswith("97.7 KiB are pinned, ")
    found = statehold("states", "list", "--pinned", "--json", *url).document["states"]
    assert [row["state_id"] for row in found] == [ids[0]]
    assert "again" in statehold("states", "show", ids[0], *url).out
    assert statehold("states", "unpin", ids[0], *url).code == 0
    gone = statehold("states", "unpin", ids[0], *url)
    assert (gone.code, gone.sentence.rpartition(" ")[2]) == (1, "(pin_not_found)")
    none = statehold("states", "pin", NONE, "--reason", "x", *url)
    assert (none.code, none.sentence.rpartition(" ")[2]) == (1, "(state_not_found)")
    assert statehold("states", "pin", ids[0], *url).code == 2  # why?
