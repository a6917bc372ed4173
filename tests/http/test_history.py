"""Counters over time: added up by the minute, gathered into steps, forgotten after 48 hours."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conftest import ServerFactory
from tests.support.client import Client, code
from tests.support.damage import sql
from tests.support.server import Server

ADD = "INSERT INTO history (minute, name, label, value) VALUES (?, ?, ?, ?)"


def history(client: Client, **params: Any) -> dict[str, Any]:
    answer = client.get("/admin/v1/history", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def totals(found: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(s["name"], s["label"]): sum(s["values"]) for s in found["series"]}


def remembered(server: Server) -> list[tuple[object, ...]]:
    return sql(server.data, "SELECT minute, name, label, value FROM history ORDER BY 1, 2, 3")


def test_what_counters_grew_by_is_there_at_once_and_adds_up_to_the_counters(
    client: Client,
) -> None:
    client.record_full("ns", [1, 2, 3], b"12345")
    for _ in range(2):
        client.restore("ns", [1, 2, 3, 4])
    client.lookup("ns", [9])
    found = totals(history(client, minutes=5))
    assert found["lookups", "hit"] == 2
    assert found["lookups", "miss"] == found["misses", "never_seen"] == 1
    assert found["hit_tokens", ""] == 6
    assert found["recorded_bytes", ""] == 5
    assert found["restored_bytes", ""] == 10
    assert found["admissions", "admitted"] == found["records", "committed"] == 1
    assert found["stored_bytes_written", ""] > 0
    client.lookup("ns", [9])
    again = totals(history(client, minutes=5))
    assert again["misses", "never_seen"] == 2
    counters = {(c["name"], c["label"]): c["value"] for c in client.stats()["counters"]}
    assert again == {key: counters[key] for key in again}


def test_evictions_and_quarantines_are_remembered_by_cause(client: Client) -> None:
    ids = [client.record_full("ns", [n], b"x") for n in range(2)]
    client.post("/admin/v1/evictions", json={"state_ids": [ids[0]]})
    client.post(f"/admin/v1/states/{ids[1]}/quarantine", json={"reason": "r"})
    found = totals(history(client, names="evictions,quarantines"))
    assert found == {("evictions", "admin"): 1, ("quarantines", "operator"): 1}


def test_buckets_and_timings_are_not_remembered(client: Client, server: Server) -> None:
    client.record_full("ns", [1], b"x")
    lease = client.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    client.release(lease, "restored", import_ms={"full": 3.0})
    assert client.counter("import_count", "full") == 1
    names = {row[1] for row in remembered(server)}
    assert "leases_released" in names
    assert not names & {"import_count", "import_ms_bucket", "import_us_total"}


def test_minutes_are_gathered_into_steps_and_missing_ones_are_nought(
    client: Client, server: Server
) -> None:
    now = int(time.time()) // 60
    for ago, value in ((0, 1), (1, 10), (7, 100), (29, 1000), (90, 10_000)):
        sql(server.data, ADD, now - ago, "lookups", "hit", value)
    by_minute = history(client, minutes=30, names="lookups")
    late = by_minute["from_ms"] // 60_000 + 29 - now  # 1 where a minute has just begun
    assert (by_minute["step_ms"], by_minute["steps"]) == (60_000, 30)
    (series,) = by_minute["series"]
    expected = [0] * 60
    for ago, value in ((0, 1), (1, 10), (7, 100), (29, 1000)):
        expected[29 - ago] = value
    assert series["values"] == expected[late : late + 30]

    by_ten = history(client, minutes=60, step_minutes=10, names="lookups")
    assert by_ten["step_ms"] == 600_000
    assert by_ten["from_ms"] % 600_000 == 0
    assert by_ten["steps"] in (6, 7)
    (series,) = by_ten["series"]
    first = by_ten["from_ms"] // 600_000
    expected = [0] * by_ten["steps"]
    for ago, value in ((0, 1), (1, 10), (7, 100), (29, 1000)):
        expected[(now - ago) // 10 - first] += value
    assert series["values"] == expected


def test_only_the_counters_asked_for_are_given(client: Client) -> None:
    client.record_full("ns", [1], b"x")
    client.lookup("ns", [1])
    client.lookup("ns", [2])
    found = history(client, names="misses, lookups")
    assert list(totals(found)) == [
        ("lookups", "hit"),
        ("lookups", "miss"),
        ("misses", "never_seen"),
    ]
    assert history(client, names="evictions")["series"] == []


@pytest.mark.parametrize(
    "params",
    [
        {"minutes": 0},
        {"minutes": -5},
        {"minutes": 2881},
        {"minutes": "many"},
        {"minutes": 10**30},
        {"step_minutes": 0},
        {"step_minutes": 61},
        {"minutes": 2880, "step_minutes": 1},
        {"minutes": 2880, "step_minutes": 2881},
        {"names": "import_ms_bucket"},
        {"names": "lookups,"},
        {"names": ""},
        {"names": "x" * 1001},
        {"names": "lookups;DROP TABLE history"},
    ],
    ids=str,
)
def test_absurd_parameters_are_refused(client: Client, params: dict[str, Any]) -> None:
    answer = client.get("/admin/v1/history", params=params)
    assert code(answer) == (422, "invalid_request")
    assert answer.json()["field"].startswith("query.")


def test_the_whole_time_that_is_kept_can_be_asked_for(client: Client, server: Server) -> None:
    now = int(time.time()) // 60
    sql(server.data, ADD, now - 2870, "lookups", "hit", 7)
    found = history(client, minutes=2880, step_minutes=2, names="lookups")
    assert found["steps"] in (1440, 1441)
    assert totals(found) == {("lookups", "hit"): 7}
    assert history(client, minutes=2880, step_minutes=2880)["steps"] in (1, 2)


def test_what_is_older_than_48_hours_or_far_ahead_is_forgotten(start: ServerFactory) -> None:
    server = start()
    server.stop()
    now = int(time.time()) // 60
    for ago in (*range(2900, 3200), 100_000, 50, 0, -1, -1000):
        sql(server.data, ADD, now - ago, "evictions", "budget", 1)
    server = start()
    deadline = time.monotonic() + 20
    while len(left := remembered(server)) > 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [row[0] for row in left if row[1] == "evictions"] == [now - 50, now, now + 1]


def test_workers_and_restarts_add_to_the_same_minutes(start: ServerFactory) -> None:
    server = start(workers=2)
    for _ in range(20):
        with Client(server.url) as client:  # a connection each, so that both workers get some
            client.lookup("ns", [1])
    server.stop()
    with Client(start().url) as client:
        client.lookup("ns", [1])
        assert totals(history(client, names="misses")) == {("misses", "never_seen"): 21}
