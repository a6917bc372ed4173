"""The dashboard in a real browser, before a real server, with some of its answers set by the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Request, Route, expect

from tests.browser import answers

Answer = Any
Answers = dict[str, Answer]


def _tree(request: Request) -> Answer:
    query = parse_qs(urlsplit(request.url).query)
    return answers.tree(int(query["node_id"][0]) if "node_id" in query else None)


def _history(request: Request) -> Answer:
    query = parse_qs(urlsplit(request.url).query)
    return answers.history(int(query["minutes"][0]), int(query["step_minutes"][0]))


def full(**more: Answer) -> Answers:
    """Every route of a busy server."""
    return {
        "/admin/v1/whoami": answers.whoami(),
        "/admin/v1/stats": answers.stats(),
        "/admin/v1/history": _history,
        "/v1/namespaces": answers.namespaces(),
        "/admin/v1/states": answers.states(),
        "/admin/v1/quarantine": answers.quarantine(),
        "/admin/v1/audit": answers.audit(),
        "/admin/v1/jobs": answers.jobs(),
        "/admin/v1/pins": answers.pins(),
        "/admin/v1/tree/nodes": _tree,
        "/readyz": answers.ready(),
        **{path.replace("__", "/"): answer for path, answer in more.items()},
    }


def problem(status: int, code: str, detail: str = "So it is.") -> tuple[int, dict[str, Any]]:
    """An answer that is a problem."""
    return status, {"code": code, "status": status, "title": code, "detail": detail}


class Board:
    """One page; what it asked for, and whatever a browser complains about."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.asked: list[tuple[str, str, Any]] = []
        self.elsewhere: list[str] = []
        self.complaints: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self._answers: Answers = {}
        page.on("request", self._noted)
        page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self._native(dialog))
        page.route("**/*", self._answered)

    def set(self, answers: Answers) -> None:
        """Paths that are answered by the test; all others by the server."""
        self._answers = answers

    def change(self, path: str, answer: Answer) -> None:
        """From now on this path is answered so."""
        self._answers[path] = answer

    def open(self, wanted: str = "#overview .value") -> None:
        """Load the page and wait for what is wanted, and until each panel has had its first answer."""
        self.page.goto(self.origin + "/")
        self.page.locator(wanted).first.wait_for()
        expect(self.page.locator('main [aria-busy="true"]:visible')).to_have_count(0)

    def sent(self, method: str) -> list[tuple[str, Any]]:
        """(path, body) of requests with that method."""
        return [(path, body) for how, path, body in self.asked if how == method]

    def count(self, path: str) -> int:
        return sum(one == path for _, one, _ in self.asked)

    def _noted(self, request: Request) -> None:
        if not request.url.startswith(self.origin + "/"):
            self.elsewhere.append(request.url)
        body = request.post_data
        self.asked.append(
            (request.method, urlsplit(request.url).path, json.loads(body) if body else None)
        )
        self.headers.append(request.headers)

    def _native(self, dialog: Any) -> None:
        self.complaints.append(f"the page opened {dialog.type}: {dialog.message}")
        dialog.dismiss()

    def _answered(self, route: Route) -> None:
        request = route.request
        path = urlsplit(request.url).path
        key = path if request.method == "GET" else f"{request.method} {path}"
        if key not in self._answers:
            route.continue_()
            return
        answer = self._answers[key]
        if callable(answer):
            chosen: Callable[[Request], Answer] = answer
            answer = chosen(request)
        if answer is None:
            route.abort("connectionrefused")
            return
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        route.fulfill(status=status, content_type="application/json", body=json.dumps(body))
