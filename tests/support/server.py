"""A real server process on a data folder.

A server takes over a second to import what it needs, so servers of one worker are forked from a
process that has imported it already and has opened nothing; those of several workers are started from the
command line.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import httpx

_ROOT = Path(__file__).parents[2]
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["app.main", "app.server", "migrations", "tests.support.disk.oracle", "tests.support.preloaded"]
)


# Ports of this test process: below those that the kernel gives to clients (from 32,768 on Linux), and apart
# from those of the other processes of pytest-xdist. Each is given once a round.
_RANGE, _RANGES = 2_000, 10
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _RANGES
_ports = itertools.count(random.SystemRandom().randrange(_RANGE))


def free_port() -> int:
    """A port that nobody listens on, and that no other test is given meanwhile.

    One that the kernel chose for a moment could be chosen again before the server binds it, and the test would
    then ask the server of another test.
    """
    for number in itertools.islice(_ports, _RANGE):
        port = 12_000 + _WORKER * _RANGE + number % _RANGE
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


class Server:
    """`statehold serve` with settings; its log is kept beside the data folder."""

    def __init__(
        self,
        data: Path,
        *,
        failpoint: str | None = None,
        warm: bool = True,
        environment: Mapping[str, str] | None = None,
        module: str = "app",
        sabotage: Callable[[], None] | None = None,
        **settings: object,
    ) -> None:
        """
        Args:
            environment: more variables of the process, which is started from the command line then.
            module: what is run instead of the product: a product with a fault put in.
            sabotage: a function of a module that puts a fault into a forked server before it serves.
        """
        self.data = data
        self._sabotage = sabotage
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
        self._environment = dict(environment or {})
        self._module = module
        self._warm = (
            warm
            and not environment
            and module == "app"
            and int(str(settings.get("workers", 1))) == 1
        )
        self._process: _Process | None = None

    def launch(self) -> None:
        """Start without waiting for it to answer."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")}
        environment |= {
            f"STATEHOLD_{name.upper()}": str(value) for name, value in self._settings.items()
        }
        environment |= self._environment
        if self._failpoint is not None:
            environment["STATEHOLD_FAILPOINT"] = self._failpoint
        if self._warm:
            self._process = _Forked(environment, self.log, self._sabotage)
        else:
            assert self._sabotage is None, "only a forked server can be broken so"
            self._process = _Commanded(environment, self.log, self._module)

    def start(self, wait_s: float = 30) -> None:
        """Start and wait until it can serve."""
        self.launch()
        deadline = time.monotonic() + wait_s
        with self._asking() as client:
            while time.monotonic() < deadline:
                if self.exited:
                    raise RuntimeError(f"the server ended at its start:\n{self.logged()}")
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.url}/readyz").status_code == 200:
                        return
                time.sleep(0.02)
        raise RuntimeError(f"the server did not get ready:\n{self.logged()}")

    def _asking(self) -> httpx.Client:
        """Without the certificates of all authorities, which cost 20 ms to load."""
        socket_path = self._settings.get("socket")
        uds = str(socket_path) if socket_path else None
        return httpx.Client(transport=httpx.HTTPTransport(uds=uds, verify=False), timeout=2)

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

    def __init__(self, environment: dict[str, str], log: Path, module: str) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, "serve"],
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

    def __init__(
        self, environment: dict[str, str], log: Path, sabotage: Callable[[], None] | None
    ) -> None:
        self._process = _forks.Process(target=_serve, args=(environment, str(log), sabotage))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def code(self, timeout_s: float) -> int | None:
        self._process.join(timeout_s)
        return self._process.exitcode


def _serve(environment: dict[str, str], log: str, sabotage: Callable[[], None] | None) -> None:
    from app.cli import main
    from storage.failpoints import arm

    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    arm(environment.get("STATEHOLD_FAILPOINT", ""))
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if sabotage is not None:
        sabotage()
    raise SystemExit(main(["serve"]))
