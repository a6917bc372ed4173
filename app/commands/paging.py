"""Lists that come a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from app.commands.remote import Remote
from app.commands.showing import say

_PAGE: Final = 1000


def gathered(
    page: Callable[[int, str | None], dict[str, Any]], key: str, limit: int, after: str | None
) -> dict[str, Any]:
    """A list as one answer: as the pages are, with at most `limit` under `key` and where it goes on.

    Args:
        page: of at most so many behind a cursor. One may be empty and not be the last.
    """
    rows: list[dict[str, Any]] = []
    while True:
        found = page(min(_PAGE, limit - len(rows)), after)
        rows += found[key]
        after = found["next"]
        if after is None or len(rows) >= limit:
            return {**found, key: rows, "next": after}


def of_server(
    server: Remote, path: str, shape: type[BaseModel], query: Mapping[str, Any]
) -> Callable[[int, str | None], dict[str, Any]]:
    """The pages of a route."""
    return lambda limit, after: server.get(path, shape, {**query, "limit": limit, "after": after})


def say_more(found: Mapping[str, Any]) -> None:
    """For people: that a list goes on."""
    if found["next"] is not None:
        say(f"there are more: --limit N, or --after {found['next']}")
