"""A store with many small states, written through the store's own steps in large batches."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from app.engine.identity import token_digest
from app.engine.manifest import seal
from migrations import upgrade
from storage.blocks.codec import encode, footprint_bytes
from storage.clock import boot_ms
from storage.layout import DataFolder
from storage.metadata import ownership, recordings, states
from storage.rows import Arrival, Limits, NewComponent, NewRecording
from storage.store import Store

NAMESPACES = 100
_TURNS = 5
_LIMITS = Limits(budget_bytes=1 << 50, max_entries=1 << 40)


def tokens_of(conversation: int, count: int) -> bytes:
    """The first `count` tokens of a conversation, int32 little-endian; all share a system prompt."""
    common = np.random.default_rng(0).integers(1, 32_000, 100, dtype=np.int32)
    own = np.random.default_rng(conversation + 1).integers(1, 32_000, count, dtype=np.int32)
    return np.concatenate([common, own])[:count].tobytes()


def namespace_of(conversation: int) -> str:
    """Conversations are spread evenly."""
    return f"model-{conversation % NAMESPACES}"


def conversations(states_wanted: int) -> Iterator[tuple[int, list[int]]]:
    """Conversations with the token counts at which they are recorded."""
    for conversation in range(states_wanted // _TURNS):
        yield conversation, [200 + 300 * turn for turn in range(_TURNS)]


def fill(folder: DataFolder, wanted: int) -> None:
    """Put `wanted` states of 1,000 bytes into a new data folder."""
    folder.prepare()
    upgrade(folder.database)
    store = Store(folder)
    batch: list[NewRecording] = []
    for conversation, counts in conversations(wanted):
        for count in counts:
            tokens = tokens_of(conversation, count)
            name = namespace_of(conversation)
            batch.append(
                NewRecording(
                    state_id=str(uuid.UUID(int=len(batch) + conversation * 1000 + (1 << 100))),
                    namespace=name,
                    page_id=f"{conversation}-{count}",
                    kind="full_state",
                    tokens=tokens,
                    token_digest=token_digest(name, tokens),
                    components=(NewComponent("full", 1000),),
                    kv_descriptor=None,
                    overhead_bytes=2048,
                    replace=False,
                    ttl_ms=600_000,
                )
            )
        if len(batch) >= 2000:
            _write(store, batch)
            batch = []
    if batch:
        _write(store, batch)
    store.note_commit()
    store.close()


def _write(store: Store, batch: list[NewRecording]) -> None:
    blocks = [
        encode(np.random.default_rng(hash(new.page_id) & 0xFFFF_FFFF).bytes(1000), generation=0)
        for new in batch
    ]
    store.blocks.put(blocks, 0)
    store.barrier()
    with store.db.write(durable=True) as connection:
        for new, block in zip(batch, blocks, strict=True):
            namespace = recordings.admit(connection, new, store.instance.name, boot_ms())
            recording = recordings.find(connection, new.state_id)
            assert recording is not None
            row = recording.state.id
            ownership.own(
                connection,
                state=row,
                namespace_id=namespace,
                ordinal=0,
                seqs=[0],
                blocks=[(block.digest, 1000, footprint_bytes(len(block.value)))],
                limits=_LIMITS,
            )
            states.finish_component(connection, recording.state, 0, Arrival(block.digest))
            recording = recordings.find(connection, new.state_id)
            assert recording is not None
            digest = seal(recording.state, recording.components, states.blocks(connection, row))
            states.publish(connection, recording, digest, _LIMITS, boot_ms())
            recordings.finish(connection, row)


def size_of(folder: Path) -> int:
    """Bytes of the metadata database."""
    return (folder / "metadata.db").stat().st_size
