"""The `statehold` command as a process on a terminal, with somebody who types."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Shown:
    """How the process ended, and all that the terminal got."""

    code: int
    shown: str


def on_terminal(*arguments: str, types: str = "") -> Shown:
    """Run it with its three streams on a terminal, into which `types` was typed already."""
    terminal, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            cwd=_ROOT,
            env={"PATH": os.environ["PATH"]},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(terminal, types.encode())
        seen = b""
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # nobody has the other side any more
                break
            seen += piece
        return Shown(process.wait(30), seen.decode())
    finally:
        os.close(terminal)
