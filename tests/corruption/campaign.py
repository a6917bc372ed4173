"""Many damages, one folder after another, on all cores; what came out is counted."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from app.logs import configure
from app.settings import Settings
from tests.corruption.oracle import tried
from tests.corruption.places import Chooser, Damage
from tests.corruption.world import World


@dataclass(frozen=True)
class Share:
    """`folders` folders, each with `each` places of one kind: (what is done, to which store)."""

    how: str
    store: str
    folders: int
    each: int


@dataclass
class Result:
    """Places by what was done, folders by what was done and what came out, and what was wrong."""

    places: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.places += other.places
        self.outcomes += other.outcomes
        self.answers += other.answers
        self.wrong += other.wrong

    def table(self) -> str:
        lines = [f"{sum(self.places.values())} places, {sum(self.outcomes.values())} folders"]
        lines += [f"  {how} {store}: {n} places" for (how, store), n in sorted(self.places.items())]
        lines += [f"  {how} -> {came}: {n}" for (how, came), n in sorted(self.outcomes.items())]
        lines += [f"  {answer}: {n}" for answer, n in sorted(self.answers.items())]
        return "\n".join(lines)


def campaign(shares: list[Share], into: Path, seed: int, processes: int) -> Result:
    """Try all of them."""
    into.mkdir(parents=True, exist_ok=True)
    world = World(into / "world")
    tries = [
        (share, seed * 1_000_000 + number)
        for number, share in enumerate(share for share in shares for _ in range(share.folders))
    ]
    random.Random(seed).shuffle(tries)
    result = Result()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        parts = [
            pool.submit(_several, world, tries[at : at + 8], into) for at in range(0, len(tries), 8)
        ]
        for number, part in enumerate(parts, 1):
            result.add(part.result())
            if number % 20 == 0:
                print(f"{number} of {len(parts)} parts, {len(result.wrong)} wrong", flush=True)
                print(result.table(), *result.wrong, sep="\n", flush=True)
    return result


def _several(world: World, tries: list[tuple[Share, int]], into: Path) -> Result:
    configure(Settings(log_level="error"))
    result = Result()
    folder = into / f"folder-{os.getpid()}"
    for share, seed in tries:
        chance = random.Random(seed)
        base = chance.choice((world.clean, world.killed))
        damages = _chosen(share, Chooser(base, chance), world)
        verdict = tried(world, base, damages, folder, seed)
        result.places[share.how, share.store] += len(damages)
        result.outcomes[f"{share.how} {share.store}", verdict.outcome] += 1
        result.answers += verdict.answers
        result.wrong += [f"seed {seed} {base.name} {damages}: {said}" for said in verdict.wrong]
    shutil.rmtree(folder, ignore_errors=True)
    return result


def _chosen(share: Share, chooser: Chooser, world: World) -> list[Damage]:
    ways: dict[str, Callable[[], Damage]] = {
        "flip": lambda: chooser.flip(share.store),
        "zero": lambda: chooser.zero(share.store),
        "truncate": chooser.truncate,
        "swap": chooser.swap,
        "stale": lambda: chooser.stale(world.older),
    }
    make = ways[share.how]
    return [make() for _ in range(share.each)]
