"""Arguments that several commands take, and what they may be."""

from __future__ import annotations

import argparse
from typing import Any

from app import durations, sizes
from app.commands import remote

Actions = Any  # argparse keeps the type of what `add_subparsers` gives to itself


def action(actions: Actions, name: str, summary: str) -> argparse.ArgumentParser:
    """An action of a command, with what every action that asks a server takes."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary, allow_abbrev=False
    )
    # As of the command itself, and good in either place.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    config(parser)
    remote.arguments(parser)
    return parser


def config(parser: argparse.ArgumentParser, default: object = argparse.SUPPRESS) -> None:
    """The file of settings, good in front of a command and behind it.

    Args:
        default: of a command none, so that it leaves alone what stands in front of it.
    """
    parser.add_argument("--config", metavar="FILE", default=default, help="a TOML file of settings")


def offline(parser: argparse.ArgumentParser) -> None:
    """That a stopped folder is to be read in place of asking a server."""
    parser.add_argument(
        "--offline",
        action="store_true",
        help="read the stopped data folder of the settings instead of asking a server",
    )


def paging(parser: argparse.ArgumentParser) -> None:
    """How much of a list."""
    parser.add_argument(
        "--limit", type=count, default=100, metavar="N", help="so many at most (default 100)"
    )
    parser.add_argument(
        "--after", metavar="CURSOR", help="go on behind a list that was cut by --limit"
    )


def of_namespace(parser: argparse.ArgumentParser) -> None:
    """Whose."""
    parser.add_argument("--namespace", metavar="NAME", help="of this namespace")
    of_tenant(parser, "of this tenant; default is one of them")


def of_tenant(parser: argparse.ArgumentParser, summary: str) -> None:
    """Whose. The default tenant is "" in JSON, and as good here: in a query nothing would say it."""
    parser.add_argument(
        "--tenant", metavar="NAME", type=lambda name: name or "default", help=summary
    )


def sure(parser: argparse.ArgumentParser) -> None:
    """That nobody is to be asked."""
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask on a terminal")


def size(text: str) -> int:
    """Bytes, also in IEC units."""
    try:
        return sizes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def duration(text: str) -> int:
    """Seconds, also in minutes, hours, days, weeks."""
    try:
        return durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def count(text: str) -> int:
    """A number of things, at least one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 10_000_000:
        raise argparse.ArgumentTypeError("a number from 1 to 10000000")
    return number
