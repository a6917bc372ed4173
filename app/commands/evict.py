"""`statehold evict`: by ids, of a namespace or tenant, down to a size, or what nobody has used."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from app import sizes
from app.api.schemas.evictions import EvictionResponse
from app.commands import arguments as take
from app.commands import remote
from app.commands.asking import agreed, to_be_asked
from app.commands.errors import WrongUse
from app.commands.remote import Remote
from app.commands.showing import as_json, counted, safe, say
from app.settings import Settings

NAME = "evict"
HELP = "evict states, or say what would go"

_WAIT_SECONDS: Final = (
    900.0  # rounds with rests between: 10,000 states of a large store take a minute
)
_SHOWN: Final = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("state_ids", metavar="ID", nargs="*", help="these states")
    parser.add_argument("--namespace", metavar="NAME", help="the states of this namespace")
    take.of_tenant(parser, "only of this tenant; default is one of them")
    parser.add_argument(
        "--target",
        type=take.size,
        metavar="SIZE",
        help="least recently used first, until at most so much is held, as in 64GiB",
    )
    parser.add_argument(
        "--untouched-for",
        type=take.duration,
        metavar="DURATION",
        help="what was not used for so long, as in 7d",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    take.sure(parser)
    remote.arguments(parser)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Evict, after asking on a terminal."""
    wanted = _wanted(options)
    server = remote.connect(settings, options)
    if options.dry_run:
        return _tell(_evict(server, wanted, dry_run=True), options)
    if to_be_asked(options):
        would = _evict(server, wanted, dry_run=True)
        freed = sizes.about(would["freed_bytes"])
        if not agreed(
            options, f"evict {counted(would['evicted_count'], 'state')} and free {freed}?"
        ):
            return 1
    return _tell(_evict(server, wanted, dry_run=False), options)


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    """The request's body.

    Raises:
        WrongUse: no way to choose, or two.
    """
    rest = {
        "namespace": options.namespace,
        "target_bytes": options.target,
        "untouched_for_s": options.untouched_for,
        "tenant": options.tenant,
    }
    given = {key: value for key, value in rest.items() if value is not None}
    if options.state_ids and not given:
        return {"state_ids": options.state_ids}
    if options.state_ids or given.keys() <= {"tenant"}:
        raise WrongUse("say what is to go: ids, or any of --namespace, --target, --untouched-for")
    return given


def _evict(server: Remote, wanted: Mapping[str, Any], *, dry_run: bool) -> dict[str, Any]:
    body = {**wanted, "dry_run": dry_run}
    where = "/admin/v1/evictions"
    return server.call("POST", where, EvictionResponse, body=body, wait_s=_WAIT_SECONDS)


def _tell(found: Mapping[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        as_json(found)
        return 0
    for state_id in found["evicted"][:_SHOWN]:
        print(safe(state_id))
    if found["evicted_count"] > _SHOWN:
        print(f"and {found['evicted_count'] - _SHOWN:,} more")
    does = "would go and free" if found["dry_run"] else "went and freed"
    print(f"{counted(found['evicted_count'], 'state')} {does} {sizes.about(found['freed_bytes'])}")
    for key, why in (("kept_leased", "somebody reads it"), ("kept_pinned", "it is pinned")):
        for state_id in found[key][:_SHOWN]:
            print(f"kept {safe(state_id)}: {why}")
        if found[f"{key}_count"] > _SHOWN:
            print(f"kept {found[f'{key}_count'] - _SHOWN:,} more: {why}")
    if found["more"]:
        say("and more: the dry run ended early, a real one would go on")
    return 0
