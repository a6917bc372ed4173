"""The commands of a page of documentation, as a reader would paste them one block after the other.

What a block needs that its reader knows stands in comments before it, which no renderer shows:

    <!-- first: COMMAND -->     run before the block, in the same shell
    <!-- stopped -->            no server uses the data folder meanwhile
    <!-- not run: REASON -->    left out; the reason is one of `REASONS`
    <!-- executed by TEST -->   left out, since that test runs it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_ELSEWHERE: Final = "has a test of its own"
REASONS: Final = frozenset(
    {
        "sets up and serves",  # `make run`, which every clone begins with
        "runs every test",
        "takes long",
        "needs a container engine",
        "needs systemd",
        "needs a host of its own",
        _ELSEWHERE,
    }
)

_BLOCK: Final = re.compile(r"((?:<!--[^\n]*-->\n+)*)```(\w*)\n(.*?)```", re.S)
_COMMENT: Final = re.compile(r"<!-- (first|stopped|not run)(?:: (.*?))? -->")


@dataclass(frozen=True)
class Block:
    """One block of shell commands."""

    page: str
    script: str
    stopped: bool
    not_run: str | None


def blocks(page: Path) -> Iterator[Block]:
    """Every block of shell commands of a page, in order."""
    for comments, language, script in _BLOCK.findall(page.read_text()):
        if language != "sh":
            continue
        found = _COMMENT.findall(comments)
        first = [text for kind, text in found if kind == "first"]
        yield Block(
            page.name,
            "\n".join([*first, script]),
            any(kind == "stopped" for kind, _ in found),
            _ELSEWHERE
            if "<!-- executed by " in comments
            else next((text for kind, text in found if kind == "not run"), None),
        )
