"""The interface of a block store: content-addressed values, committed in batches, read as verified copies."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.blocks.codec import Buffer, EncodedBlock


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block as a manifest names it: key (BLAKE3-256 of the raw bytes) and raw length."""

    digest: bytes
    raw_bytes: int


class Held(enum.Enum):
    """What lies under a key."""

    ABSENT = "absent"
    INTACT = "intact"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Figures of a store: values, pages in use and file sizes in bytes."""

    blocks: int
    used_bytes: int
    file_bytes: int


class BlockStore(Protocol):
    """What the rest of storage asks of a block store. Thread-safe."""

    def put(self, blocks: Sequence[EncodedBlock], acked_commit: int) -> None:
        """Write or overwrite; durable only after `barrier`.

        Raises:
            DiskFull: not all were written (those that were are owned already, and writing them
                again is in order); the store goes on.
            WriterFailed: a write failed; nothing may be written any more.
        """

    def held(self, refs: Sequence[BlockRef]) -> list[Held]:
        """What lies under each key, by checksum, in place: nothing is copied or decoded."""

    def stored_bytes(self, refs: Sequence[BlockRef]) -> list[int | None]:
        """Length of the value under each key, None where there is none or it is damaged."""

    def read(self, refs: Sequence[BlockRef]) -> list[Buffer]:
        """Verified copies, in order, in memory of their own.

        Raises:
            BlockMissing, BlockDamaged: for the first that cannot be given back as recorded.
        """

    def delete(self, digests: Sequence[bytes], acked_commit: int) -> None:
        """Remove values; absent ones are in order. Raises as `put`."""

    def barrier(self) -> None:
        """Make every commit so far durable, whichever process made it.

        Raises:
            WriterFailed: the sync failed; what is on the device is unknown.
        """

    def digests(self, after: bytes | None, limit: int) -> list[bytes]:
        """Keys behind `after`, in order of the key.

        Raises:
            StoreUnusable: nobody can tell which keys there are.
        """

    def acked_commit(self) -> int:
        """The highest SQL commit that any process has told of."""

    def note_commit(self, acked_commit: int) -> None:
        """Tell of an SQL commit that has been acknowledged. Raises as `put`."""

    def stats(self) -> BlockStats:
        """Figures."""

    def reader_check(self) -> int:
        """Clear reader slots of dead processes; returns how many."""

    def close(self) -> None:
        """Let go of the files."""
