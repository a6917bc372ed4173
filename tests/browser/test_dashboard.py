"""The dashboard as an operator meets it. Answers that a test does not set come from a real server."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Request, expect

from tests.browser import answers
from tests.browser.answers import BIDI, EVIL
from tests.browser.board import Board, full, problem
from tests.browser.conftest import BoardFactory
from tests.support.client import Client

_DATA = ("/admin/v1/stats", "/admin/v1/history", "/admin/v1/jobs", "/admin/v1/audit")


def _reads(board: Board, selector: str, said: str | re.Pattern[str]) -> None:
    """What stands there contains this, at once or after the next answer."""
    expect(board.page.locator(selector)).to_contain_text(said, use_inner_text=True)


# ---- against the server alone --------------------------------------------------------------


def test_an_empty_store_says_in_every_panel_that_there_is_nothing_yet(board: Board) -> None:
    board.open()
    expect(board.page.locator("#namespaces")).to_contain_text("No namespaces yet")
    expect(board.page.locator("#quarantine")).to_contain_text("Nothing is out of service")
    expect(board.page.locator("#tree")).to_contain_text("No tree yet")
    expect(board.page.locator("#storage")).to_contain_text("Nothing is held yet")
    expect(board.page.locator("#hit-rate")).to_contain_text("No lookups in this time")
    expect(board.page.locator("#pulse")).to_have_text("Live")


def test_what_is_recorded_and_looked_up_appears_without_a_reload(
    board: Board, client: Client
) -> None:
    board.open()
    client.record_full("ns", [1, 2, 3], b"x" * 5000)
    client.restore("ns", [1, 2, 3, 4])
    client.restore("ns", [9])
    tiles = board.page.locator("#overview")
    expect(tiles).to_contain_text("50.0\xa0%")
    expect(board.page.locator("#misses")).to_contain_text("never seen")
    expect(board.page.locator("#storage")).to_contain_text("4.88\xa0KiB")


def test_a_real_tree_is_walked_and_a_real_state_is_purged(board: Board, client: Client) -> None:
    stem = list(range(100))
    client.record_full("ns", stem, b"a")
    client.record_full("ns", [*stem, 7], b"b")
    bad = client.record_full("ns", [*stem, 8], b"c")
    client.post(f"/admin/v1/states/{bad}/quarantine", json={"reason": "suspect"})
    board.open()
    nodes = board.page.locator("#tree .node")
    expect(nodes).to_have_count(2)
    nodes.nth(1).click()
    expect(nodes).to_have_count(4)
    expect(nodes.nth(3)).to_contain_text("101 tokens")
    expect(board.page.locator("#tree .chip.quarantined")).to_have_count(1)
    expect(board.page.locator("#quarantine")).to_contain_text("suspect")
    board.page.get_by_role("button", name="Purge").click()
    board.page.locator("dialog").get_by_role("button", name="Cancel").click()
    assert client.get(f"/admin/v1/states/{bad}").status_code == 200
    board.page.get_by_role("button", name="Purge").click()
    board.page.locator("dialog").get_by_role("button", name="Purge").click()
    expect(board.page.locator("#quarantine")).to_contain_text("Nothing is out of service")
    assert client.get(f"/admin/v1/states/{bad}").status_code == 404


def test_a_real_token_opens_a_closed_server_and_is_kept_in_this_tab_only(
    board: Board, client: Client
) -> None:
    scopes = ["lookup", "admin:read"]
    made = client.post("/admin/v1/tokens", json={"label": "t", "scopes": scopes}).json()
    board.open("#sign-in form")
    expect(board.page.locator("#board")).to_be_hidden()
    board.page.get_by_label("Access token").fill("sth_wrong")
    board.page.get_by_role("button", name="Sign in").click()
    expect(board.page.locator("#sign-in")).to_contain_text("does not know this token")
    board.page.get_by_label("Access token").fill(made["secret"])
    board.page.get_by_role("button", name="Sign in").click()
    board.page.locator("#overview .value").first.wait_for()
    expect(board.page.locator("#sign-in")).to_be_hidden()
    kept = board.page.evaluate(
        "() => [JSON.stringify(localStorage), document.cookie, JSON.stringify(sessionStorage)]"
    )
    assert made["secret"] in kept[2]
    assert made["secret"] not in kept[0] + kept[1] + board.page.url
    board.page.get_by_role("button", name="Sign out").click()
    board.page.locator("#sign-in form").wait_for()
    assert board.page.evaluate("() => sessionStorage.length") == 0


def test_the_description_of_the_api_works_without_another_host(board: Board) -> None:
    board.page.goto(board.origin + "/docs")
    expect(board.page.locator(".info .title")).to_contain_text("Statehold")
    board.page.locator("#operations-cache-lookup_v1_lookup_post, .opblock").first.click()
    expect(board.page.locator(".opblock-body").first).to_be_visible()


# ---- what the panels show ------------------------------------------------------------------


def test_figures_are_shown_in_units_that_people_read(board: Board) -> None:
    board.set(full())
    board.open()
    board.page.locator("#saved .chart svg").wait_for()
    _reads(board, "#overview", "81.1 %")
    _reads(board, "#overview", "82.3 % ever")
    _reads(board, "#overview", "1.43 G ever")
    _reads(board, "#overview", "82.0 GiB 64.1 % of 128 GiB")
    _reads(board, "#storage", "Deduplication saved 716 GiB (88.2 %)")
    _reads(board, "#storage", "Compression saved 15.0 GiB (15.6 %)")
    _reads(board, "#storage", "90.0 % saved altogether")
    _reads(board, "#namespaces thead", "Saved")
    _reads(board, "#namespaces tbody tr:first-child", "89.2 %")
    _reads(board, "#budget", "Free disk 410 GiB")
    _reads(board, "#budget", "Pinned 2.00 GiB of 16 GiB")
    meter = board.page.get_by_role("meter", name="Budget")
    expect(meter).to_have_attribute("aria-valuenow", "64.1")
    _reads(board, "#misses", re.compile("never seen.*evicted recently", re.IGNORECASE | re.DOTALL))


def test_the_time_shown_can_be_chosen(board: Board) -> None:
    board.set(full())
    board.open()
    board.page.get_by_role("radio", name="1 h").focus()
    with board.page.expect_request(lambda r: "minutes=360" in r.url and "step_minutes=5" in r.url):
        board.page.keyboard.press("ArrowRight")
    expect(board.page.get_by_role("radio", name="6 h")).to_be_focused()
    expect(board.page.locator("#hit-rate .readout")).to_contain_text("last 6 h")


def test_a_chart_is_read_with_the_arrow_keys(board: Board) -> None:
    board.set(full())
    board.open()
    chart = board.page.locator("#hit-rate .chart")
    expect(chart).to_have_attribute(
        "aria-label", "Hit rate over time. 81.1\xa0% of 11,596 lookups hit"
    )
    chart.focus()
    board.page.keyboard.press("Home")
    readout = board.page.locator("#hit-rate .readout")
    expect(readout).to_contain_text("–")
    first = readout.inner_text()
    board.page.keyboard.press("ArrowRight")
    expect(readout).not_to_have_text(first, use_inner_text=True)
    board.page.keyboard.press("Escape")
    expect(readout).to_contain_text("last 1 h")


def test_the_busiest_namespace_stands_first_and_leads_to_its_tree(board: Board) -> None:
    board.set(full())
    board.open()
    rows = board.page.locator("#namespaces tbody tr")
    expect(rows).to_have_count(len(answers.NAMES))
    expect(rows.first).to_contain_text("smollm2-135m")
    expect(rows.first).to_contain_text("3,600")
    with board.page.expect_request(
        lambda r: (
            "/tree/nodes" in r.url
            and parse_qs(urlsplit(r.url).query)["namespace"] == [answers.NAMES[1]]
            and parse_qs(urlsplit(r.url).query)["tenant"] == ["team-search"]
        )
    ):
        rows.nth(1).get_by_role("button").click()


def test_events_come_from_the_audit_log_and_the_quarantine_newest_first(board: Board) -> None:
    board.set(full())
    board.open()
    titles = board.page.locator("#events .event-title")
    expect(titles.first).to_have_text("Eviction")
    expect(titles.nth(3)).to_have_text("Release from quarantine refused")
    expect(titles.nth(4)).to_have_text("Quarantined: block damaged")
    expect(board.page.locator("#events li.refusal")).to_contain_text("still failing")


def test_what_was_not_done_does_not_read_as_done(board: Board) -> None:
    evictions = "POST /admin/v1/evictions"
    rows = [
        (evictions, "done", {"body": {"target_bytes": 0, "dry_run": True}}),
        (evictions, "done", {"body": {"target_bytes": 0, "dry_run": False}}),
        (evictions, "namespace_not_found", {"body": {"namespace": "x", "dry_run": True}}),
        ("DELETE /admin/v1/tokens/{token_id}", "token_not_found", {}),
        ("PATCH /admin/v1/limits", "internal_error", {}),
        ("PUT /admin/v1/mode", "broken_off", {}),
        ("POST /admin/v1/tokens", "done", {}),
        ("token create", "done", {}),
    ]
    entry = answers.audit()["entries"][0]
    entries = [
        {**entry, "at_ms": entry["at_ms"] - n, "action": action, "outcome": ended, "details": sent}
        for n, (action, ended, sent) in enumerate(rows)
    ]
    nothing: dict[str, Any] = {"states": [], "next": None}
    audit = {"entries": entries, "next": None}
    board.set(full(**{"/admin/v1/audit": audit, "/admin/v1/quarantine": nothing}))
    board.open()
    expect(board.page.locator("#events .event-title")).to_have_text(
        [
            "Eviction, dry run",
            "Eviction",
            "Eviction, dry run refused",
            "Revoking a token refused",
            "Change of limits failed",
            "Change of mode was broken off",
            "Token created",
            "Token created",
        ]
    )
    expect(board.page.locator("#events li.refusal")).to_have_count(4)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_list_of_events_ends_where_a_row_does(make_board: BoardFactory, width: int) -> None:
    board = make_board(width)
    (first, *rest) = answers.audit()["entries"]
    many = [{**(first, *rest)[n % 7], "id": n, "at_ms": first["at_ms"] - n} for n in range(40)]
    board.set(full(**{"/admin/v1/audit": {"entries": many, "next": None}}))
    board.open()
    expect(board.page.locator("#events .events-more")).to_be_visible()
    cut = board.page.evaluate(
        """() => {
            const list = document.querySelector('#events .events');
            const end = list.getBoundingClientRect().bottom;
            return [...list.children].map((row) => row.getBoundingClientRect())
                .filter((row) => row.top < end - 1 && row.bottom > end + 1).length;
        }"""
    )
    assert cut == 0


def test_on_a_phone_the_mode_is_seen_and_chips_stand_under_the_name(
    make_board: BoardFactory,
) -> None:
    board = make_board(390, 844)
    board.set(full())
    board.open()
    expect(board.page.locator("#mode")).to_be_visible()
    expect(board.page.locator("#mode")).to_have_text("lookup + record")
    row = board.page.locator("#namespaces tbody tr").nth(3)
    name = row.locator(".name").bounding_box()
    chip = row.locator(".chip").bounding_box()
    assert name is not None
    assert chip is not None
    assert abs(chip["x"] - name["x"]) < 1
    assert chip["y"] >= name["y"] + name["height"]


def test_a_backup_is_shown_with_its_name(board: Board) -> None:
    board.set(full())
    board.open()
    expect(board.page.locator("#jobs .jobs > li").nth(1)).to_contain_text("2026-12-03")


def test_names_from_elsewhere_are_text_and_cannot_turn_the_page_around(board: Board) -> None:
    board.set(full())
    board.open()
    table = board.page.locator("#namespaces tbody")
    expect(table).to_contain_text(EVIL)
    expect(table).to_contain_text("team-a/⟨U+202E⟩gnp.exe⟨U+202C⟩/⟨U+2066⟩llama⟨U+200B⟩")
    everything = board.page.evaluate("() => document.documentElement.innerText")
    assert not set("\u202e\u202c\u2066\u200b") & set(everything)
    assert board.page.locator("main img, main script, main iframe").count() == 0
    option = board.page.locator("#tree-namespace option").nth(5)
    expect(option).to_contain_text("⟨U+202E⟩")
    with board.page.expect_request(
        lambda r: "/tree/nodes" in r.url and parse_qs(urlsplit(r.url).query)["namespace"] == [BIDI]
    ):
        table.get_by_role("button").nth(5).click()


def test_the_browser_refuses_to_make_markup_out_of_text(board: Board) -> None:
    board.open()
    refused = board.page.evaluate(
        "() => { try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return false }"
        " catch (error) { return error instanceof TypeError } }"
    )
    assert refused is True
    board.complaints.clear()


# ---- doing things --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "confirm", "method", "ending", "said"),
    [
        ("Re-verify", "Re-verify", "POST", "/verify", "it can be released"),
        ("Release", "Verify and release", "POST", "/release", "Back in service"),
        ("Purge", "Purge", "DELETE", "", "Purged"),
    ],
)
def test_quarantine_actions_ask_first(
    board: Board, verb: str, confirm: str, method: str, ending: str, said: str
) -> None:
    board.set(full())
    board.open()
    state_id = answers.quarantine()["states"][0]["state_id"]
    path = f"/admin/v1/states/{state_id}{ending}"
    board.change(f"{method} {path}", {"intact": True, "evidence": None})
    button = board.page.locator("#quarantine").get_by_role("button", name=verb).first
    button.click()
    dialog = board.page.locator("dialog")
    expect(dialog).to_contain_text(state_id)
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    board.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert board.sent(method) == []
    button.click()
    dialog.get_by_role("button", name=confirm).click()
    expect(board.page.locator("#toasts")).to_contain_text(said)
    assert board.sent(method) == [(path, None)]


def test_evidence_says_who_reported_and_how_the_last_verification_ended(board: Board) -> None:
    board.set(full())
    board.open()
    held = board.page.locator("#quarantine .held > li")
    expect(held).to_have_count(2)
    found, reported = held.first, held.nth(1)
    expect(found).to_contain_text("block 118")
    expect(found).not_to_contain_text("Verified")
    expect(reported).to_contain_text("Verified")
    expect(reported).to_contain_text("intact")
    whose = answers.quarantine()["states"][1]["evidence"]["client"]
    expect(reported.locator(f'code[title="{whose}"]')).to_have_count(1)


def test_a_refused_action_says_why_and_changes_nothing(board: Board) -> None:
    board.set(full())
    board.open()
    state_id = answers.quarantine()["states"][0]["state_id"]
    refusal = problem(409, "still_failing", "block 118 of kv still fails")
    board.change(f"POST /admin/v1/states/{state_id}/release", refusal)
    board.page.locator("#quarantine").get_by_role("button", name="Release").first.click()
    board.page.locator("dialog").get_by_role("button", name="Verify and release").click()
    expect(board.page.locator(".toast.bad")).to_contain_text("block 118 of kv still fails")
    expect(board.page.locator("#quarantine .held > li")).to_have_count(2)


def test_a_verification_that_fails_is_not_told_as_a_success(board: Board) -> None:
    board.set(full())
    board.open()
    state_id = answers.quarantine()["states"][0]["state_id"]
    board.change(f"POST /admin/v1/states/{state_id}/verify", {"intact": False, "evidence": {}})
    board.page.locator("#quarantine").get_by_role("button", name="Re-verify").first.click()
    board.page.locator("dialog").get_by_role("button", name="Re-verify").click()
    expect(board.page.locator(".toast.bad")).to_contain_text("still fails")


def test_jobs_are_started_shown_and_cancelled(board: Board) -> None:
    board.set(full())
    board.open()
    progress = board.page.get_by_role("progressbar", name="verify job")
    expect(progress).to_have_attribute("value", re.compile(r"^0\.426"))
    expect(board.page.get_by_role("button", name="Start verify")).to_be_disabled()
    running = answers.job(9, "backup", "running", done=1, total=10)
    board.change("POST /admin/v1/jobs", (202, running))
    board.page.get_by_role("button", name="Start backup").click()
    board.page.locator("dialog").get_by_role("button", name="Start backup").click()
    expect(board.page.locator("#toasts")).to_contain_text("The backup job has started")
    assert board.sent("POST") == [("/admin/v1/jobs", {"kind": "backup"})]
    job_id = answers.jobs()["jobs"][0]["job_id"]
    board.change(f"POST /admin/v1/jobs/{job_id}/cancel", running)
    board.page.get_by_role("button", name="Cancel verify job").click()
    board.page.locator("dialog").get_by_role("button", name="Cancel job").click()
    expect(board.page.locator("#toasts")).to_contain_text("next safe place")
    assert board.sent("POST")[1:] == [(f"/admin/v1/jobs/{job_id}/cancel", None)]


def test_the_tree_is_walked_with_the_keyboard(board: Board) -> None:
    board.set(full())
    board.open()
    nodes = board.page.locator("#tree .node")
    expect(nodes).to_have_count(5)
    nodes.first.focus()
    board.page.keyboard.press("ArrowDown")
    expect(nodes.nth(1)).to_be_focused()
    board.page.keyboard.press("ArrowRight")
    expect(nodes).to_have_count(8)
    expect(nodes.nth(1)).to_have_attribute("aria-expanded", "true")
    board.page.keyboard.press("ArrowRight")
    expect(nodes.nth(2)).to_be_focused()
    expect(nodes.nth(2)).to_have_attribute("aria-level", "3")
    board.page.keyboard.press("ArrowLeft")
    expect(nodes.nth(1)).to_be_focused()
    board.page.keyboard.press("ArrowLeft")
    expect(nodes.nth(1)).to_have_attribute("aria-expanded", "false")
    board.page.keyboard.press("End")
    expect(nodes.last).to_be_focused()
    asked = board.count("/admin/v1/tree/nodes")
    assert asked == 2


def test_many_branches_come_a_page_at_a_time(board: Board) -> None:
    def page(request: Request) -> Any:
        after = int(parse_qs(urlsplit(request.url).query).get("after", ["1"])[0])
        children = [answers.node(after + n, 10, 10, 0, 1) for n in range(1, 51)]
        return {"node": answers.node(1, 0, 0, 120), "children": children, "more": after < 60}

    board.set(full(**{"/admin/v1/tree/nodes": page}))
    board.open()
    nodes = board.page.locator("#tree .node")
    expect(nodes).to_have_count(1 + 50 + 1)
    board.page.get_by_text("Show more branches").click()
    expect(nodes).to_have_count(1 + 100 + 1)


# ---- live ----------------------------------------------------------------------------------


def test_nothing_is_asked_while_the_tab_is_hidden(board: Board) -> None:
    board.page.add_init_script(
        "let hidden = false;"
        "Object.defineProperty(Document.prototype, 'hidden', { get: () => hidden });"
        "window.hide = (value) => { hidden = value;"
        " document.dispatchEvent(new Event('visibilitychange')); };"
    )
    board.set(full())
    board.open()
    board.page.wait_for_timeout(300)
    board.page.evaluate("hide(true)")
    expect(board.page.locator("#pulse")).to_have_text("Paused")
    before = len(board.asked)
    board.page.wait_for_timeout(5_000)
    assert len(board.asked) == before
    board.change("/admin/v1/stats", answers.stats(live=77))
    board.page.evaluate("hide(false)")
    expect(board.page.locator("#overview")).to_contain_text("77")
    expect(board.page.locator("#pulse")).to_have_text("Live")


def test_the_focus_stays_where_it_is_when_figures_change(board: Board) -> None:
    board.set(full())
    board.open()
    button = board.page.get_by_role("button", name="Cancel verify job")
    button.focus()
    changed = answers.jobs()
    changed["jobs"][0]["done"] = 300_000
    board.change("/admin/v1/jobs", changed)
    expect(board.page.locator("#jobs")).to_contain_text("300,000")
    expect(button).to_be_focused()


# ---- when it is not all well ---------------------------------------------------------------


def test_while_figures_are_awaited_every_panel_has_its_place(board: Board) -> None:
    board.set(full())
    board.page.route(
        "**/admin/v1/**",
        lambda route: None if "whoami" not in route.request.url else route.fallback(),
    )
    board.page.goto(board.origin)
    board.page.locator(".bone").first.wait_for()
    expect(board.page.locator("#overview .tile")).to_have_count(5)
    expect(board.page.locator("#quarantine")).to_have_attribute("aria-busy", "true")
    before = board.page.locator("#misses").bounding_box()
    assert before is not None
    board.page.unroute("**/admin/v1/**")
    board.page.reload()
    board.page.locator("#misses .bars").wait_for()
    after = board.page.locator("#misses").bounding_box()
    assert after is not None
    assert abs(after["y"] - before["y"]) < 3


def test_a_server_that_is_gone_is_said_and_the_page_recovers_by_itself(board: Board) -> None:
    board.set(full())
    board.open()
    for path in full():
        board.change(path, None)
    banner = board.page.locator("#banner")
    expect(banner).to_contain_text("The server does not answer")
    expect(board.page.locator("#pulse")).to_have_text("Offline")
    expect(board.page.locator("#overview")).to_contain_text("12,488")
    for path, answer in full().items():
        board.change(path, answer)
    banner.get_by_role("button", name="Try again").click()
    expect(banner).to_be_hidden()
    expect(board.page.locator("#pulse")).to_have_text("Live")


def test_a_server_that_was_never_there_is_tried_again(board: Board) -> None:
    board.set({"/admin/v1/whoami": None})
    board.page.goto(board.origin)
    board.page.locator("#banner button").wait_for()
    board.set(full())
    expect(board.page.locator("#overview")).to_contain_text("12,488")


def test_a_token_that_may_only_see_is_offered_no_changes(board: Board) -> None:
    board.set(full(**{"/admin/v1/whoami": answers.whoami(["lookup", "admin:read"])}))
    board.open()
    for panel in ("#quarantine", "#jobs"):
        expect(board.page.locator(panel)).to_contain_text("admin:write")
        expect(board.page.locator(panel).get_by_role("button")).to_have_count(0)


def test_panels_say_which_scope_they_need(board: Board) -> None:
    refusal = problem(403, "forbidden", "the token lacks the scope admin:read")
    more = dict.fromkeys(_DATA, refusal) | {"/admin/v1/whoami": answers.whoami(["lookup"])}
    board.set(full(**more))
    board.open("#sign-in form")
    expect(board.page.locator("#sign-in")).to_contain_text("the token lacks the scope admin:read")
    for panel in ("#overview", "#hit-rate", "#jobs", "#budget"):
        expect(board.page.locator(panel)).to_contain_text("admin:read")
    expect(board.page.locator("#namespaces tbody tr")).to_have_count(len(answers.NAMES))


def test_what_an_older_server_lacks_costs_only_its_panel(board: Board) -> None:
    missing = problem(404, "not_found", "There is no such route.")
    paths = ("whoami", "history", "quarantine", "audit", "jobs", "pins", "tree/nodes")
    more: dict[str, Any] = {f"/admin/v1/{path}": missing for path in paths}
    board.set(full(**more))
    board.open()
    expect(board.page.locator("#jobs")).to_contain_text("Not offered by this server")
    expect(board.page.locator("#tree")).to_contain_text("Not offered by this server")
    expect(board.page.locator("#hit-rate")).to_contain_text("keeps no history")
    expect(board.page.locator("#quarantine")).to_contain_text("Not offered by this server")
    expect(board.page.locator("#overview")).to_contain_text("12,488")


def test_one_failing_route_leaves_the_other_panels_alone(board: Board) -> None:
    busy = problem(503, "busy", "the write lock of the store was not free in time")
    board.set(full(**{"/v1/namespaces": busy}))
    board.open()
    expect(board.page.locator("#namespaces")).to_contain_text("write lock")
    expect(board.page.locator("#jobs .jobs > li")).to_have_count(4)


def test_what_is_degraded_stands_above_the_figures(board: Board) -> None:
    board.set(full(**{"/readyz": answers.ready("mode is lookup", "writer stopped: EIO")}))
    board.open()
    expect(board.page.locator("#degraded li")).to_have_text(
        ["mode is lookup", "writer stopped: EIO"]
    )


# ---- on every screen -----------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (820, 1180), (1280, 900)])
def test_it_fits_its_screen_and_can_be_read(
    make_board: BoardFactory, width: int, height: int, scheme: str
) -> None:
    board = make_board(width, height, scheme)
    board.set(full(**{"/readyz": answers.ready("mode is lookup")}))
    board.open()
    board.page.locator("#saved .chart svg").wait_for()
    board.page.locator("#jobs progress").wait_for()
    wide = board.page.evaluate(
        """() => [...document.querySelectorAll('main *')].filter((node) => {
            const box = node.getBoundingClientRect();
            return box.width > 1 && box.right > innerWidth + 1 && !node.closest('thead');
        }).map((node) => node.tagName + '.' + node.getAttribute('class'))"""
    )
    assert wide == []
    faint = board.page.evaluate(_FAINT)
    assert faint == []


# Text whose contrast with what lies behind it is under 4.5 to 1 (WCAG 2.2, 1.4.3).
_FAINT = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (colour) => {
    const [r, g, b] = [...rgb(colour)].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (rgb(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest('noscript, option, button:disabled')) continue;
    const style = getComputedStyle(node);
    const ink = node instanceof SVGElement ? style.fill : style.color;
    const pair = [light(ink), light(behind(node))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) found.push(`${texts.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""


def test_everything_that_can_be_done_has_a_name_and_the_page_has_landmarks(board: Board) -> None:
    board.set(full())
    board.open()
    board.page.locator("#jobs progress").wait_for()
    unnamed = board.page.evaluate(
        """() => [...document.querySelectorAll('button, a, select, input, section')].filter((node) =>
            node.checkVisibility() && !node.getAttribute('aria-label') && !node.textContent.trim()
            && !document.querySelector(`label[for="${node.id}"]`)).map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    for role in ("banner", "main"):
        expect(board.page.get_by_role(role)).to_have_count(1)
    board.page.keyboard.press("Tab")
    expect(board.page.get_by_text("Skip to the figures")).to_be_focused()
