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
class StoredForm:
    """Codec and length of a stored value, header included."""

    codec: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Figures of a store: values, pages in use and file sizes in bytes."""

    blocks: int
    used_bytes: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class EnvironmentStats:
    """Figures of one of a store's environments, all of them kept by it: nothing is scanned.

    `used_bytes` is pages that hold values and the trees above them; of `file_bytes` the rest is free and
    used again. `reader_slots` have been taken at once at most; there are `most_reader_slots`.
    """

    name: str
    values: int
    used_bytes: int
    file_bytes: int
    map_bytes: int
    reader_slots: int
    most_reader_slots: int


class BlockStore(Protocol):
    """What the rest of storage asks of a block store. Thread-safe.

    Whatever reads raises `Unreadable` where the store cannot be read at this moment.
    """

    def put(self, blocks: Sequence[EncodedBlock], acked_commit: int) -> None:
        """Write or overwrite; durable only after `barrier`.

        Raises:
            DiskFull: not all were written (those that were are owned already, and writing them
                again is in order); the store goes on.
            WriterFailed: a write failed; nothing may be written any more.
        """

    def held(self, refs: Sequence[BlockRef]) -> list[Held]:
        """What lies under each key, by checksum, in place: nothing is copied or decoded."""

    def forms(self, refs: Sequence[BlockRef]) -> list[StoredForm | None]:
        """How each intact value is stored, None where there is none or it is damaged."""

    def read(self, refs: Sequence[BlockRef]) -> list[Buffer]:
        """Verified copies, in order, in memory of their own.

        Raises:
            BlockMissing, BlockDamaged: for the first that cannot be given back as recorded.
        """

    def values(self, refs: Sequence[BlockRef], room: int) -> tuple[memoryview, list[int]]:
        """Stored values as they lie, as copies that have passed `held`'s check, and their lengths.

        Args:
            room: bytes left free in front of each value.

        Raises:
            BlockMissing, BlockDamaged: for the first that is not as it was written.
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

    @property
    def failed(self) -> bool:
        """Whether an earlier write failed, so that nothing is written any more."""

    def stats(self) -> BlockStats:
        """Figures."""

    def environments(self) -> list[EnvironmentStats]:
        """Figures of each environment."""

    def reader_check(self) -> int:
        """Clear reader slots of dead processes; returns how many."""

    def close(self) -> None:
        """Let go of the files."""
