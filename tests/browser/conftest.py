"""A browser where there is one, and the rule for every page: nothing from elsewhere, no complaint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.board import Board
from tests.support.server import Server

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# What the browser itself writes for every answer of 400 and more; the page says it in its own words.
_EXPECTED = ("Failed to load resource",)

# Longer than the page ever rests between two questions; nothing waits this long where all is well.
_PATIENCE_MS = 60_000

BoardFactory = Callable[..., Board]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = Path(os.environ.get("STATEHOLD_CHROMIUM", "/usr/bin/chromium"))
    if not path.exists():
        pytest.skip(f"no Chromium at {path} (STATEHOLD_CHROMIUM names another)")
    with sync_playwright() as playwright:
        expect.set_options(timeout=_PATIENCE_MS)
        found = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield found
        found.close()


@pytest.fixture
def make_board(browser: Browser, server: Server) -> Iterator[BoardFactory]:
    """Pages before this test's server. At the end: nothing was asked elsewhere, nobody complained."""
    made: list[Board] = []

    def make(
        width: int = 1280, height: int = 900, scheme: str = "light", touch: bool = False
    ) -> Board:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            has_touch=touch,
            locale="en-GB",
        )
        context.set_default_timeout(_PATIENCE_MS)
        board = Board(context.new_page(), server.url)
        made.append(board)
        return board

    yield make
    for board in made:
        board.page.context.close()
        assert board.elsewhere == []
        assert [c for c in board.complaints if not c.startswith(_EXPECTED)] == []


@pytest.fixture
def board(make_board: BoardFactory) -> Board:
    return make_board()
