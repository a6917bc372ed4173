"""`statehold health`: does the server answer?

For a container's health check and for scripts. It asks `/healthz`, which needs no token, at the server that
the other commands would ask. Exit code 1 whatever is wrong with the answer, and where there is none: a
container's health check knows 0 and 1 only.
"""

from __future__ import annotations

import argparse

from app.commands import remote
from app.commands.errors import Refused, Unreachable
from app.commands.showing import as_json, say
from app.settings import Settings

NAME = "health"
HELP = "ask a server whether it is alive"
_PATIENCE_S = 3.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "--ready", action="store_true", help="ask whether lookups and restores are served"
    )
    remote.arguments(parser)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Ask; exit code 1 says that there is no answer, or which."""
    path = "/readyz" if options.ready else "/healthz"
    status, reason = _ask(remote.connect(settings, options), path, options.ready)
    well = status == 200
    if options.json:
        as_json({"well": well, "status": status, "reason": reason})
    elif well:
        print("well")
    else:
        say(f"{path}: {reason}")
    return 0 if well else 1


def _ask(server: remote.Remote, path: str, ready: bool) -> tuple[int | None, str]:
    """The status of the answer, None where there is none, and what to say of it."""
    try:
        found = server.call("GET", path, wait_s=_PATIENCE_S, also=503 if ready else None)
    except Refused as error:
        return error.status, str(error)
    except Unreachable as error:
        return None, f"no answer: {error}"
    if ready and found.get("ready") is not True:
        return 503, "503 Service Unavailable"
    return 200, "200 OK"
