"""Whether somebody means it: asked on a terminal, and nowhere else."""

from __future__ import annotations

import argparse
import sys

from app.commands.showing import safe


def to_be_asked(options: argparse.Namespace) -> bool:
    """Whether somebody is there, and has not said that they are sure."""
    return not options.yes and sys.stdin.isatty()


def agreed(options: argparse.Namespace, question: str) -> bool:
    """Whether to go on: without a terminal, or with --yes, it was meant when it was written."""
    if not to_be_asked(options):
        return True
    print(f"{safe(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed", file=sys.stderr)
    return False
