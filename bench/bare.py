"""What the stack can do at most: one async FastAPI route that answers a constant, same server settings."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
from fastapi import FastAPI

from tests.support.server import free_port

app = FastAPI()


@app.get("/")
async def constant() -> dict[str, bool]:
    return {"ok": True}


@contextlib.contextmanager
def served() -> Iterator[int]:
    """Serve it in a process of its own; gives the port."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", "bench.bare:app", "--port", str(port)),
            *("--loop", "uvloop", "--http", "httptools", "--no-access-log"),
            *("--log-level", "error", "--no-proxy-headers", "--no-server-header"),
        ]
    )
    try:
        for _ in range(200):
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/", timeout=1)
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()
