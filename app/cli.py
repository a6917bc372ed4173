"""The `statehold` command.

Exit codes: 0 well, 1 findings or a failure, 2 wrong usage or settings, 3 the data folder cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from app import VERSION
from app.logs import configure
from app.settings import Settings, explain
from storage.errors import StoreUnusable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="statehold",
        description="Exact-state prefix cache for LLM serving. Settings come from STATEHOLD_* "
        "environment variables.",
    )
    parser.add_argument("--version", action="version", version=f"statehold {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="migrate the data folder and serve it")
    commands.add_parser("migrate", help="bring the data folder's schema up to date")
    commands.add_parser("check", help="compare every reference and figure of a stopped data folder")
    command = parser.parse_args(arguments).command
    try:
        settings = Settings()
    except ValidationError as error:
        print(f"statehold: {explain(error)}", file=sys.stderr)
        return 2
    configure(settings)
    try:
        return _COMMANDS[command](settings)
    except StoreUnusable as error:
        print(f"statehold: {error}", file=sys.stderr)
        return 3


def _serve(settings: Settings) -> int:
    from app.server import serve

    serve(settings)
    return 0


def _migrate(settings: Settings) -> int:
    from migrations import upgrade
    from storage.layout import DataFolder

    folder = DataFolder(settings.data_dir)
    folder.prepare()
    with folder.starting():
        upgrade(folder.database)
    return 0


def _check(settings: Settings) -> int:
    from storage.integrity import check

    findings = check(settings.data_dir)
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


_COMMANDS = {"serve": _serve, "migrate": _migrate, "check": _check}
