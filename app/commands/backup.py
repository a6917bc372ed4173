"""`statehold backup NAME`: a consistent copy of the data folder, also while a server uses it.

It copies as the server's own job does. With --online it is that job: for a server elsewhere, and where
every backup should be seen in the list of jobs and the audit log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from app.commands import remote, waiting
from app.commands.errors import WrongUse
from app.commands.jobs import tell
from app.commands.progress import shown
from app.commands.showing import counted, say
from app.settings import Settings
from storage.errors import BackupExists, BackupRunning, Busy, DiskFull, StoreUnusable

NAME = "backup"
HELP = "copy everything that is held into a new folder of backup_dir, also while a server runs"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="letters, digits, '.', '_', '-'; at most 64")
    parser.add_argument(
        "--online",
        action="store_true",
        help="let the running server make it, as a job, in its own backup_dir; implied by --url",
    )
    remote.arguments(parser)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Make it; exit code 1 says why there is none."""
    if options.online or options.url is not None:
        server = remote.connect(settings, options)
        job = waiting.start(server, "backup", {"name": options.name})
        return tell(waiting.until_ended(server, job), options.json)
    return _on_folder(settings, options)


def _on_folder(settings: Settings, options: argparse.Namespace) -> int:
    from app import VERSION
    from app.engine.backup import backup_dir
    from migrations import require_current
    from storage.backups.copying import NAME as PATTERN
    from storage.backups.copying import NAME_RULE, back_up
    from storage.layout import DataFolder

    if PATTERN.fullmatch(options.name) is None:
        raise WrongUse(f"{options.name!r} is no name for a backup: {NAME_RULE}")
    folder = DataFolder(settings.data_dir)
    if not folder.database.exists():
        raise StoreUnusable(f"there is no data in {folder.path}")
    require_current(folder.database)
    os.umask(0o077)
    try:
        with shown("copied") as progress:
            made = back_up(
                folder,
                backup_dir(settings),
                options.name,
                version=VERSION,
                reserve_bytes=_reserve_bytes(settings, folder.database),
                progress=progress,
            )
    except DiskFull as error:
        print(f"statehold: low_space: {error}", file=sys.stderr)
        return 1
    except (BackupExists, BackupRunning, Busy) as error:
        say(error)
        return 1
    found = made.manifest
    if options.json:
        figures = {"states": found.states, "quarantined": found.quarantined}
        figures |= {"blocks": found.blocks, "bytes": found.size_bytes}
        print(json.dumps({"path": str(made.path), **figures}))
    else:
        print(f"{made.path}: {counted(found.states, 'state')}, {counted(found.size_bytes, 'byte')}")
    if made.quarantined_here:
        print(
            f"statehold: damaged and quarantined in the backup: {counted(made.quarantined_here, 'state')}; "
            "run a verify job, or `statehold verify` on the stopped folder",
            file=sys.stderr,
        )
        return 1
    return 0


def _reserve_bytes(settings: Settings, path: Path) -> int:
    """What must stay free on the device, as the servers of the folder have it."""
    from app.engine.limits import KEY, Effective
    from storage.catalog import Catalog
    from storage.metadata.database import Database

    database = Database(path)
    try:
        return Effective(settings).of(Catalog(database).setting(KEY)).free_disk_reserve_bytes
    finally:
        database.close()
