"""Everything that can go wrong below the engine, as one small family. A leaf: imports nothing.

StorageError
├── Busy                  the write lock was not free in time; nothing was written, try again
├── DiskFull              no room on the device; nothing was written, reads go on
├── WriterFailed          a write or sync failed in a way that must not be retried; stop writing
├── OverLimit             a byte budget or an entry cap would be exceeded; nothing was written
├── NotHeld               the row asked for is gone (evicted, expired, released)
├── Conflict              a row that must be unique is already there
├── StoreUnusable         the data folder cannot be opened as it is; says what to do
└── BlockFault            a block cannot be given back as it was recorded
    ├── BlockMissing      a key that should be there is not: corruption, never "absent"
    └── BlockDamaged      header, checksum or digest of the stored value is wrong
"""

from __future__ import annotations


class StorageError(Exception):
    """Base of the family."""


class Busy(StorageError):
    """The SQL write lock was not free within the allowed wait."""


class DiskFull(StorageError):
    """The device has no room for this write."""


class WriterFailed(StorageError):
    """A write or sync failed; what the kernel still holds is unknown, so no write may follow."""


class OverLimit(StorageError):
    """A limit would be exceeded.

    Attributes:
        namespace_id: the namespace whose limit it is, or None for the whole store.
        need_bytes: stored bytes that must be freed first (0 if bytes are not the trouble).
        need_entries: states that must go first (0 if entries are not the trouble).
    """

    def __init__(self, namespace_id: int | None, need_bytes: int, need_entries: int) -> None:
        super().__init__(f"over limit by {need_bytes} bytes and {need_entries} entries")
        self.namespace_id = namespace_id
        self.need_bytes = need_bytes
        self.need_entries = need_entries


class NotHeld(StorageError):
    """The row asked for does not exist (any more)."""


class Conflict(StorageError):
    """A row that must be unique is already there."""


class StoreUnusable(StorageError):
    """The data folder cannot be opened; the message says what to do."""


class BlockFault(StorageError):
    """A block cannot be given back as it was recorded.

    Attributes:
        digest: the key asked for (BLAKE3-256 of the raw bytes).
        actual: digest of what was found instead, where that could be computed.
    """

    def __init__(self, reason: str, digest: bytes, actual: bytes | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.digest = digest
        self.actual = actual


class BlockMissing(BlockFault):
    """LMDB has no value under a key that a state owns."""


class BlockDamaged(BlockFault):
    """The stored value does not decode to the bytes its key names."""
