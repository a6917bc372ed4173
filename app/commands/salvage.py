"""`statehold salvage INTO`: what a damaged data folder still proves, as a new one."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.progress import shown
from app.commands.showing import counted
from app.settings import Settings

if TYPE_CHECKING:
    from app.engine.salvage import Salvaged

NAME = "salvage"
HELP = "copy every state that still verifies from a damaged data folder into a new one"
_NAMED = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("into", metavar="INTO", type=Path, help="the new folder; it must not exist")
    parser.add_argument(
        "--from", metavar="DIR", dest="source", type=Path, help="the damaged folder; else data_dir"
    )


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do it; exit code 1 says that something was lost."""
    from app.engine.salvage import salvage
    from migrations import upgrade
    from storage.layout import DataFolder

    os.umask(0o077)
    source = DataFolder(options.source or settings.data_dir)
    with shown("looked at", "states") as progress:
        done = salvage(source, options.into, upgrade=upgrade, progress=progress)
    if options.json:
        print(json.dumps({"path": str(options.into), **dataclasses.asdict(done)}))
    else:
        print(f"{options.into}: {_what(done)}")
        for state_id, why in done.lost[:_NAMED]:
            print(f"lost: state {state_id}: {why}")
        if len(done.lost) > _NAMED:
            print(f"lost: {len(done.lost) - _NAMED:,} more (--json names all)")
        for sentence in done.unread:
            print(f"not read to its end: table {sentence}")
        if done.quarantined_left:
            print(f"left where they are: {counted(done.quarantined_left, 'quarantined state')}")
        print(
            "Limits, modes, tenants and access tokens are not copied: set them anew.",
            file=sys.stderr,
        )
    return 1 if done.lost or done.unread else 0


def _what(done: Salvaged) -> str:
    if not done.states:
        return "there was no live state to copy, so it is empty"
    return f"{counted(done.states, 'state')}, {counted(done.bytes, 'byte')}, all verified"
