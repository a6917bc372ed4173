"""Is every live state of a folder that nobody serves what was recorded? For `verify` and `restore`.

The integrity check of the metadata, the sealed manifest of every live state, and every block that a live
state owns, read and decoded in a child process (`storage/blocks/prober.py` says why there). A quarantined
state is evidence: that it is damaged is no finding.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.engine.manifest import ManifestMismatch, load
from storage.blocks.prober import MOST_AT_ONCE, Prober
from storage.blocks.store import BlockRef, Held
from storage.catalog import Catalog
from storage.integrity import check_metadata
from storage.layout import DataFolder
from storage.metadata.database import Database


def findings(data_dir: Path, progress: Callable[[int, int], None]) -> list[str]:
    """What is not as it should be, each a sentence; empty when all is well.

    Args:
        progress: called with (done, total) stored bytes.

    Raises:
        StoreUnusable: a file cannot be opened at all.

    Cost: every row and every block once.
    """
    folder = DataFolder(data_dir)
    with folder.starting():
        database = Database(folder.database)
    try:
        found = check_metadata(database)
        if any(finding.startswith("sqlite:") for finding in found):
            return found  # what its rows say cannot be relied on
        catalog = Catalog(database)
        return [*found, *_manifests(catalog), *_blocks(catalog, folder, progress)]
    finally:
        database.close()


def _manifests(catalog: Catalog) -> list[str]:
    found = []
    after: str | None = None
    while page := catalog.states(limit=256, after=after, status="live"):
        for state, _ in page:
            try:
                load(state, *catalog.contents(state.id))
            except ManifestMismatch as error:
                found.append(f"state {state.state_id}: {error}")
        after = page[-1][0].state_id
    return found


def _blocks(
    catalog: Catalog, folder: DataFolder, progress: Callable[[int, int], None]
) -> list[str]:
    found = []
    total = catalog.held_bytes()
    prober = Prober(folder.blocks)
    after = done = 0
    try:
        while page := catalog.owned_after(after, MOST_AT_ONCE):
            refs = [BlockRef(row.digest, row.raw_bytes) for row in page if row.live]
            for ref, proof in zip(refs, prober.prove(refs) if refs else [], strict=True):
                if proof.held is not Held.INTACT:
                    states = [row.state_id for row, _, _ in catalog.live_owners(ref.digest)]
                    found.append(
                        f"block {ref.digest.hex()}: {proof.reason} "
                        f"({len(states)} states, the first {states[0]})"
                    )
            done += sum(row.stored_bytes for row in page)
            after = page[-1].id
            progress(done, total)
    finally:
        prober.close()
    return found
