"""The service inside this process, asked as its HTTP server asks it; and processes that may die of it.

A server start for each of ten thousand damages would take hours. So the app is built and asked here, in a
forked child, by everything that `statehold serve` does but uvicorn.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.main import build
from app.server import made_ready
from app.settings import Settings
from tests.support.client import prefix


@dataclass(frozen=True)
class Answer:
    """`whole` is False where it was broken off before the announced length."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool

    @property
    def code(self) -> str:
        """The problem's code, "" without one."""
        if "problem+json" not in self.headers.get("content-type", ""):
            return ""
        return str(json.loads(self.body)["code"])


class Service:
    """The app on a data folder."""

    def __init__(self, data: Path) -> None:
        self._settings = Settings(
            data_dir=data, free_disk_reserve_bytes=64 << 20, log_level="error"
        )
        self._loop = asyncio.new_event_loop()
        self._app: Any = None
        self._life: AbstractAsyncContextManager[Any] | None = None

    def start(self) -> None:
        """Raises: StoreUnusable."""
        with made_ready(self._settings):
            self._app = build(self._settings)
            self._life = self._app.router.lifespan_context(self._app)
            self._loop.run_until_complete(self._life.__aenter__())

    def stop(self) -> None:
        assert self._life is not None
        self._loop.run_until_complete(self._life.__aexit__(None, None, None))

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        kind = b"application/octet-stream" if isinstance(body, bytes) else b"application/json"
        return self._loop.run_until_complete(self._ask(method, path, raw, kind))

    async def _ask(self, method: str, path: str, body: bytes, kind: bytes) -> Answer:
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (b"content-type", kind),
                (b"content-length", str(len(body)).encode()),
                (b"prefer", b"wait=30"),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 1),
        }
        waiting = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(
                {**message, "body": bytes(message["body"])} if "body" in message else message
            )

        try:
            await self._app(scope, receive, send)
        except Exception:
            traceback.print_exc()
            if not sent:
                return Answer(500, {}, b"", False)
        headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        whole = len(sent) > 1 and not sent[-1].get("more_body", False)
        return Answer(
            sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:]), whole
        )

    def restore(self, namespace: str, tokens: Sequence[int]) -> Answer:
        return self.ask("POST", "/v1/restore", {"candidates": [prefix(namespace, tokens)]})

    def record(
        self,
        namespace: str,
        tokens: Sequence[int],
        kind: str,
        components: Mapping[str, bytes],
        **more: Any,
    ) -> str:
        """The whole way; the state id. Raises ValueError where it is refused on the way."""
        sizes = [{"name": name, "bytes": len(data)} for name, data in components.items()]
        body = {**prefix(namespace, tokens), "kind": kind, "components": sizes, **more}
        steps = [self.ask("POST", "/v1/records", body)]
        if steps[-1].status == 201:
            state_id: str = json.loads(steps[-1].body)["state_id"]
            for name, data in components.items():
                steps.append(self.ask("PUT", f"/v1/records/{state_id}/components/{name}", data))
            steps.append(self.ask("POST", f"/v1/records/{state_id}/commit"))
        if steps[-1].status != 200:
            raise Refused(steps[-1])
        return state_id


class Refused(Exception):
    """A recording was refused; `answer` says how."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.body[:300]!r}")
        self.answer = answer


@dataclass(frozen=True)
class Death:
    """A child that did not end by itself: the signal, or None where it had to be ended."""

    signal: int | None
    said: str


def forked(work: Callable[[], Any], limit_s: float) -> Any:
    """What `work` gives in a child process, or a `Death`."""
    reading, writing = os.pipe()
    noted = os.memfd_create("said")
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # pytest's; the service sets up its own
        os.close(reading)
        os.dup2(noted, 1)
        os.dup2(noted, 2)
        try:
            found = work()
        except BaseException:
            found = traceback.format_exc()
        sys.stdout.flush()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(found))
        os._exit(0)
    os.close(writing)
    parts = b""
    in_time = True
    while in_time:
        in_time = bool(select.select([reading], [], [], limit_s)[0])
        if not in_time or not (part := os.read(reading, 1 << 20)):
            break
        parts += part
    os.close(reading)
    if not in_time:
        os.kill(child, signal.SIGABRT)
    _, status = os.waitpid(child, 0)
    said = os.pread(noted, 20_000, 0).decode(errors="replace")
    os.close(noted)
    if not in_time:
        return Death(None, said)
    if os.WIFSIGNALED(status):
        return Death(os.WTERMSIG(status), said)
    return pickle.loads(parts) if parts else "well"
