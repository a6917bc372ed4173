"""The shim between a server and its files (`shim.c`): built once, steered and read from here."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

_SOURCE: Final = Path(__file__).with_name("shim.c")
_FIELDS: Final = (
    "calls",
    "error",
    "skip",
    "times",
    "delay_us",
    "seen",
    "free",
    "failed",
    "ahead_ms",
)

WRITE: Final = 1
SYNC: Final = 2
READ: Final = 4
OPEN: Final = 8


@cache
def library() -> Path:
    """The compiled shim; a test that needs it is skipped where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    target = Path(tempfile.mkdtemp(prefix="statehold-shim-")) / "shim.so"
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", target, _SOURCE, "-ldl", "-lpthread"],
        check=True,
    )
    return target


class Shim:
    """The shim for one data folder."""

    def __init__(self, data: Path, *, logged: bool = False) -> None:
        self.log = data.with_name("changes.log") if logged else None
        self._control = data.with_name("control")
        self._control.write_bytes(struct.pack("<9q", 0, 0, 0, -1, 0, 0, -1, 0, 0))
        with self._control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 72)
        self.environment = {
            "LD_PRELOAD": str(library()),
            "SHIM_ROOT": str(data),
            "SHIM_CONTROL": str(self._control),
        }
        if self.log is not None:
            self.environment["SHIM_LOG"] = str(self.log)

    def fail(self, calls: int, error: int, *, skip: int = 0, times: int = -1) -> None:
        """Fail calls of these kinds from the `skip`-th on, `times` of them (-1: all)."""
        self.heal()
        self._set(error=error, skip=skip, times=times)
        self._set(calls=calls)

    def slow(self, delay_us: int) -> None:
        """Every sync takes so much longer."""
        self._set(delay_us=delay_us)

    def free(self, size: int) -> None:
        """The file system says that so many bytes are free; -1: what is true."""
        self._set(free=size)

    def jump(self, ahead_s: int) -> None:
        """The wall clock is so many seconds ahead of what it is; negative: behind."""
        self._set(ahead_ms=1000 * ahead_s)

    def heal(self) -> None:
        """Every call works again."""
        self._set(calls=0)
        self._set(skip=0, times=-1, seen=0, failed=0)

    def failed(self) -> int:
        """How many calls were failed since `fail`."""
        return self._get("failed")

    def seen(self) -> int:
        """How many calls of the kinds in question there were since `fail`."""
        return self._get("seen")

    def position(self) -> int:
        """How much has been logged: what is done by now lies before it."""
        assert self.log is not None
        return self.log.stat().st_size if self.log.exists() else 0

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            struct.pack_into("<q", self._map, 8 * _FIELDS.index(name), value)

    def _get(self, name: str) -> int:
        found: int = struct.unpack_from("<q", self._map, 8 * _FIELDS.index(name))[0]
        return found
