"""What the service listens on, who may reach it, and whether a server answers and is well."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from app import VERSION
from app.api.schemas.access import WhoAmI
from app.api.schemas.admin import Alive, Ready
from app.commands.checks.finding import Finding, fail, ok, warn
from app.commands.errors import Refused, Unreachable
from app.commands.remote import Remote
from app.commands.showing import counted, tenant
from app.settings import Settings
from storage.layout import DataFolder, instance_digest, instances

_UNPRIVILEGED: Final = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_ANSWERS: Final = "server"


def address(settings: Settings, any_token: bool) -> Iterator[Finding]:
    """Who reaches the address, and whether they need a token.

    Args:
        any_token: whether one was ever made.
    """
    from app.server import is_loopback

    make = "make a token with `statehold token create`"
    closed = settings.access == "tokens" or (settings.access == "auto" and any_token)
    if settings.socket is not None:
        yield from _socket(settings.socket, int(settings.socket_mode, 8), closed)
        return
    said = f"{settings.host} port {settings.port}"
    yield from _port(settings.port)
    if closed and not any_token:
        yield warn(
            "address", f"{said}: tokens are needed and none was made, so nobody is served: {make}"
        )
    elif closed:
        yield ok("address", f"{said}, with tokens")
    elif is_loopback(settings.host):
        yield warn("address", f"{said}: everybody on this machine may do everything: {make}")
    elif settings.access == "open":
        yield warn(
            "address",
            f"{said}: STATEHOLD_ACCESS=open lets everybody who reaches it do everything: {make}, and "
            "set it to auto",
        )
    else:
        yield fail(
            "address",
            f"{said} can be reached by others and no token was made, so the service does not start: "
            f"{make}",
        )


def server(remote: Remote, in_use: bool, folder: DataFolder | None) -> Iterator[Finding]:
    """Whether a server answers, and what it says of itself.

    Args:
        in_use: whether a process has the data folder of the settings open.
        folder: which one it should serve; None where any will do.
    """
    try:
        alive = remote.get("/healthz", Alive)
    except (Unreachable, Refused) as error:
        if in_use:
            yield warn(
                _ANSWERS, f"a process uses the data folder, and {error}: is it served elsewhere?"
            )
        elif _is_taken(remote):
            yield fail(
                _ANSWERS,
                f"something else listens at {remote.where} ({error}): stop it, or change the address",
            )
        else:
            yield ok(_ANSWERS, f"none is running at {remote.where}")
        return
    said = f"{remote.where} answers, version {alive['version']}"
    current = alive["version"] == VERSION
    if not current:
        yield warn(_ANSWERS, f"{said}, and this is {VERSION}: restart it after an upgrade")
    try:
        ready = remote.get("/readyz", Ready, also=503)
    except (Unreachable, Refused) as error:
        yield fail("readyz", f"nobody can tell whether it is well: {error}")
        return
    if folder is not None and not _serves(ready, folder):
        yield fail(
            _ANSWERS,
            f"{said}, and serves another data folder than {folder.path}: set STATEHOLD_DATA_DIR to its "
            "folder, or change the address",
        )
    elif not ready["ready"]:
        yield fail(_ANSWERS, f"{said} and is not ready")
    elif current:
        yield ok(_ANSWERS, f"{said}, mode {ready['mode']}, {counted(ready['workers'], 'worker')}")
    for sentence in ready["degraded"]:
        yield warn("readyz", f"degraded: {sentence} (docs/operations.md says what to do)")
    for sentence in ready["warnings"]:
        yield warn("readyz", sentence)


def _serves(ready: Mapping[str, Any], folder: DataFolder) -> bool:
    """Whether whoever answered is among those that use the folder; one that does not tell is."""
    instance = ready.get("instance")
    return instance is None or instance in {instance_digest(name) for name in instances(folder)}


def caller(remote: Remote) -> Iterator[Finding]:
    """What the token that was given is good for; nothing where no server tells."""
    try:
        found = remote.get("/admin/v1/whoami", WhoAmI)
    except Refused as error:
        yield fail("token", f"the token that was given is of no use there: {error}")
        return
    except Unreachable:
        return
    name = tenant(found["tenant"])
    whose = f"the {name}" if found["tenant"] is None else f"tenant {name}"
    yield ok("token", f"good for {', '.join(found['scopes'])} of {whose}")


def _socket(path: Path, mode: int, closed: bool) -> Iterator[Finding]:
    said = f"unix socket {path}, mode {mode:04o}"
    folder = path.absolute().parent
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            yield fail("address", f"{path} is another file: remove it, or name another socket")
            return
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        yield fail(
            "address", f"{folder} is not there or cannot be written: the socket goes into it"
        )
    elif mode & 0o006 and not closed:
        yield warn(
            "address",
            f"{said}: everybody on this machine may do everything: set STATEHOLD_SOCKET_MODE to 0660 "
            "or 0600, or make a token with `statehold token create`",
        )
    else:
        yield ok("address", said)


def _port(port: int) -> Iterator[Finding]:
    with suppress(OSError, ValueError):
        first = int(_UNPRIVILEGED.read_text())
        if 0 < port < first and os.geteuid() != 0:
            yield warn(
                "port", f"{port} is below {first}, which only root may listen on: take another"
            )


def _is_taken(remote: Remote) -> bool:
    """Whether anybody accepts connections there."""
    where = remote.where
    with suppress(OSError):
        if where.scheme == "unix":
            from app.listening import is_listened_on

            return is_listened_on(Path(where.host))
        with socket.create_connection((where.host, where.port), timeout=2):
            return True
    return False
