"""Limits that operators change while the service runs."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from app.engine.limits import CHANGEABLE
from app.settings import Settings
from tests.conftest import ServerFactory
from tests.support.client import Client, code
from tests.support.damage import checked, sql
from tests.support.folders import statehold
from tests.support.jobs import begin, ended
from tests.support.scrape import scrape
from tests.support.server import Server

_MIB = 1 << 20
_URL = "/admin/v1/limits"


def noise(name: object, size: int = 200_000) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


def in_force(client: Client) -> dict[str, Any]:
    answer = client.get(_URL)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["limits"]
    return found


def change(client: Client, **values: object) -> dict[str, Any]:
    answer = client.patch(_URL, json=values)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["limits"]
    assert found == in_force(client)
    return found


def refused(client: Client, namespace: str, tokens: list[int], size: int = 10) -> tuple[int, str]:
    return code(client.admit(namespace, tokens, "full_state", {"full": size}))


def test_every_limit_is_shown_with_its_unit_and_what_was_configured(start: ServerFactory) -> None:
    with Client(start(budget_bytes="2GiB", max_entries=77, low_water=0.5).url) as client:
        found = in_force(client)
    assert tuple(found) == CHANGEABLE
    assert found["budget_bytes"] == {"value": 2 << 30, "configured": 2 << 30, "unit": "bytes"}
    assert found["max_entries"] == {"value": 77, "configured": 77, "unit": "count"}
    assert found["low_water"] == {"value": 0.5, "configured": 0.5, "unit": "fraction"}
    assert found["min_tokens"]["unit"] == "tokens"


def test_a_change_shows_everywhere_and_null_goes_back(server: Server, client: Client) -> None:
    before = in_force(client)
    sizes = {
        "budget_bytes": "1.5GiB",
        "free_disk_reserve_bytes": 32 * _MIB,
        "max_in_flight_bytes": "7MiB",
        "pin_budget_bytes": "5MiB",
    }
    found = change(
        client, **sizes, max_entries=55, max_in_flight_records=9, min_tokens=3, low_water=1
    )
    values = {name: limit["value"] for name, limit in found.items()}
    assert values == {
        "budget_bytes": 3 << 29,
        "max_entries": 55,
        "low_water": 1,
        "min_tokens": 3,
        "free_disk_reserve_bytes": 32 * _MIB,
        "max_in_flight_bytes": 7 * _MIB,
        "max_in_flight_records": 9,
        "pin_budget_bytes": 5 * _MIB,
    }
    assert [limit["configured"] for limit in found.values()] == [
        limit["configured"] for limit in before.values()
    ]
    stats = client.stats()
    assert (stats["budget_bytes"], stats["max_entries"]) == (3 << 29, 55)
    assert client.get("/admin/v1/pins").json()["pin_budget_bytes"] == 5 * _MIB
    figures = scrape(server.url)
    assert figures("budget_bytes") == 3 << 29
    assert figures("max_states") == 55
    assert figures("max_recordings") == 9
    assert figures("max_reserved_bytes") == 7 * _MIB
    assert figures("free_disk_reserve_bytes") == 32 * _MIB
    change(client, max_entries=None)
    assert change(client, **dict.fromkeys(found)) == before
    assert sql(server.data, "SELECT * FROM setting WHERE key = 'limits'") == []


@pytest.mark.parametrize(
    "values",
    [
        {"budget_bytes": 0},
        {"budget_bytes": "1KiB"},
        {"budget_bytes": "lots"},
        {"budget_bytes": True},
        {"budget_bytes": 1.5},
        {"budget_bytes": 1 << 61},
        {"budget_bytes": 10**40},
        {"free_disk_reserve_bytes": True},
        {"free_disk_reserve_bytes": -1},
        {"free_disk_reserve_bytes": 0.5},
        {"max_entries": 0},
        {"max_entries": 1.0},
        {"max_entries": "7"},
        {"max_entries": False},
        {"max_entries": 1 << 61},
        {"max_entries": [7]},
        {"low_water": 0},
        {"low_water": 1.01},
        {"low_water": "0.5"},
        {"min_tokens": 0},
        {"max_in_flight_records": {}},
        {"workers": 2},
        {"data_dir": "elsewhere"},
        {"": 1},
        {"x" * 5000: 1},
        {},
        [],
        None,
        7,
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_value_changes_nothing_also_of_what_stands_beside_it(
    client: Client, values: Any
) -> None:
    before = in_force(client)
    if isinstance(values, dict) and values:
        values = {"max_in_flight_records": 5, **values}
    answer = client.patch(_URL, json=values)
    assert code(answer) == (422, "invalid_request")
    if isinstance(values, dict) and len(values) > 1:
        name = list(values)[-1]
        assert answer.json()["field"].split(".")[0] == name[:64]
    assert "lots" not in answer.text
    assert len(answer.content) < 2000
    assert in_force(client) == before


def test_no_number_at_all_is_no_limit(client: Client) -> None:
    answer = client.patch(
        _URL, content='{"low_water": NaN}', headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert in_force(client)["low_water"]["value"] == Settings().low_water


def test_every_worker_takes_a_change_from_the_next_request_on(start: ServerFactory) -> None:
    server = start(workers=2)
    for shortest in range(2, 14):
        with Client(server.url) as client:
            change(client, min_tokens=shortest)
        for _ in range(4):
            # A connection of its own, so that either worker may answer.
            with Client(server.url) as client:
                assert in_force(client)["min_tokens"]["value"] == shortest
                assert refused(client, "ns", list(range(shortest - 1))) == (422, "too_short")
    with Client(server.url) as client:
        change(client, min_tokens=None)
    for n in range(6):
        with Client(server.url) as client:
            assert client.admit("ns", [n], "full_state", {"full": 10}).status_code == 201


def test_a_change_survives_a_stop_a_kill_and_another_configuration(start: ServerFactory) -> None:
    server = start(max_entries=10)
    with Client(server.url) as client:
        change(client, max_entries=5, budget_bytes="1GiB")
    server.stop()
    server = start(max_entries=20)
    with Client(server.url) as client:
        found = in_force(client)["max_entries"]
        assert (found["value"], found["configured"]) == (5, 20)
        change(client, budget_bytes=None)
    server.kill()
    with Client(start().url) as client:
        found = in_force(client)
        assert found["max_entries"]["value"] == 5
        assert found["budget_bytes"]["value"] == found["budget_bytes"]["configured"]


def test_a_limit_below_what_is_held_is_told(server: Server, client: Client) -> None:
    for n in range(12):
        client.record_full("ns", [n, 1], noise(n))
    assert client.get(_URL).json()["warnings"] == []
    said = client.patch(_URL, json={"budget_bytes": "1.1 MB", "max_entries": 5}).json()
    assert said["limits"]["budget_bytes"]["value"] == 1_100_000
    budget, entries = said["warnings"]
    assert budget.startswith("budget_bytes (1.05 MiB) is below what is held (2.")
    assert entries.startswith("max_entries (5) is below what is held (12)")
    assert client.get(_URL).json()["warnings"] == said["warnings"]


def test_a_budget_below_what_is_held_removes_nothing_until_the_next_recording(
    server: Server, client: Client
) -> None:
    ids = [client.record_full("ns", [n, 1], noise(n)) for n in range(12)]
    before = client.stats()
    assert before["stored_bytes"] > 12 * 200_000
    change(client, budget_bytes=_MIB)
    after = client.stats()
    assert (after["live"], after["stored_bytes"]) == (12, before["stored_bytes"])
    assert client.restore("ns", [0, 1]).content == noise(0)
    newest = client.record_full("ns", [99], noise(99))
    found = client.stats()
    assert found["stored_bytes"] <= _MIB
    assert 1 < found["live"] < 6
    assert client.restore("ns", [99]).content == noise(99)
    held = {state["state_id"] for state in client.get("/admin/v1/states").json()["states"]}
    assert newest in held
    assert held <= {newest, *ids}
    assert checked(server.data, allow_unowned=True) == []


def test_fewer_entries_than_are_held_evict_the_least_recent_at_the_next_recording(
    client: Client,
) -> None:
    for n in range(8):
        client.record_full("ns", [n, 1], noise(n, 100))
    change(client, max_entries=3, low_water=1)
    assert client.stats()["live"] == 8
    client.record_full("ns", [99], noise(99, 100))
    assert client.stats()["live"] == 3
    assert [client.restore("ns", [n, 1]).status_code for n in (0, 4, 5)] == [204] * 3
    change(client, max_entries=None)
    for n in range(10, 14):
        client.record_full("ns", [n, 1], noise(n, 100))
    assert client.stats()["live"] == 7


def test_low_water_says_how_far_eviction_goes(client: Client) -> None:
    change(client, max_entries=10, low_water=0.5)
    for n in range(11):
        client.record_full("ns", [n, 1], noise(n, 100))
    assert client.stats()["live"] <= 6


def test_a_state_that_the_new_budget_could_never_hold_is_oversize(client: Client) -> None:
    assert client.admit("ns", [1], "full_state", {"full": 4 * _MIB}).status_code == 201
    change(client, budget_bytes="2MiB")
    assert refused(client, "ns", [2], 4 * _MIB) == (413, "oversize")


def test_recordings_under_way_are_bounded_by_what_is_in_force(client: Client) -> None:
    assert client.admit("ns", [1], "full_state", {"full": 3 * _MIB}).status_code == 201
    change(client, max_in_flight_records=1)
    assert refused(client, "ns", [2]) == (503, "at_capacity")
    change(client, max_in_flight_records=2, max_in_flight_bytes="4MiB")
    assert refused(client, "ns", [2], 2 * _MIB) == (503, "at_capacity")
    assert client.admit("ns", [2], "full_state", {"full": _MIB}).status_code == 201


def test_a_reserve_that_is_not_free_refuses_recordings_and_backups_and_says_so(
    server: Server, client: Client
) -> None:
    client.record_full("ns", [1], b"x")
    change(client, free_disk_reserve_bytes="900TiB")
    assert refused(client, "ns", [2]) == (507, "low_space")
    degraded = client.get("/readyz").json()["degraded"]
    assert any("free disk" in reason for reason in degraded)
    job = ended(client, begin(client, "backup", name="a"))
    assert (job["status"], job["error"]) == ("failed", "low_space")
    done = statehold(server.data, "backup", "b")
    assert done.returncode == 1
    assert "low_space" in done.stderr
    assert client.restore("ns", [1]).content == b"x"
    change(client, free_disk_reserve_bytes=None)
    assert client.get("/readyz").json()["degraded"] == []
    assert ended(client, begin(client, "backup", name="a"))["status"] == "done"


def test_a_namespace_that_has_its_own_minimum_keeps_it(client: Client) -> None:
    client.record_full("own", [1, 2], b"x")
    changed = client.patch("/admin/v1/namespaces", json={"namespace": "own", "min_tokens": 2})
    assert changed.status_code == 200
    change(client, min_tokens=5)
    assert client.admit("own", [3, 4], "full_state", {"full": 1}).status_code == 201
    assert refused(client, "other", [3, 4]) == (422, "too_short")


def test_what_another_version_has_kept_there_is_left_alone(server: Server, client: Client) -> None:
    change(client, max_entries=7)
    kept = '{"max_entries": 7, "low_water": 9, "of_a_later_version": 1}'
    sql(server.data, "UPDATE setting SET value = ? WHERE key = 'limits'", kept)
    found = in_force(client)
    assert tuple(found) == CHANGEABLE
    assert found["max_entries"]["value"] == 7
    assert found["low_water"]["value"] == found["low_water"]["configured"]
    sql(server.data, "UPDATE setting SET value = '{' WHERE key = 'limits'")
    assert in_force(client)["max_entries"]["value"] == found["max_entries"]["configured"]
    client.record_full("ns", [1], b"x")
    assert change(client, max_entries=8)["max_entries"]["value"] == 8


def test_only_operators_of_the_whole_store_see_and_change_limits(client: Client) -> None:
    def token(**body: Any) -> str:
        made = client.post("/admin/v1/tokens", json={"label": "t", **body})
        assert made.status_code == 201, made.text
        client.headers.setdefault("Authorization", f"Bearer {made.json()['secret']}")
        return f"Bearer {made.json()['secret']}"

    operator = token(scopes=["admin:read", "admin:write"])
    for bound in ({"tenant": "a"}, {"namespaces": ["a*"]}, {"tenant": "a", "namespaces": ["*"]}):
        client.headers["Authorization"] = token(scopes=["admin:read", "admin:write"], **bound)
        assert code(client.get(_URL)) == (403, "forbidden")
        assert code(client.patch(_URL, json={"max_entries": 1})) == (403, "forbidden")
        client.headers["Authorization"] = operator
    client.headers["Authorization"] = token(scopes=["admin:read"])
    assert client.get(_URL).status_code == 200
    assert code(client.patch(_URL, json={"max_entries": 1})) == (403, "forbidden")
    client.headers["Authorization"] = "Bearer sth_no"
    assert code(client.get(_URL)) == (401, "unauthorized")
    client.headers["Authorization"] = operator
    change(client, max_entries=9)
    (entry,) = client.get("/admin/v1/audit", params={"action": f"PATCH {_URL}"}).json()["entries"][
        :1
    ]
    assert (entry["outcome"], entry["details"]) == ("done", {"body": {"max_entries": 9}})
