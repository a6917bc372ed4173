"""A real server process on a data folder.

A server takes over a second to import what it needs, so servers of one worker are forked from a
process that has imported it already and has opened nothing; those with crash points or several
workers are started from the command line.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import httpx

_ROOT = Path(__file__).parents[2]
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["app.main", "app.server", "migrations"])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Server:
    """`statehold serve` with settings; its log is kept beside the data folder."""

    def __init__(
        self, data: Path, *, failpoint: str | None = None, warm: bool = True, **settings: object
    ) -> None:
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data.with_name(f"server-{self.port}.log")
        self._settings = {
            "data_dir": data,
            "port": self.port,
            "free_disk_reserve_bytes": "64MiB",
            **settings,
        }
        self._failpoint = failpoint
        self._warm = warm and failpoint is None and int(str(settings.get("workers", 1))) == 1
        self._process: _Process | None = None

    def launch(self) -> None:
        """Start without waiting for it to answer."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")}
        environment |= {
            f"STATEHOLD_{name.upper()}": str(value) for name, value in self._settings.items()
        }
        if self._failpoint is not None:
            environment["STATEHOLD_FAILPOINT"] = self._failpoint
        if self._warm:
            self._process = _Forked(environment, self.log)
        else:
            self._process = _Commanded(environment, self.log)

    def start(self, wait_s: float = 30) -> None:
        """Start and wait until it can serve."""
        self.launch()
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if self.exited:
                raise RuntimeError(f"the server ended at its start:\n{self.logged()}")
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"the server did not get ready:\n{self.logged()}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exited(self) -> bool:
        return self._process is not None and self._process.code(0) is not None

    def wait(self, timeout_s: float = 30) -> int:
        """Wait for the process to end by itself; its exit code (negative: a signal)."""
        assert self._process is not None
        code = self._process.code(timeout_s)
        assert code is not None, f"the server did not end:\n{self.logged()}"
        return code

    def kill(self) -> None:
        """SIGKILL to the process and its workers."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.code(30)

    def stop(self, timeout_s: float = 30) -> None:
        """SIGTERM, as an operator would."""
        if self._process is None or self.exited:
            return
        os.kill(self._process.pid, signal.SIGTERM)
        if self._process.code(timeout_s) is None:
            self.kill()
            raise RuntimeError(f"the server did not stop:\n{self.logged()}")

    def logged(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def worker_pids(self) -> list[int]:
        """Processes of this server that have the database open."""
        pids = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getpgid(int(path.name)) != self.pid:
                    continue
                if any("metadata.db" in str(fd.readlink()) for fd in (path / "fd").iterdir()):
                    pids.append(int(path.name))
        return pids


class _Process(Protocol):
    @property
    def pid(self) -> int: ...

    def code(self, timeout_s: float) -> int | None:
        """The exit code once it has ended, None if it has not within the time."""


class _Commanded:
    """Started from the command line."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve"],
                cwd=_ROOT,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s or 0.0001)
        except subprocess.TimeoutExpired:
            return None


class _Forked:
    """Forked from a process that has imported everything."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._process = _forks.Process(target=_serve, args=(environment, str(log)))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def code(self, timeout_s: float) -> int | None:
        self._process.join(timeout_s)
        return self._process.exitcode


def _serve(environment: dict[str, str], log: str) -> None:
    from app.cli import main

    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    raise SystemExit(main(["serve"]))
