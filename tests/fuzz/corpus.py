"""The targets by name, and the inputs that are kept for each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, cast

_TARGETS: Final = Path(__file__).parent / "targets"
KEPT: Final = Path(__file__).parents[1] / "data" / "fuzz"
NAMES: Final = tuple(sorted(file.stem for file in _TARGETS.glob("*.py")))


class Target(Protocol):
    """A module of tests/fuzz/targets."""

    def target(self, data: bytes) -> None:
        """Give the parser these bytes; raises only where something is wrong with the parser."""

    def seeds(self) -> Iterator[bytes]:
        """Inputs that go deep."""


def load(name: str) -> Target:
    """A target by name."""
    return cast(Target, importlib.import_module(f"tests.fuzz.targets.{name}"))


def kept(name: str) -> list[bytes]:
    """Inputs that once led somewhere new, or to a fault that is mended."""
    return [file.read_bytes() for file in sorted((KEPT / name).glob("*"))]


def inputs(name: str) -> list[bytes]:
    """All that is known of a target."""
    return [*load(name).seeds(), *kept(name)]
