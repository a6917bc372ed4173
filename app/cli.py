"""The `statehold` command.

Exit codes: 0 well, 1 findings or a failure, 2 wrong usage or settings, 3 the data folder, or the address
to listen on, cannot be used, 4 the server cannot be reached, 5 it does not allow it, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from app import VERSION
from app.commands import (
    backup,
    compact,
    doctor,
    evict,
    health,
    jobs,
    quarantine,
    restore,
    salvage,
    states,
    stats,
    token,
    verify,
)
from app.commands.arguments import config
from app.commands.errors import CommandError
from app.commands.showing import counted, safe, say
from app.listening import CannotListen
from app.logs import configure
from app.settings import Settings, explain
from app.settings_file import CONFIG_VARIABLE, UnusableSettings
from storage.errors import StoreUnusable

_MODULES = (
    backup,
    restore,
    salvage,
    compact,
    token,
    verify,
    stats,
    states,
    evict,
    health,
    quarantine,
    jobs,
    doctor,
)
# Commands without arguments of their own.
_PLAIN = {
    "serve": "migrate the data folder and serve it",
    "migrate": "bring the data folder's schema up to date",
    "check": "compare every reference and figure of a stopped data folder",
}
_STOPPED = 130  # as a shell says it of who was stopped by Ctrl-C


def parser() -> argparse.ArgumentParser:
    """Every command with its arguments."""
    described = argparse.ArgumentParser(
        prog="statehold",
        description="Exact-state prefix cache for LLM serving. Settings come from STATEHOLD_* "
        "environment variables or a TOML file (--config, or STATEHOLD_CONFIG).",
        # What is not whole may be meant otherwise one version later, and --token is no --token-file.
        allow_abbrev=False,
    )
    described.add_argument("--version", action="version", version=f"statehold {VERSION}")
    config(described, None)
    commands = described.add_subparsers(dest="command", required=True)
    for name, summary in _PLAIN.items():
        config(commands.add_parser(name, help=summary, description=summary, allow_abbrev=False))
    for command in _MODULES:
        one = commands.add_parser(
            command.NAME, help=command.HELP, description=command.HELP, allow_abbrev=False
        )
        config(one)
        one.add_argument("--json", action="store_true", help="print JSON")
        command.arguments(one)
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    _complete_streams()
    given = sys.argv[1:] if arguments is None else arguments
    described = parser()
    if not all(_is_text(argument) for argument in given):
        described.error("an argument is not UTF-8")
    options = described.parse_args(given)
    if options.config is not None:
        os.environ[CONFIG_VARIABLE] = options.config  # for the workers too
    try:
        return _run(options)
    except KeyboardInterrupt:
        return _STOPPED
    except BrokenPipeError:
        _silence(sys.stdout)
        return 0  # whoever was reading has enough
    except OSError as error:
        if options.command == "serve":
            raise  # a fault of a service: its log needs to say where
        try:
            sys.stdout.flush()
        except OSError:
            _silence(sys.stdout)  # it is what cannot be written
        where = f"{error.filename}: " if error.filename is not None else ""
        say(f"{where}{error.strerror or error}")
        return 1


def _complete_streams() -> None:
    """Closed standard streams lead nowhere, so that no file of the store is taken for one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _silence(stream: TextIO) -> None:
    """What is still to be written is not tried again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run(options: argparse.Namespace) -> int:
    if options.command == doctor.NAME:
        return doctor.run(options)  # settings that cannot be used are its first finding
    try:
        settings = Settings()
    except (ValidationError, UnusableSettings) as error:
        for sentence in explain(error):
            say(sentence)
        return 2
    configure(settings)
    try:
        code = _COMMANDS[options.command](settings, options)
        sys.stdout.flush()  # a reader that has gone is met here, and not at the interpreter's end
    except UnusableSettings as error:
        say(error)
        return 2
    except (StoreUnusable, CannotListen) as error:
        say(error)
        return 3
    except CommandError as error:
        say(error)
        return error.exit_code
    return code


def _serve(settings: Settings, _: argparse.Namespace) -> int:
    from app.server import serve

    serve(settings)
    return 0


def _migrate(settings: Settings, _: argparse.Namespace) -> int:
    from migrations import upgrade
    from storage.layout import DataFolder

    folder = DataFolder(settings.data_dir)
    folder.prepare()
    with folder.starting():
        upgrade(folder.database)
    return 0


def _check(settings: Settings, _: argparse.Namespace) -> int:
    from app.commands.offline import alone
    from storage.integrity import check

    with alone(settings, "stop it first, or use `statehold verify --online`") as folder:
        findings = check(folder.path)
    for finding in findings:
        print(safe(finding))
    print(counted(len(findings), "finding"))
    return 1 if findings else 0


_COMMANDS: dict[str, Callable[[Settings, argparse.Namespace], int]] = {
    "serve": _serve,
    "migrate": _migrate,
    "check": _check,
    **{command.NAME: command.run for command in _MODULES if command is not doctor},
}
