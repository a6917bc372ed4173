"""The sockets that the service listens on: TCP, or a unix socket instead.

Invariant of the latter: at no moment may anybody connect whom the mode does not allow. uvicorn (0.54) opens
a socket of its own to everybody, so the socket is made here and handed over. A file left by a process that
was killed is replaced; a socket that somebody listens on, or any other file, is not.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path


class CannotListen(Exception):
    """The place to listen on cannot be had; the message says why."""


def bind_port(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one.

    Raises:
        CannotListen: the port is taken, or the address is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # What the last server's connections leave behind does not keep the next one away.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.set_inheritable(True)  # workers are processes of their own
    except (OSError, UnicodeError) as error:  # the latter of a host that cannot be a name
        listener.close()
        why = getattr(error, "strerror", None) or str(error)
        raise CannotListen(f"{host} port {port} cannot be listened on: {why}") from error
    return listener


def bind_unix(path: Path, mode: int) -> socket.socket:
    """A bound socket; whoever may write its file (`mode`) may connect once it listens.

    Raises:
        CannotListen: the path is taken, or cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        _clear(path)
        listener.bind(str(path))
        path.chmod(mode)
    except OSError as error:
        listener.close()
        raise CannotListen(f"the socket {path} cannot be made: {error.strerror}") from error
    except CannotListen:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def is_listened_on(path: Path) -> bool:
    """Whether a process accepts connections on a socket's file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # its queue is full
            return True
        return True


def _clear(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise CannotListen(f"the socket {path} cannot be made: another file has the name")
    if is_listened_on(path):
        raise CannotListen(f"the socket {path} cannot be made: another server listens on it")
    path.unlink()
