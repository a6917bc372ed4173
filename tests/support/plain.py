"""HTTP with next to nothing around it, for tests that send very many requests from threads."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

_BOUNDARY = "statehold-test-boundary"


class Reply:
    """An answer that has come whole."""

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        """The problem's code, or nothing."""
        return str(self.json()["code"]) if self.status >= 400 else ""


class Caller:
    """A caller of a server. Every `turns` requests it connects anew, so that any worker may answer."""

    def __init__(self, port: int, turns: int = 1) -> None:
        self._port = port
        self._turns = turns
        self._left = 0
        self._connection: HTTPConnection | None = None

    def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """Send JSON, or bytes as they are."""
        if self._connection is None or self._left == 0:
            self.close()
            self._connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
            self._left = self._turns
        self._left -= 1
        kind = "application/octet-stream"
        if body is not None and not isinstance(body, bytes):
            body, kind = json.dumps(body).encode(), "application/json"
        sent = {"Content-Type": kind} if body is not None else {}
        self._connection.request(method, path, body, {**sent, **(headers or {})})
        answer = self._connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read())

    def record(self, meta: dict[str, Any], parts: dict[str, bytes]) -> Reply:
        """Record in one call."""
        body = b""
        for name, data in {"meta": json.dumps(meta).encode(), **parts}.items():
            body += (
                f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name={name!r}\r\n\r\n".replace(
                    "'", '"'
                ).encode()
                + data
                + b"\r\n"
            )
        body += f"--{_BOUNDARY}--\r\n".encode()
        kind = f"multipart/form-data; boundary={_BOUNDARY}"
        return self("POST", "/v1/states", body, {"Content-Type": kind})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
