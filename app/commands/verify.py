"""`statehold verify`: every block of a stopped data folder, or of a running server by its verify job."""

from __future__ import annotations

import argparse

from app.commands import arguments as take
from app.commands import remote, waiting
from app.commands.errors import WrongUse
from app.commands.jobs import tell
from app.commands.progress import shown
from app.commands.showing import as_json, counted, safe
from app.settings import Settings

NAME = "verify"
HELP = "read and prove every state of a stopped data folder, or with --online of a running server"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "--online",
        action="store_true",
        help="let the running server do it, and quarantine what is damaged; implied by --url",
    )
    parser.add_argument(
        "--rate", type=take.size, metavar="SIZE", help="online: bytes a second at most, as in 64MiB"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        default=None,
        help="online: go on where the last one was stopped",
    )
    remote.arguments(parser)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Print findings; exit code 1 if there are any."""
    if options.online or options.url is not None:
        server = remote.connect(settings, options)
        wanted = {"rate_bytes": options.rate, "resume": options.resume}
        return tell(
            waiting.until_ended(server, waiting.start(server, "verify", wanted)), options.json
        )
    if options.rate is not None or options.resume:
        raise WrongUse("--rate and --resume are for --online")
    return _stopped(settings, options)


def _stopped(settings: Settings, options: argparse.Namespace) -> int:
    from app.commands.offline import alone
    from app.engine.proof import findings

    otherwise = "stop it, or use `statehold verify --online`"
    with alone(settings, otherwise) as folder, shown("verified") as progress:
        found = findings(folder.path, progress)
    if options.json:
        as_json({"findings": found})
    else:
        for finding in found:
            print(safe(finding))
        print(counted(len(found), "finding"))
    return 1 if found else 0
