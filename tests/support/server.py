"""A real server process on a data folder."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

_ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Server:
    """`statehold serve` with settings; its log is kept beside the data folder."""

    def __init__(self, data: Path, *, failpoint: str | None = None, **settings: object) -> None:
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
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start without waiting for it to answer."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")}
        environment |= {
            f"STATEHOLD_{name.upper()}": str(value) for name, value in self._settings.items()
        }
        if self._failpoint is not None:
            environment["STATEHOLD_FAILPOINT"] = self._failpoint
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve"],
                cwd=_ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

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
        return self._process is not None and self._process.poll() is not None

    def wait(self, timeout_s: float = 30) -> int:
        """Wait for the process to end by itself; its exit code (negative: a signal)."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL to the process and its workers."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, timeout_s: float = 30) -> None:
        """SIGTERM, as an operator would."""
        if self._process is None or self.exited:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def logged(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def worker_pids(self) -> list[int]:
        """Processes of this server that have the database open."""
        pids = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getpgid(int(path.name)) != self.pid:
                    continue
                if any("metadata.db" in os.readlink(fd) for fd in (path / "fd").iterdir()):
                    pids.append(int(path.name))
        return pids
