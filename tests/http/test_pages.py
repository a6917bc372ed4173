"""How the pages are sent: from this server alone, with rules that a browser enforces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.support.client import Client, code

_UI = Path(__file__).parents[2] / "app" / "ui"
VENDORED = "/ui/vendor/swagger-ui-5.35.0/swagger-ui-bundle.js"


@pytest.mark.parametrize("path", ["/", "/docs", "/ui/main.js", "/ui/dashboard.css", VENDORED])
def test_nothing_from_elsewhere_and_nothing_inline_may_run(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    rules = dict(
        rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";")
    )
    assert rules["default-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_are_asked_for_anew_by_etag_and_vendored_files_are_kept_for_ever(
    client: Client,
) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={"If-None-Match": f'"other", W/{page.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == page.headers["etag"]
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    assert "immutable" in client.get(VENDORED).headers["cache-control"]
    head = client.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(page.content))


@pytest.mark.parametrize(
    "path",
    [
        "/ui/nope.js",
        "/ui/",
        "/ui/../api/pages.py",
        "/ui/%2e%2e/api/pages.py",
        "/ui/vendor/README.md",
        "/ui//etc/passwd",
    ],
)
def test_only_the_pages_own_files_are_served(client: Client, path: str) -> None:
    assert code(client.get(path)) == (404, "not_found")


def test_pages_do_not_stand_in_the_description_of_the_api(client: Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert not [path for path in paths if path in ("/", "/docs") or path.startswith("/ui")]


def test_what_the_pages_refer_to_is_there(client: Client) -> None:
    """Modules, style sheets and icons; imports are followed file by file."""
    for source in [*_UI.glob("*.html"), *_UI.glob("*.js"), *_UI.glob("*/*.js")]:
        base = f"/ui/{source.relative_to(_UI).as_posix()}"
        for target in re.findall(
            r"""(?:src|href)="(/ui/[^"]+)"|from '(\.[^']+)'""", source.read_text()
        ):
            url = target[0] or str(client.base_url.join(base).join(target[1]).raw_path, "ascii")
            assert client.get(url).status_code == 200, f"{base} refers to {url}"


def test_our_own_files_make_no_markup_out_of_text() -> None:
    for source in [*_UI.glob("*.js"), *_UI.glob("panels/*.js")]:
        text = source.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text
        ), source
    for source in _UI.glob("*.html"):
        text = source.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", text), source
        assert "http://" not in text
        assert "https://" not in text


def test_the_wheel_has_every_file_of_the_pages() -> None:
    builder = WheelBuilder(str(_UI.parents[1]))
    included = {Path(found.path) for found in builder.recurse_included_files()}
    held = {path for path in _UI.rglob("*") if path.is_file()}
    assert len(held) > 25
    assert held <= included
