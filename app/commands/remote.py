"""The way to a running server: one request at a time over TCP, TLS or a unix socket.

The server's answer is JSON, or a problem that becomes an exception; whoever is there and speaks neither is no
Statehold server. Redirects are not followed and no proxy of the environment is used, so that a token goes
only where it was meant to. Every wait has an end. Knows nothing of what is asked.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import re
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from app import VERSION
from app.commands.errors import Refused, Unreachable, WrongUse
from app.commands.showing import say
from app.settings import Settings

URL_VARIABLE: Final = "STATEHOLD_URL"
TOKEN_VARIABLE: Final = "STATEHOLD_TOKEN"

_ANSWER_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10.0
_MOST_TOKEN_BYTES: Final = 4096
_MOST_ANSWER_BYTES: Final = 256 << 20
_READ_BYTES: Final = 1 << 20
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
# What a gateway says when nobody is behind it.
_NOBODY: Final = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is. `host` is the socket's path for `unix`; `base` is in front of every path."""

    scheme: Literal["http", "https", "unix"]
    host: str
    port: int = 0
    base: str = ""

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.base}"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe how a server is found."""
    group = parser.add_argument_group(
        "the server", "by default the one that these settings would start"
    )
    group.add_argument(
        "--url",
        help=f"http://HOST:PORT, https://HOST or unix:/PATH; else {URL_VARIABLE}, else the settings",
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help=f"file that holds the access token; else {TOKEN_VARIABLE}",
    )
    group.add_argument("--token", action=_NoToken, help=argparse.SUPPRESS)
    group.add_argument(
        "--ca-file",
        metavar="FILE",
        type=Path,
        help="PEM file of the authorities to trust for https, in place of the system's",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        help="how long to wait for an answer; each command has its own",
    )


def connect(settings: Settings, options: argparse.Namespace) -> Remote:
    """The server that the options, the environment or the settings name; nothing is sent yet.

    Raises:
        WrongUse: a name or a file that cannot be used.
    """
    where = place(settings, options.url)
    context = None
    if where.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=options.ca_file)
        except OSError as error:  # ssl.SSLError too
            raise WrongUse(f"--ca-file {options.ca_file}: {_why(error)}") from error
    elif options.ca_file is not None:
        raise WrongUse(f"--ca-file is for https, and the server is {where}")
    return Remote(where, token(options.token_file), context, options.timeout)


def place(settings: Settings, url: str | None) -> Place:
    """Where the server is: an option before the environment before the settings.

    Raises:
        WrongUse: it is no URL of a server, or nothing names one.
    """
    if url is not None:
        return _parsed(url, "--url")
    if named := os.environ.get(URL_VARIABLE):
        return _parsed(named, URL_VARIABLE)
    if settings.socket is not None:
        return Place("unix", str(settings.socket))
    if settings.port == 0:
        raise WrongUse("the settings let the server take any free port: name it with --url")
    return Place("http", _reachable(settings.host), settings.port)


def token(path: Path | None) -> str | None:
    """The access token of a file, or else of the environment.

    Raises:
        WrongUse: the file cannot be read, or what is there is no token; it is never shown.
    """
    if path is None:
        text, where = os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not text:
            return None
    else:
        text, where = _content(path), f"--token-file {path}"
    text = text.strip()
    if not _TOKEN.fullmatch(text):
        raise WrongUse(f"{where} holds no token")
    return text


class Remote:
    """A server. Each request has a connection of its own."""

    def __init__(
        self,
        where: Place,
        token: str | None = None,
        context: ssl.SSLContext | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """
        Args:
            timeout_s: how long to wait for each answer, whatever the command would wait.
        """
        self.where = where
        self._token = token
        self._context = context
        self._timeout_s = timeout_s

    @property
    def has_token(self) -> bool:
        """Whether requests carry one."""
        return self._token is not None

    def get(
        self,
        path: str,
        shape: type[BaseModel],
        query: Mapping[str, Any] | None = None,
        *,
        also: int | None = None,
    ) -> dict[str, Any]:
        """What a GET answers; of `query` only what is not None. Raises as `call`."""
        return self.call("GET", path, shape, query=query, also=also)

    def call(
        self,
        method: str,
        path: str,
        shape: type[BaseModel] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        wait_s: float = _ANSWER_SECONDS,
        also: int | None = None,
    ) -> dict[str, Any]:
        """The JSON of an answer; empty where none is wanted.

        Args:
            shape: what the answer must be; what it has besides, as that of a newer server may, is kept.
            body: is sent as JSON.
            wait_s: how long the answer may take, all together.
            also: a status besides those of success whose JSON is wanted, if it is no problem.

        Raises:
            Refused: the server said no.
            Unreachable: no answer, or none that a Statehold server of this version gives.
        """
        with self._asked(method, _target(path, query), body, wait_s) as (response, deadline):
            content = b"".join(self._pieces(response, deadline, _MOST_ANSWER_BYTES))
        found = _json(content)
        wanted = response.status == also and found is not None and "code" not in found
        if response.status >= 300 and not wanted:
            self._refuse(response, content)
        if shape is None and not content:
            return {}
        if found is None:
            raise Unreachable(f"what answers at {self.where} is no Statehold server")
        if shape is not None:
            self._compare(shape, content)
        return found

    def download(
        self, path: str, write: Callable[[bytes], object], *, wait_s: float = 86_400
    ) -> dict[str, str]:
        """The bytes of an answer in pieces; returns its headers, names in lower case. Raises as `call`.

        Args:
            write: must not raise OSError, which would be taken for the server's.
        """
        with self._asked("GET", _target(path, None), None, wait_s) as (response, deadline):
            pieces = self._pieces(response, deadline, _MOST_ANSWER_BYTES)
            if response.status >= 300:
                self._refuse(response, b"".join(pieces))
            for piece in self._pieces(response, deadline, None):
                write(piece)
        return {name.lower(): value for name, value in response.getheaders()}

    @contextmanager
    def _asked(
        self, method: str, target: str, body: Any, wait_s: float
    ) -> Iterator[tuple[http.client.HTTPResponse, float]]:
        """The answer to a request, before its body is read, and the moment when all must be over."""
        patience = self._timeout_s or wait_s
        deadline = time.monotonic() + patience
        headers = {"Accept": "application/json", "User-Agent": f"statehold/{VERSION}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection(min(patience, _CONNECT_SECONDS))
        try:
            connection.connect()
            connection.sock.settimeout(patience)
            connection.request(method, self.where.base + target, content, headers)
            yield connection.getresponse(), deadline
        except TimeoutError as error:
            raise self._late(patience) from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # a name of no host too
            raise Unreachable(f"{self.where} cannot be reached: {_why(error)}") from error
        finally:
            connection.close()

    def _connection(self, connect_s: float) -> http.client.HTTPConnection:
        host, port = self.where.host, self.where.port
        if self.where.scheme == "unix":
            return _SocketConnection(host, connect_s)
        if self.where.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=connect_s, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=connect_s)

    def _pieces(
        self, response: http.client.HTTPResponse, deadline: float, most: int | None
    ) -> Iterator[bytes]:
        """The body, whole. A `length` that is left over was promised and has not come."""
        size = 0
        while piece := response.read1(_READ_BYTES):
            size += len(piece)
            if most is not None and size > most:
                raise Unreachable(f"the answer of {self.where} has no end")
            if time.monotonic() > deadline:
                raise Unreachable(f"{self.where} did not answer in time")
            yield piece
        if response.length:
            raise Unreachable(f"the answer of {self.where} broke off")

    def _compare(self, shape: type[BaseModel], content: bytes) -> None:
        try:
            shape.model_validate_json(content, extra="ignore")
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
            raise Unreachable(
                f"what answers at {self.where} does not say what a Statehold server {VERSION} would "
                f"({where or 'the whole answer'})"
            ) from error

    def _refuse(self, response: http.client.HTTPResponse, content: bytes) -> NoReturn:
        """Raise what the answer says."""
        status = response.status
        problem = _json(content)
        if problem is not None and isinstance(problem.get("code"), str):
            detail = problem.get("detail") or problem.get("title") or "refused"
            raise Refused(status, problem["code"], str(detail))
        if status in _NOBODY:
            raise Unreachable(f"what answers at {self.where} has no server behind it ({status})")
        said = http.client.responses.get(status, "?")
        raise Refused(status, f"http_{status}", f"{self.where} answers {said}")

    def _late(self, patience: float) -> Unreachable:
        return Unreachable(
            f"{self.where} did not answer within {patience:g} s; what was asked for may still be done"
        )


class _NoToken(argparse.Action):
    """Refuses a token where every user of the machine can read it, without showing it once more."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        parser.error(
            f"others can read the command line: give a token as --token-file or {TOKEN_VARIABLE}"
        )


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


def _parsed(url: str, said_by: str) -> Place:
    """A server's URL; what else may stand in one is refused and, as it may be a secret, not shown."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise WrongUse(f"{said_by}: a socket is named as unix:/PATH")
        return Place("unix", path)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WrongUse(f"{said_by} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise WrongUse(
            f"{said_by} is no URL of a server: http://HOST:PORT, https://HOST or unix:/PATH"
        )
    if parts.username is not None or parts.query or parts.fragment or not url.isprintable():
        raise WrongUse(f"{said_by}: a server's URL has a host, a port and a path, and nothing else")
    secure = parts.scheme == "https"
    default = 443 if secure else 80
    base = quote(parts.path.rstrip("/"), safe="/%")
    return Place("https" if secure else "http", host, default if port is None else port, base)


def _reachable(host: str) -> str:
    """An address to connect to for one that a server listens on."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MOST_TOKEN_BYTES + 1)
    except OSError as error:
        raise WrongUse(f"--token-file {path}: {_why(error)}") from error
    if stat.S_ISREG(mode) and mode & 0o077:
        say(f"warning: others can read the token file {path}: chmod 600 it")
    if len(content) > _MOST_TOKEN_BYTES:
        raise WrongUse(f"--token-file {path} holds no token")
    return content.decode("latin-1")


def _target(path: str, query: Mapping[str, Any] | None) -> str:
    given = {k: _text(v) for k, v in (query or {}).items() if v is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(content: bytes) -> dict[str, Any] | None:
    """An object, or None."""
    with suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, dict):
            return found
    return None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer broke off"
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return "what answers there does not speak HTTP"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and 0 < seconds <= 86_400):
        raise argparse.ArgumentTypeError("more than 0 and at most 86400 seconds")
    return seconds
