"""Power cuts at every point of a server's life: what the disk may hold then is rebuilt and opened.

A server runs behind a shim that logs each change of its files and each sync. For points of that log, a
folder is made of what was synced and all, none, or a random torn part of what was not
(`tests/support/disk/crash_states.py`); then it is opened as a start does. Every acknowledged record is
there with its bytes proven, what was acknowledged as gone is gone, and the integrity check finds nothing.

The method is proven too: servers with a fault put in (`tests/support/mutants.py`) must be found out.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import Client
from tests.support.disk import crash_states
from tests.support.disk.oracle import Holding, tell
from tests.support.disk.shim import Shim
from tests.support.disk.workload import History, Workload
from tests.support.mutants import MUTANTS
from tests.support.server import Server

_RAM: Final = Path("/dev/shm")
_PATIENCE_SECONDS: Final = 60
_Opened = tuple[str, int, Holding | str]
_forks = multiprocessing.get_context("forkserver")


def _lived(
    data: Path, *, seed: int, rounds: int, mutant: str | None = None
) -> tuple[Path, dict[str, History]]:
    """A server's life behind the shim; its log, and what its client was told. It ends by SIGKILL."""
    shim = Shim(data, logged=True)
    environment = {**shim.environment, **({} if mutant is None else {"MUTANT": mutant})}
    module = "app" if mutant is None else "tests.support.mutants"
    server = Server(data, environment=environment, module=module)
    server.start()
    try:
        with Client(server.url) as client:
            workload = Workload(client, shim, seed)
            workload.run(rounds)
    finally:
        server.kill()
    assert shim.log is not None
    return shim.log, workload.states


def _cuts(
    log: Path, target: Path, chance: random.Random, share: float
) -> Iterator[tuple[Path, int]]:
    """Folders as power cuts at a share of all points leave them, each with its position in the log."""
    disk = crash_states.Disk()
    for number, change in enumerate(crash_states.read(log)):
        before = disk.unsynced()
        disk.apply(change)
        if not (before or disk.unsynced()):
            continue
        for mode in crash_states.MODES:
            if chance.random() < share:
                folder = target / f"{number}.{mode}"
                disk.write(folder, mode, chance)
                yield folder, change.end


class _Opener:
    """Opens folders, each in a process of its own, as many at once as there are cores."""

    def __init__(self) -> None:
        self._under_way: list[tuple[BaseProcess, Connection, Path, int]] = []

    def open(self, folder: Path, position: int) -> Iterator[_Opened]:
        """Begin with a folder; gives what has come of an earlier one if it had to wait for that."""
        mine, others = _forks.Pipe(duplex=False)
        process = _forks.Process(target=tell, args=(folder, others))
        process.start()
        others.close()
        self._under_way.append((process, mine, folder, position))
        if len(self._under_way) > (os.cpu_count() or 1):
            yield self._next()

    def rest(self) -> Iterator[_Opened]:
        """What comes of those still under way."""
        while self._under_way:
            yield self._next()

    def close(self) -> None:
        """Let those under way be."""
        for process, answer, _, _ in self._under_way:
            process.kill()
            process.join()
            answer.close()

    def _next(self) -> _Opened:
        process, answer, folder, position = self._under_way.pop(0)
        try:
            found: Holding | str = answer.recv() if answer.poll(_PATIENCE_SECONDS) else "it hangs"
        except EOFError:
            found = "it killed the process"
        process.kill()
        process.join()
        answer.close()
        shutil.rmtree(folder)
        return folder.name, position, found


def _faults(name: str, position: int, found: Holding | str, told: dict[str, History]) -> list[str]:
    if isinstance(found, str):
        return [f"{name}: {found}"]
    faults = [f"{name}: {finding}" for finding in found.findings]
    for state_id, history in told.items():
        expected = history.expected(position)
        if expected is True and state_id not in found.live:
            faults.append(f"{name}: {state_id} was acknowledged and is lost")
        if expected is False and state_id in found.live:
            faults.append(f"{name}: {state_id} is there and should not be")
        if state_id in found.live and found.live[state_id] != history.digests:
            faults.append(f"{name}: {state_id} has other bytes")
    stray = found.live.keys() - told.keys()
    return [*faults, *(f"{name}: {state_id} was never recorded" for state_id in stray)]


def _tried(
    tmp_path: Path,
    *,
    seed: int,
    rounds: int,
    share: float,
    mutant: str | None = None,
) -> tuple[int, list[str]]:
    """How many power cuts were tried, and what was wrong after them."""
    log, told = _lived(tmp_path / "data", seed=seed, rounds=rounds, mutant=mutant)
    chance = random.Random(seed)
    tried, faults = 0, []
    opener = _Opener()
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else tmp_path) as ram:
        opened = (
            answer
            for folder, position in _cuts(log, Path(ram), chance, share)
            for answer in opener.open(folder, position)
        )
        for name, position, found in chain(opened, opener.rest()):
            tried += 1
            faults += _faults(name, position, found, told)
            if mutant is not None and faults:
                opener.close()
                break
    return tried, faults


def test_no_power_cut_loses_or_alters_what_was_acknowledged(tmp_path: Path) -> None:
    tried, faults = _tried(tmp_path, seed=int.from_bytes(os.urandom(4)), rounds=2, share=0.04)
    assert faults == []
    assert tried > 50


@pytest.mark.soak
def test_a_hundred_thousand_power_cuts(tmp_path: Path) -> None:
    wanted = int(os.environ.get("SOAK_POWER_CUTS", "100000"))
    tried = seed = 0
    while tried < wanted:
        folder = tmp_path / str(seed)
        folder.mkdir()
        count, faults = _tried(folder, seed=seed, rounds=5, share=1)
        assert faults == [], f"seed {seed}"
        shutil.rmtree(folder)
        tried += count
        seed += 1
    print(f"{tried} power cuts in {seed} lives, nothing lost or altered")


@pytest.mark.soak
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_server_with_a_fault_is_found_out(tmp_path: Path, mutant: str) -> None:
    tried, faults = _tried(tmp_path, seed=1, rounds=5, share=1, mutant=mutant)
    print(f"{mutant}: {len(faults)} faults found in {tried} power cuts, the first: {faults[:1]}")
    assert faults
