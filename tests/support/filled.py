"""A store filled through its own steps, without a server: states of blocks that are named by numbers.

The blocks have rows and no values, which is as much as metadata and evictions look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.blocks.codec import EncodedBlock
from storage.layout import DataFolder
from storage.rows import Limits, NewComponent, NewRecording
from storage.store import Publication, Store

UNLIMITED = Limits(1 << 60, 1 << 40)


def open_store(path: Path) -> Store:
    """A new, empty store."""
    from migrations import upgrade

    folder = DataFolder(path)
    folder.prepare()
    upgrade(folder.database)
    return Store(folder)


def state_id(number: int) -> str:
    return f"01938c0d-e000-7000-8000-{number:012x}"


def block(number: int) -> EncodedBlock:
    """A block of one, two or three pages."""
    return EncodedBlock(number.to_bytes(32, "little"), 1000, 4000 * (1 + number % 3), b"")


def put(
    store: Store, number: int, namespace: str, blocks: Sequence[int], *, replace: bool = False
) -> str:
    """Record a live state; its prefix is its number."""
    token = (number % 1_000_000).to_bytes(4, "little")
    new = NewRecording(
        state_id=state_id(number),
        namespace=namespace,
        page_id="p",
        kind="full_state",
        tokens=token,
        token_digest=token * 8,
        components=(NewComponent("full", 1000 * len(blocks)),),
        kv_descriptor=None,
        overhead_bytes=100 + number % 7,
        replace=replace,
        ttl_ms=60_000,
    )
    store.admit(new, lambda _: UNLIMITED, 1000)
    recording = store.begin_component(new.state_id, "full", "1")
    store.own(
        recording.state, 0, range(len(blocks)), [block(number) for number in blocks], UNLIMITED
    )
    (refused,) = store.publish([Publication(new.state_id, lambda *_: b"\0" * 32, UNLIMITED)])
    assert refused is None
    return new.state_id
