"""/metrics says what happened, whichever worker is asked, and nothing that a client could make grow."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.families import FAMILIES, OTHER
from tests.conftest import ServerFactory
from tests.http.test_workers import noise
from tests.support.client import Client, lease_header
from tests.support.damage import flip_block, sql
from tests.support.documented import document
from tests.support.scrape import OPENMETRICS, Scrape, scrape, scrape_until
from tests.support.server import Server

MIB = 1 << 20
_SUFFIXES = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture
def quick(start: ServerFactory) -> Server:
    """A server that flushes its counters often."""
    return start(touch_flush_s=0.05)


@pytest.fixture
def caller(quick: Server) -> Iterator[Client]:
    with Client(quick.url) as found:
        yield found


# ---- form ----------------------------------------------------------------------------------


def test_a_scrape_parses_in_both_formats_with_the_same_figures(quick: Server) -> None:
    with Client(quick.url) as client:
        client.record_full("ns", [1], b"x")
        client.lookup("ns", [1, 2])
    plain = scrape_until(quick.url, "lookups_total", 1, result="hit")
    answer = httpx.get(f"{quick.url}/metrics", headers={"Accept": OPENMETRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    open_form = scrape(quick.url, OPENMETRICS)
    of_form = [n for n, _ in open_form.samples]
    assert {n for n, _ in plain.samples} == set(of_form)
    assert open_form("lookups_total", result="hit") == plain("lookups_total", result="hit") == 1
    assert httpx.get(f"{quick.url}/metrics").headers["content-type"].startswith("text/plain")
    units = {family.name: family.unit for family in open_form.families}
    assert units["statehold_stage_seconds"] == "seconds"
    assert units["statehold_stored_bytes"] == "bytes"


def test_every_metric_of_the_table_is_there_from_the_first_scrape_on(quick: Server) -> None:
    found = scrape(quick.url)
    names = {_SUFFIXES.sub("", name) for name, _ in found.samples}
    expected = {family.shown_name for family in FAMILIES}
    assert expected - names <= {"statehold_http_requests_total"}
    assert {_SUFFIXES.sub("", name) for name in names} <= expected
    for family in FAMILIES:
        for label, values in family.labels:
            if values is not None:
                shown = {
                    dict(labels)[label]
                    for name, labels in found.samples
                    if _SUFFIXES.sub("", name) == family.shown_name
                }
                assert shown == set(values), family.name


def test_labels_are_from_fixed_sets_whatever_clients_send(quick: Server, caller: Client) -> None:
    caller.record_full("ns", [1], b"x")
    secret = "very-secret-namespace"
    caller.lookup(secret, [70_001])
    for path in ("/v1/states/01938c0d-e000-7000-8000-000000000000", f"/nowhere/{secret}"):
        caller.get(path)
    caller.request("PROPFIND", "/v1/lookup")
    sql(quick.data, "INSERT INTO counter VALUES ('misses', 'of_another_version', 7)")
    caller.request("GET", "/healthz", params={"secret": secret})
    found = scrape_until(
        quick.url, "http_requests_total", 1, method="GET", route="/healthz", status="200"
    )
    routes = set(document()["paths"]) | {"unmatched", "/docs", "/openapi.json"}
    allowed = {family.shown_name: dict(family.labels) for family in FAMILIES}
    for name, labels in found.samples:
        for label, value in labels:
            assert secret not in value
            assert "70001" not in value
            if label == "le":
                continue
            values = allowed[_SUFFIXES.sub("", name)][label]
            if values is not None:
                assert value in values, (name, label, value)
            elif label == "route":
                assert value in routes
            elif label == "method":
                assert value in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", OTHER}
            elif label == "status":
                assert 100 <= int(value) < 600
    assert found("misses_total", reason=OTHER) == 7
    assert ("statehold_misses_total", (("reason", "of_another_version"),)) not in found.samples
    unknown = [
        dict(labels)["status"]
        for name, labels in found.samples
        if name == "statehold_http_requests_total" and dict(labels)["method"] == OTHER
    ]
    assert unknown == ["405"]


# ---- figures after a known series of operations --------------------------------------------


def test_lookups_say_how_many_tokens_of_the_query_were_not_held(
    quick: Server, caller: Client
) -> None:
    caller.record_full("ns", list(range(100)), b"x")
    caller.lookup("ns", list(range(100)))
    caller.lookup("ns", list(range(150)))
    caller.restore("ns", list(range(2000)))
    caller.lookup("ns", [9] * 300)
    caller.lookup("ns", list(range(400)), accept_kinds=["kv"])
    found = scrape_until(quick.url, "lookups_total", 2, result="miss")
    assert found("lookups_total", result="hit") == 3
    assert found("hit_tokens_total") == 100
    assert found("misses_total", reason="never_seen") == 1
    assert found("misses_total", reason="kind_not_accepted") == 1

    def at_most(result: str, bound: str) -> float:
        return found("lookup_gap_tokens_bucket", result=result, le=bound)

    assert [at_most("hit", le) for le in ("0.0", "16.0", "64.0", "1024.0", "4096.0", "+Inf")] == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert found("lookup_gap_tokens_sum", result="hit") == 0 + 50 + 1900
    # 300 tokens that nothing covers; of 400 tokens a state of another kind covers 100.
    assert found("lookup_gap_tokens_sum", result="never_seen") == 300
    assert found("lookup_gap_tokens_sum", result="kind_not_accepted") == 300
    assert at_most("never_seen", "256.0") == 0
    assert at_most("never_seen", "1024.0") == 1


def test_recordings_show_dedupe_and_compression(quick: Server, caller: Client) -> None:
    soft = b"".join(n.to_bytes(4, "little") for n in range(MIB // 4))
    caller.record_full("a", [1], soft)
    caller.record_full("b", [1], soft)
    caller.record_full("b", [2], noise("hard", MIB))
    assert caller.admit("b", [2], "full_state", {"full": MIB}).status_code == 200
    pending = caller.admit("b", [3], "full_state", {"full": 5}).json()["state_id"]
    found = scrape_until(quick.url, "admissions_total", 4, answer="admitted")
    assert found("records_total", outcome="committed") == 3
    assert found("received_bytes_total", form="plain") == 3 * MIB
    assert found("recorded_bytes_total") == 3 * MIB
    assert found("written_raw_bytes_total") == 2 * MIB
    assert found("deduplicated_raw_bytes_total") == MIB
    assert found("blocks_deduplicated_total") == found("blocks_written_total") / 2
    assert MIB < found("written_stored_bytes_total") < 1.5 * MIB
    assert found("admissions_total", answer="already_recorded") == 1
    assert (found("live_states"), found("recordings"), found("reserved_bytes")) == (3, 1, 5)
    assert found("namespaces") == 2
    assert found("logical_bytes") == 3 * MIB
    assert MIB < found("stored_bytes") < 2 * MIB
    stored = sum(found("block_values", environment=name) for name in ("large", "small"))
    assert stored == found("blocks_written_total")
    caller.delete(f"/v1/records/{pending}")
    scrape_until(quick.url, "records_total", 1, outcome="aborted")
    for stage in ("admit", "hash", "compress", "write", "commit"):
        assert found("stage_seconds_count", stage=stage) >= 3, stage
        assert 0 < found("stage_seconds_sum", stage=stage) < 60
    assert found("stage_seconds_count", stage="commit") == 3


def test_a_restore_is_measured_in_its_stages(quick: Server, caller: Client) -> None:
    caller.record_full("ns", [1], noise("r", MIB))
    answer = caller.restore("ns", [1])
    caller.release(lease_header(answer), "restored", import_ms={"full": 7.0})
    lease = caller.lookup("ns", [1], acquire=True)["lease"]["lease_id"]
    found = scrape_until(quick.url, "leases_opened_total", 2)
    assert found("restored_bytes_total") == MIB
    assert {
        stage: found("stage_seconds_count", stage=stage)
        for stage in ("lookup", "lease", "reconstruct", "send")
    } == {"lookup": 2, "lease": 2, "reconstruct": 1, "send": 1}
    assert found("leases_held") == 1
    assert found("leases_ended_total", by="sent") == 1
    assert found("leases_released_total", outcome="restored") == 1
    assert found("import_seconds_sum", component="full") == 0.007
    assert found("import_seconds_bucket", component="full", le="0.005") == 0
    assert found("import_seconds_bucket", component="full", le="0.01") == 1
    caller.fail(lease, "runtime")
    found = scrape_until(quick.url, "leases_released_total", 1, outcome="failed:runtime")
    assert found("failures_reported_total", class_="runtime") == 1
    assert found("leases_held") == 0


def test_evictions_and_the_misses_they_make_are_told_apart_by_cause(
    quick: Server, caller: Client
) -> None:
    ids = [caller.record_full("ns", [n], b"x") for n in range(3)]
    caller.post("/admin/v1/evictions", json={"state_ids": ids[:1]})
    caller.post(f"/admin/v1/states/{ids[1]}/quarantine", json={"reason": "r"})
    caller.delete(f"/admin/v1/states/{ids[1]}")
    lease = caller.lookup("ns", [2], acquire=True)["lease"]["lease_id"]
    caller.record_full("ns", [2], b"y", replace=True)
    caller.release(lease, "unused")
    assert caller.lookup("ns", [0])["misses"][0]["reason"] == "evicted_recently"
    scrape_until(quick.url, "misses_evicted_total", 1, ago="under_minute")
    # What was held when it was replaced goes a moment after its lease.
    found = scrape_until(quick.url, "evictions_total", 1, cause="replaced")
    assert found("misses_evicted_total", ago="under_minute") == 1
    assert found("evictions_total", cause="admin") == 1
    assert found("evictions_total", cause="purged") == 1
    assert found("quarantines_total", class_="operator") == 1
    assert found("live_states") == 1


def test_evictions_for_the_budget_are_counted(start: ServerFactory) -> None:
    server = start(touch_flush_s=0.05, budget_bytes="2MiB", max_entries=100)
    with Client(server.url) as client:
        for n in range(4):
            client.record_full("ns", [n], noise(n, 700_000))
    found = scrape_until(server.url, "evictions_total", 2, cause="budget")
    assert found("live_states") == 2
    assert found("budget_bytes") == 2 * MIB
    assert found("max_states") == 100
    assert found("stored_bytes") <= 2 * MIB


def test_quarantines_are_counted_by_class(quick: Server, caller: Client) -> None:
    data = noise("bad", 200_000)
    caller.record_full("ns", [1], data)
    lease = lease_header(caller.restore("ns", [1]))
    flip_block(quick.data, data)
    assert caller.restore("ns", [1]).status_code == 204
    caller.record_full("ns", [2], b"x")
    caller.fail(lease, "integrity")
    other = caller.lookup("ns", [2], acquire=True)["lease"]["lease_id"]
    caller.fail(other, "invalid_data")
    found = scrape_until(quick.url, "quarantines_total", 1, class_="invalid_data")
    assert found("quarantines_total", class_="block_damaged") == 1
    assert found("quarantines_total", class_="integrity") == 0
    assert found("quarantined_states") == 2
    assert found("misses_total", reason="quarantined") == 1


def test_a_recording_that_nobody_finished_and_a_lease_that_ran_out_are_counted(
    start: ServerFactory,
) -> None:
    server = start(touch_flush_s=0.05, record_ttl_s=1)
    with Client(server.url) as client:
        client.admit("ns", [1], "full_state", {"full": 5})
        client.record_full("ns", [2], b"x")
        client.lookup("ns", [2], acquire=True, ttl_s=1)
    scrape_until(server.url, "records_total", 1, outcome="expired")
    server.stop()
    # What is forgotten 10 minutes later, as if it had been then.
    sql(server.data, "UPDATE lease SET expires_boot_ms = expires_boot_ms - 700000")
    again = start(touch_flush_s=0.05)
    scrape_until(again.url, "leases_expired_total", 1)


def test_the_health_of_both_stores_and_the_device_is_shown(quick: Server, caller: Client) -> None:
    caller.record_full("ns", [1], noise("h", MIB))
    caller.put("/admin/v1/mode", json={"mode": "lookup"})
    log = quick.data / "metadata.db-wal"
    before = log.stat().st_size
    found = scrape(quick.url)
    assert 0 < before <= found("wal_bytes") <= log.stat().st_size  # counters are flushed meanwhile
    size = (quick.data / "metadata.db").stat().st_size
    assert found("database_bytes") >= size > 0
    assert found("commit_counter") > 0
    for name in ("large", "small"):
        file = quick.data / "blocks" / name / "data.mdb"
        assert found("block_file_bytes", environment=name) == file.stat().st_size
        assert found("block_reader_slots", environment=name) >= 1
        assert found("block_max_reader_slots", environment=name) == 512
        assert found("block_map_bytes", environment=name) == 1 << 40
    assert found("block_used_bytes", environment="large") >= MIB
    for name in ("database_failed", "block_store_failed", "writers_stopped", "lost_commits"):
        assert found(name) == 0
    disk = os.statvfs(quick.data)
    assert abs(found("free_disk_bytes") - disk.f_bavail * disk.f_frsize) < 1 << 30
    assert found("free_disk_reserve_bytes") == 64 * MIB
    assert found("mode", mode="lookup") == 1
    assert found("mode", mode="lookup_record") == 0
    assert found("workers") == found("max_workers") == 1
    assert found("resident_bytes") > 10 * MIB


def test_memory_of_an_upload_under_way_is_shown(quick: Server, caller: Client) -> None:
    state_id = caller.admit("ns", [1], "full_state", {"full": 8 * MIB}).json()["state_id"]

    def body() -> Iterator[bytes]:
        yield bytes(MIB)
        deadline = time.monotonic() + 10
        while not (found := scrape(quick.url))("upload_buffer_bytes"):
            assert time.monotonic() < deadline
        # A batch of about 4 MiB, as it comes and as it is stored.
        assert 2 * 3 * MIB < found("upload_buffer_bytes") < 2 * 5 * MIB
        assert found("max_upload_buffer_bytes") == 128 * MIB
        assert found("uploads_waiting") == 0
        yield bytes(7 * MIB)

    assert caller.upload(state_id, "full", body()).status_code == 200
    assert scrape(quick.url)("upload_buffer_bytes") == 0


# ---- several workers, restarts -------------------------------------------------------------


@pytest.fixture
def pair(start: ServerFactory) -> Server:
    server = start(workers=2, touch_flush_s=0.05)
    scrape_until(server.url, "workers", 2)
    return server


def _of_everything(server: Server, times: int, first: int = 0) -> None:
    for n in range(first, first + times):
        with Client(server.url) as client:
            client.record_full("ns", [n], noise(n, 70_000))
        with Client(server.url) as client:
            client.restore("ns", [n, 1])
        with Client(server.url) as client:
            client.lookup("ns", [1000 + n])


def test_any_of_two_workers_answers_for_both(pair: Server) -> None:
    _of_everything(pair, 10)
    scrape_until(pair.url, "lookups_total", 10, result="miss")
    for found in (scrape(pair.url) for _ in range(8)):
        assert found("records_total", outcome="committed") == 10
        assert found("lookups_total", result="hit") == 10
        assert found("restored_bytes_total") == 700_000
        assert found("stage_seconds_count", stage="lookup") == 20
        assert found("lookup_gap_tokens_sum", result="hit") == 10
        # Each has 128 MiB.
        assert found("max_upload_buffer_bytes") == 256 * MIB
        assert found("workers_age_seconds") < 10


def test_counters_never_go_back_while_workers_flush(pair: Server) -> None:
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(_of_everything, pair, 15)
        seen = []
        while not working.done():
            seen.append(scrape(pair.url)("stage_seconds_count", stage="lookup"))
        working.result()
    assert seen == sorted(seen)
    scrape_until(pair.url, "stage_seconds_count", 30, stage="lookup")


def test_the_gauges_of_a_killed_worker_go_with_it(pair: Server) -> None:
    os.kill(pair.worker_pids()[0], signal.SIGKILL)
    # The supervisor starts another; never are three counted.
    deadline = time.monotonic() + 20
    seen = set()
    while time.monotonic() < deadline:
        try:
            found = scrape(pair.url)
        except httpx.TransportError:
            continue
        seen.add(found("workers"))
        assert found("max_upload_buffer_bytes") == found("workers") * 128 * MIB
        if found("workers") == 2 and len(seen) > 1:
            break
    assert seen == {1.0, 2.0}


def test_counters_and_histograms_go_on_after_a_restart(start: ServerFactory) -> None:
    server = start()
    _of_everything(server, 2)
    server.stop()
    server = start()
    found = scrape(server.url)
    assert found("lookups_total", result="hit") == 2
    assert found("stage_seconds_count", stage="send") == 2
    assert found("live_states") == 2
    assert not list((server.data / "instances").glob("*.new"))
    _of_everything(server, 1, first=2)
    server.kill()
    # One that was killed had counted into the table up to a second before.
    assert scrape(start().url)("lookups_total", result="hit") >= 2


def test_many_scrapes_at_once_are_answered(quick: Server) -> None:
    with ThreadPoolExecutor(16) as pool:
        found: list[Scrape] = list(pool.map(scrape, [quick.url] * 48))
    assert all(one("workers") == 1 for one in found)


def test_only_operators_of_the_whole_store_may_scrape(start: ServerFactory) -> None:
    server = start()
    with Client(server.url) as client:

        def make(*scopes: str, **more: str) -> str:
            body = {"label": "t", "scopes": list(scopes), **more}
            secret: str = client.post("/admin/v1/tokens", json=body).json()["secret"]
            return secret

        def status(secret: str) -> int:
            return client.get("/metrics", headers={"Authorization": f"Bearer {secret}"}).status_code

        client.headers["Authorization"] = f"Bearer {make('admin:read', 'admin:write')}"
        seeing, bound, looking = make("admin:read"), make("admin:read", tenant="a"), make("lookup")
        assert [status(secret) for secret in (seeing, bound, looking)] == [200, 403, 403]
    assert httpx.get(f"{server.url}/metrics").status_code == 401


# ---- what is written about them ------------------------------------------------------------

_DOCS = Path(__file__).parents[2] / "docs"
_BEGIN = "<!-- metrics: kept in step by tests/http/test_metrics.py -->\n"
_END = "<!-- end of metrics -->"
# Of Prometheus itself: whether the last scrape worked.
_NOT_OURS = {"up"}
_WORD = re.compile(r"\bstatehold_[a-z_]+")


def metrics_table() -> str:
    """The table of metrics as it must stand in docs/metrics.md."""
    lines = ["| name | type | labels | what it says |", "| --- | --- | --- | --- |"]
    for family in FAMILIES:
        labels = family.label_words or "; ".join(
            f"`{label}`: {', '.join(f'`{value}`' for value in values or ())}"
            for label, values in family.labels
        )
        lines.append(f"| `{family.shown_name}` | {family.kind} | {labels} | {family.says} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_metrics_is_what_a_scrape_gives(quick: Server) -> None:
    page = (_DOCS / "metrics.md").read_text()
    assert page.split(_BEGIN)[1].split(_END)[0] == metrics_table()
    kinds = {
        family.name: (family.type, family.documentation) for family in scrape(quick.url).families
    }
    for family in FAMILIES:
        if family.name != "statehold_http_requests":
            assert kinds[family.name] == (family.kind, family.says)


def test_every_stage_is_explained() -> None:
    from app.engine.stages import Stage

    page = (_DOCS / "metrics.md").read_text()
    assert all(f"| `{stage.value}` |" in page for stage in Stage)


def test_alerts_and_dashboard_ask_only_for_metrics_and_labels_that_exist(quick: Server) -> None:
    with Client(quick.url) as client:
        client.get("/healthz")
    scrape_until(quick.url, "http_requests_total", 1, method="GET", route="/healthz", status="200")
    found = scrape(quick.url)
    there = {name for name, _ in found.samples}
    values = {(name, label, value) for name, labels in found.samples for label, value in labels}
    expressions = [*_alert_expressions(), *_panel_expressions()]
    assert len(expressions) > 30
    for expression in expressions:
        assert expression.count("(") == expression.count(")"), expression
        assert expression.count("{") == expression.count("}"), expression
        used = set(_WORD.findall(expression))
        assert used or _NOT_OURS & set(re.findall(r"\w+", expression)), expression
        assert used <= there, used - there
        for name, matchers in re.findall(r"(statehold_\w+)\{([^}]*)\}", expression):
            for label, _, value in re.findall(r"(\w+)(=~|=|!=)\"([^\"]*)\"", matchers):
                if label in ("job", "instance", "le"):
                    continue
                for one in value.split("|"):
                    if label != "status":
                        assert (name, label, one) in values, (expression, label, one)


def test_every_alert_says_what_to_do() -> None:
    text = (_DOCS / "prometheus" / "alerts.yml").read_text()
    rules = text.split("- alert: ")[1:]
    assert len(rules) >= 10
    names = [rule.split("\n", 1)[0] for rule in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        for part in ("expr: ", "severity: ", "summary: ", "description: "):
            assert rule.count(part) == 1, rule
        assert "\t" not in rule


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = _board()
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(board)
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"]


def _board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_DOCS / "grafana" / "statehold.json").read_text())
    return found


def _alert_expressions() -> list[str]:
    text = (_DOCS / "prometheus" / "alerts.yml").read_text()
    return re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)


def _panel_expressions() -> list[str]:
    return [target["expr"] for panel in _board()["panels"] for target in panel.get("targets", ())]
