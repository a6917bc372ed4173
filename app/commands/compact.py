"""`statehold compact`: shorter files, of a stopped data folder, or of a running server in a pause."""

from __future__ import annotations

import argparse
import dataclasses

from app.commands import remote, waiting
from app.commands.jobs import tell
from app.commands.showing import as_json, counted
from app.settings import Settings

NAME = "compact"
HELP = "give the free space in a data folder's files back to the disk"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "--online",
        action="store_true",
        help="let the running server do it; it pauses for as long; implied by --url",
    )
    remote.arguments(parser)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Print the sizes before and after.

    Raises:
        StoreUnusable: as `storage.compact.compact`, for a stopped folder.
    """
    if options.online or options.url is not None:
        server = remote.connect(settings, options)
        return tell(waiting.until_ended(server, waiting.start(server, "compact", {})), options.json)
    return _stopped(settings, options)


def _stopped(settings: Settings, options: argparse.Namespace) -> int:
    from migrations import require_current
    from storage.compact import compact
    from storage.layout import DataFolder

    folder = DataFolder(settings.data_dir)
    if folder.database.exists():
        require_current(folder.database)
    done = compact(folder)
    if options.json:
        figures = dataclasses.asdict(done)
        figures |= {"before_bytes": done.before_bytes, "after_bytes": done.after_bytes}
        as_json(figures)
        return 0
    for file in done.files:
        print(f"{file.name:24}{file.before_bytes:>18,} -> {file.after_bytes:>18,} bytes")
    print(f"{'together':24}{done.before_bytes:>18,} -> {done.after_bytes:>18,} bytes")
    print(
        f"{counted(done.reclaimed_blocks, 'block')} without an owner removed, {done.seconds:.1f} s"
    )
    if done.recovered.lost_commits:
        print(
            f"{done.recovered.lost_commits} acknowledged commits were lost; "
            f"{done.recovered.quarantined} states that lacked a block were quarantined"
        )
    return 0
