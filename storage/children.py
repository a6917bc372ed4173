"""What a child process of ours is started with. A leaf."""

from __future__ import annotations

import os
from pathlib import Path


def child_environment() -> dict[str, str]:
    """The environment, in which a child finds the very code that its parent runs."""
    here = str(Path(__file__).parents[1])
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{others}" if others else here}
