"""Reads the Dockerfile and .dockerignore, as far as ours go: no heredocs, no ARG, no escapes but `\\`."""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """One instruction; `rest` is its text in one line."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Its arguments: of the JSON form, or parted by blanks."""
        return json.loads(self.rest) if self.rest.startswith("[") else self.rest.split()


@dataclass(frozen=True)
class Stage:
    """What stands from one FROM to the next."""

    image: str
    name: str | None
    steps: list[Step] = field(default_factory=list)

    def last(self, name: str) -> Step:
        return [step for step in self.steps if step.name == name][-1]

    def environment(self) -> dict[str, str]:
        """What ENV sets; values that name variables are kept as they are written."""
        found: dict[str, str] = {}
        for step in self.steps:
            if step.name == "ENV":
                found |= dict(word.split("=", 1) for word in step.words)
        return found


def stages(path: Path) -> list[Stage]:
    lines = [line for line in path.read_text().splitlines() if not re.match(r"\s*#", line)]
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        name, rest = line.strip().split(None, 1)
        if name == "FROM":
            image, *named = rest.split()
            found.append(Stage(image, named[1] if named else None))
        else:
            found[-1].steps.append(Step(name, rest))
    return found


def context(root: Path) -> list[Path]:
    """The files that .dockerignore lets into the build, relative to the root."""
    rules = [
        line
        for line in (root / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    tops = {rule.lstrip("!").split("/")[0] for rule in rules if rule.startswith("!")}
    paths = [path for top in sorted(tops) for path in [root / top, *(root / top).rglob("*")]]
    return [
        path.relative_to(root)
        for path in paths
        if path.is_file() and _let_in(path.relative_to(root), rules)
    ]


def _let_in(path: Path, rules: list[str]) -> bool:
    """The last rule that names the path or a folder of it decides."""
    let_in = True
    for rule in rules:
        pattern = rule.lstrip("!")
        for candidate in (path, *path.parents[:-1]):
            if pattern.startswith("**/"):
                matches = fnmatch.fnmatch(candidate.name, pattern[3:])
            else:
                matches = fnmatch.fnmatch(str(candidate), pattern)
            if matches:
                let_in = rule.startswith("!")
    return let_in
