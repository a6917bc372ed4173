"""`statehold restore FROM`: a backup back into a data folder that nobody uses, proven before it counts."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import closing
from pathlib import Path

from app.commands.errors import Failed
from app.commands.progress import shown
from app.commands.showing import counted, say
from app.settings import Settings
from storage.errors import BackupDamaged
from storage.layout import DataFolder

NAME = "restore"
HELP = "put a backup into the data folder, after every byte of it was verified"

# Names of backups in a sentence, at most; the last ones, as most names are dates.
_SHOWN = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "source", metavar="FROM", help="a backup's folder, or its name in backup_dir"
    )
    parser.add_argument(
        "--into", metavar="DIR", type=Path, help="data folder to restore into; else data_dir"
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace the data that the folder holds"
    )


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Restore it; exit code 1 says what is damaged, and leaves the folder as it was."""
    from app.engine.backup import backup_dir
    from app.engine.proof import findings
    from migrations import revisions, upgrade
    from storage.backups.copying import NAME as PATTERN
    from storage.backups.restoring import restore

    os.umask(0o077)
    source = Path(options.source)
    if not source.is_dir() and PATTERN.fullmatch(options.source):
        source = _named(backup_dir(settings), options.source)
    folder = DataFolder(options.into or settings.data_dir)
    try:
        with shown("copied") as copied, shown("verified") as verified:
            manifest = restore(
                source,
                folder,
                replace=options.replace,
                known=revisions(),
                upgrade=upgrade,
                prove=lambda path: findings(path, verified),
                progress=copied,
            )
    except BackupDamaged as error:
        say(error)
        return 1
    if settings.access == "auto" and not _any_token(folder):
        say(
            f"warning: there is no access token in {folder.path} now, so everybody who reaches the service "
            "on this machine may do everything: make one with `statehold token create` before it is "
            'served, or set access to "tokens" (STATEHOLD_ACCESS=tokens)'
        )
    if options.json:
        figures = {"states": manifest.states, "quarantined": manifest.quarantined}
        print(json.dumps({"path": str(folder.path), **figures, "bytes": manifest.size_bytes}))
    else:
        print(f"{folder.path}: {counted(manifest.states, 'state')}, all verified")
    return 0


def _named(backups: Path, name: str) -> Path:
    """A backup of backup_dir.

    Raises:
        Failed: there is none of that name; says which there are.
    """
    from storage.backups.manifest import MANIFEST

    if (backups / name).is_dir():
        return backups / name
    names = sorted(path.parent.name for path in backups.glob(f"[!.]*/{MANIFEST}"))
    there = ", ".join(names[-_SHOWN:]) if names else "none"
    more = f"{len(names) - _SHOWN} others, " if len(names) > _SHOWN else ""
    raise Failed(f"there is no backup {name} in {backups}; there are: {more}{there}")


def _any_token(folder: DataFolder) -> bool:
    from storage.catalog import Catalog
    from storage.metadata.database import Database

    with closing(Database(folder.database)) as database:
        return Catalog(database).any_token()
