"""The machine and what is installed on it: versions, limits of a process, memory, the clock."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from app import sizes
from app.commands.checks.finding import Finding, fail, ok, warn
from app.settings import Settings

_PYTHON: Final = (3, 11)
_LMDB_BINDING: Final = (3, 0)
_LMDB_LIBRARY: Final = (0, 9)  # of the stored format: 1.0 writes another one
_ZSTANDARD: Final = (0, 25)
# Connections, spools of components on their way, and what SQLite and LMDB keep open.
_FEW_FILES: Final = 1024
_ENOUGH_FILES: Final = 4096
# What a worker holds besides its buffers; 90 MiB at rest (Python 3.11, x86-64).
_WORKER_BYTES: Final = 128 << 20
# Two LMDB environments, whose maps are address space and nothing else.
_MAPS_BYTES: Final = 2 << 40
_CGROUPS: Final = Path("/sys/fs/cgroup")
# No clock that is right is before the first release.
_EARLIEST: Final = datetime(2026, 12, 1, tzinfo=UTC)


def versions(settings: Settings | None) -> Iterator[Finding]:
    """What is installed, as it is really loaded."""
    import lmdb
    import zstandard

    from storage.metadata.database import sqlite_version

    yield python(sys.version_info[:3])
    yield sqlite(sqlite_version(), settings.workers if settings else 1)
    yield of_lmdb(lmdb.__version__, lmdb.version())
    yield of_zstandard(zstandard.__version__)


def python(version: Sequence[int]) -> Finding:
    """The interpreter."""
    said = f"Python {_dotted(version)}"
    if tuple(version[:2]) < _PYTHON:
        return fail("python", f"{said} is too old: install {_dotted(_PYTHON)} or newer")
    return ok("python", said)


def sqlite(version: tuple[int, int, int], workers: int) -> Finding:
    """SQLite 3.7.0 to 3.51.2 can corrupt a database that several connections write (the WAL-reset bug)."""
    from storage.metadata.database import safe_for_many_writers

    said = f"SQLite {_dotted(version)}"
    if safe_for_many_writers(version):
        return ok("sqlite", said)
    bug = "can corrupt a database that several connections write (fixed in 3.51.3)"
    do = "install pysqlite3 0.6.1 or newer"
    if workers > 1:
        return fail("sqlite", f"{said} {bug}: {do}, or set STATEHOLD_WORKERS=1")
    return warn("sqlite", f"{said} {bug}: {do}")


def of_lmdb(binding: str, library: Sequence[int]) -> Finding:
    """py-lmdb and the LMDB in it."""
    said = f"py-lmdb {binding} with LMDB {_dotted(library)}"
    if _numbers(binding) < _LMDB_BINDING:
        return fail("lmdb", f"{said} has bugs that damage data: install lmdb 3.0 or newer")
    if tuple(library[:2]) != _LMDB_LIBRARY:
        return fail("lmdb", f"{said} has another stored format: install a wheel with LMDB 0.9")
    return ok("lmdb", said)


def of_zstandard(version: str) -> Finding:
    """python-zstandard."""
    said = f"zstandard {version}"
    if _numbers(version) < _ZSTANDARD:
        return fail("zstandard", f"{said} is too old: install {_dotted(_ZSTANDARD)} or newer")
    return ok("zstandard", said)


def open_files(soft: int, whose: str) -> Finding:
    """The limit of file descriptors of a process.

    Args:
        whose: who has the limit, in words.
    """
    said = f"{whose} may have {soft:,} files open" if soft >= 0 else f"{whose} may open any number"
    if soft < 0 or soft >= _ENOUGH_FILES:
        return ok("open files", said)
    do = f"raise it to {_ENOUGH_FILES:,} or more (LimitNOFILE= of a systemd unit, ulimit -n)"
    if soft < _FEW_FILES:
        return fail("open files", f"{said}, which clients use up: {do}")
    return warn("open files", f"{said}, which many clients use up: {do}")


def own_open_files() -> Finding:
    """The limit of this process, which a server started like it would have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    return open_files(-1 if unlimited else soft, "a process started from here")


def open_files_of(pid: int) -> Finding | None:
    """The limit of a running process; None where nobody tells."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return None
    found = re.search(r"^Max open files\s+(\S+)", text, re.MULTILINE)
    if found is None:
        return None
    soft = -1 if found[1] == "unlimited" else int(found[1])
    return open_files(soft, f"the server (process {pid})")


def address_space(limit: int, file_limit: int, budget_bytes: int) -> Iterator[Finding]:
    """Limits of a process on its map and on a file. Both in bytes, negative for none."""
    if 0 <= limit < _MAPS_BYTES:
        yield fail(
            "address space",
            f"a process may have {sizes.about(limit)} of addresses and the block files need "
            f"{sizes.about(_MAPS_BYTES)}, which costs no memory: lift the limit (ulimit -v unlimited)",
        )
    else:
        yield ok("address space", "no limit that the maps of the block files would meet")
    if 0 <= file_limit < budget_bytes:
        yield fail(
            "file size",
            f"a file may have {sizes.about(file_limit)}, less than budget_bytes "
            f"({sizes.about(budget_bytes)}): lift the limit (ulimit -f unlimited)",
        )


def own_address_space(settings: Settings) -> Iterator[Finding]:
    """The limits of this process."""
    address, _ = resource.getrlimit(resource.RLIMIT_AS)
    file, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield from address_space(address, file, int(settings.budget_bytes))


def memory(settings: Settings, total: int | None) -> Finding:
    """What the settings allow the workers to hold, against what there is (bytes; None: unknown)."""
    each = _WORKER_BYTES + int(settings.buffer_bytes) + int(settings.restore_buffer_bytes)
    most = each * settings.workers
    said = f"the settings allow {settings.workers} workers {sizes.about(most)}"
    if settings.workers == 1:
        said = f"the settings allow the worker {sizes.about(most)}"
    if total is None:
        return ok("memory", said)
    said = f"{said} of {sizes.about(total)}"
    do = "lower buffer_bytes, restore_buffer_bytes or workers"
    if most > total:
        return fail("memory", f"{said}: {do}")
    if most > 0.8 * total:
        return warn("memory", f"{said}, and leave little for the page cache: {do}")
    return ok("memory", said)


def memory_bytes(cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> int | None:
    """Memory that this process may use: the machine's, or less where a control group says so."""
    found = []
    try:
        text = (proc / "meminfo").read_text()
        if total := re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE):
            found.append(int(total[1]) << 10)
        groups = (proc / "self" / "cgroup").read_text()
    except OSError:
        groups = ""
    limits = [cgroups / "memory" / "memory.limit_in_bytes", cgroups / "memory.max"]
    if unified := re.search(r"^0::/(.*)$", groups, re.MULTILINE):
        group = cgroups / unified[1]
        limits += [at / "memory.max" for at in (group, *group.parents) if cgroups in at.parents]
    for path in limits:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found, default=None)


def clock(now_s: float, newest_ms: int | None) -> Finding:
    """The wall clock against what the store has seen of it.

    Args:
        newest_ms: the latest time that anything in the store has; None where there is nothing.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    said = now.strftime("%Y-%m-%d %H:%M:%S UTC")
    do = "set it right (timedatectl): ages, ends of tokens and pins, and the order of eviction follow it"
    if now < _EARLIEST:
        return fail("clock", f"it is {said}, before this version was made: {do}")
    if newest_ms is not None and newest_ms / 1000 > now_s + 60:
        ahead = datetime.fromtimestamp(newest_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return fail("clock", f"it is {said} and the store holds something of {ahead}: {do}")
    return ok("clock", said)


def own_clock(newest_ms: int | None) -> Finding:
    """This machine's."""
    return clock(time.time(), newest_ms)


def system() -> Finding:
    """What the service runs on."""
    name = platform.system()
    said = f"{name} {platform.release()}, {os.cpu_count()} cores"
    if name != "Linux":
        return warn("system", f"{said}: it is made for and tested on Linux only")
    return ok("system", said)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
