"""`statehold doctor`: would a start go well, and does what runs run well? Looks, and changes nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict

from app.commands import remote
from app.commands.checks import folder as of_folder
from app.commands.checks import machine, service
from app.commands.checks.finding import Finding, fail, ok
from app.commands.errors import WrongUse
from app.commands.showing import as_json, counted, safe
from app.settings import Settings, faults
from storage.layout import DataFolder, in_use, running_processes

NAME = "doctor"
HELP = "check settings, permissions, disk, limits, versions and the running server"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    remote.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print what every check found; exit code 1 if any failed."""
    found = list(_all(options))
    counts = {level: sum(one.level == level for one in found) for level in ("ok", "warn", "fail")}
    if options.json:
        as_json({"checks": [asdict(one) for one in found], **counts})
    else:
        width = max(len(one.check) for one in found)
        for one in found:
            print(f"{one.level:4}  {one.check:{width}}  {safe(one.detail)}")
        print(f"{counts['fail']} failed, {counted(counts['warn'], 'warning')}")
    return 1 if counts["fail"] else 0


def _all(options: argparse.Namespace) -> Iterator[Finding]:
    wrong = faults()
    for sentence in wrong:
        yield fail("settings", sentence)
    settings = None
    if not wrong:
        settings = Settings()
        changed = len(settings.model_fields_set)
        yield ok("settings", f"all can be used, {changed} are set")
    yield machine.system()
    yield from machine.versions(settings)
    if settings is None:
        yield machine.own_open_files()
        yield machine.own_clock(None)
        return
    yield from _of_settings(settings, options)


def _of_settings(settings: Settings, options: argparse.Namespace) -> Iterator[Finding]:
    from app.commands.checks import store  # takes most of a second
    from app.engine.backup import backup_dir

    yield machine.memory(settings, machine.memory_bytes())
    yield from machine.own_address_space(settings)
    folder = DataFolder(settings.data_dir)
    permissions = list(of_folder.permissions(folder.path))
    usable = all(one.level != "fail" or one.check != "data folder" for one in permissions)
    running = usable and in_use(folder)
    yield from _open_files(folder, running)
    yield from permissions
    yield of_folder.backups(settings)
    yield of_folder.file_system(folder.path)
    known = store.of_new(settings)
    if usable:
        schema = of_folder.schema(folder.database)
        yield schema
        if schema.level == "ok" and folder.database.exists():
            known = store.ask(folder.database, settings)
        yield from store.limits(known)
        yield from of_folder.room(folder.path, known.limits)
        if not running:
            yield of_folder.leftovers(folder.path, backup_dir(settings))
    yield machine.own_clock(known.latest_ms)
    yield from service.address(settings, known.any_token)
    yield from _of_server(settings, options, folder if usable else None, running)


def _open_files(folder: DataFolder, running: bool) -> list[Finding]:
    """Of the processes that serve the folder, or else of one that would be started from here."""
    pids = running_processes(folder) if running else []
    found = [one for pid in pids if (one := machine.open_files_of(pid)) is not None]
    return found or [machine.own_open_files()]


def _of_server(
    settings: Settings, options: argparse.Namespace, folder: DataFolder | None, running: bool
) -> Iterator[Finding]:
    try:
        server = remote.connect(settings, options)
    except WrongUse as error:
        yield fail("server", str(error))
        return
    # Who names another server may mean one with another folder.
    named = options.url is not None or remote.URL_VARIABLE in os.environ
    yield from service.server(server, running, None if named else folder)
    if server.has_token:
        yield from service.caller(server)
