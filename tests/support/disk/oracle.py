"""Opens a folder as a start does, and says what it holds: every byte proven, every reference checked."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from app.engine.manifest import load
from migrations import upgrade
from storage.integrity import check
from storage.layout import DataFolder
from storage.recovery import recover
from storage.store import Store


@dataclass(frozen=True)
class Holding:
    """What came out of a folder: digests of components by state id, and what is wrong."""

    live: dict[str, dict[str, bytes]]
    quarantined: set[str]
    findings: list[str]


def inspect(data: Path) -> Holding:
    """Recover a folder and prove it. Raises what a start would fail with."""
    folder = DataFolder(data)
    folder.prepare()
    with folder.starting():
        upgrade(folder.database)
        store = Store(folder)
        recover(store)
    try:
        while store.expire_recordings():
            pass
        after = None
        while (after := store.sweep(after)) is not None:
            pass
        while store.reclaim():
            pass
        live: dict[str, dict[str, bytes]] = {}
        for state, _ in store.catalog.states(limit=10_000, status="live"):
            manifest = load(state, *store.catalog.contents(state.id))
            for part in manifest.parts:
                store.blocks.read(part.blocks)  # raises for a block that is not its digest's
            live[state.state_id] = {part.name: part.digest for part in manifest.parts}
        out = {s.state_id for s, _ in store.catalog.states(limit=10_000, status="quarantined")}
    finally:
        store.close()
    return Holding(live, out, check(data))


def tell(data: Path, answer: Connection) -> None:
    """`inspect` for a process of its own; sends a sentence where that fails."""
    found: Holding | str
    try:
        found = inspect(data)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    answer.send(found)
