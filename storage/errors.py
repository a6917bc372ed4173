"""Everything that can go wrong below the engine, as one small family. A leaf: imports nothing.

StorageError
├── Busy                  the write lock was not free in time; nothing was written, try again
├── Unreadable            what should be read cannot be at this moment; nothing is known to be wrong
├── DiskFull              no room on the device; nothing was written, reads go on
├── WriterFailed          a write or sync failed in a way that must not be retried; stop writing
├── OverLimit             a byte budget or an entry cap would be exceeded; nothing was written
├── NotHeld               the row asked for is gone (evicted, expired, released)
├── Conflict              a row that must be unique is already there
├── BackupRunning         somebody is making a backup in the same folder
├── BackupExists          there is a backup of that name
├── BackupDamaged         a backup is not what was written; says what of it
├── StoreUnusable         the data folder cannot be opened as it is; says what to do
│   ├── InUse             another process has files of it open
│   ├── BackupDirUnusable the folder of backups cannot be made or written
│   ├── NoRoom            what was asked for needs more free disk than there is
│   └── StoreDamaged      a file of it is not what was written; says how to get on
└── BlockFault            a block cannot be given back as it was recorded
    ├── BlockMissing      a key that should be there is not: corruption, never "absent"
    └── BlockDamaged      header, checksum or digest of the stored value is wrong
"""

from __future__ import annotations


class StorageError(Exception):
    """Base of the family."""


class Busy(StorageError):
    """The SQL write lock was not free within the allowed wait."""


class Unreadable(StorageError):
    """The device or the system refuses to read at this moment; neither absence nor damage."""


class DiskFull(StorageError):
    """The device has no room for this write."""


class WriterFailed(StorageError):
    """A write or sync failed; what the kernel still holds is unknown, so no write may follow."""


class OverLimit(StorageError):
    """A limit would be exceeded.

    Attributes:
        scope: whose limit it is: a namespace's row, a tenant's name, or None for the whole store.
        unit: "bytes" (stored), "entries" (live states) or "logical_bytes" (as recorded, of live states).
        need: how much of the unit must go first.
    """

    def __init__(self, scope: int | str | None, unit: str, need: int) -> None:
        super().__init__(f"over limit by {need} {unit}")
        self.scope = scope
        self.unit = unit
        self.need = need


class NotHeld(StorageError):
    """The row asked for does not exist (any more)."""


class Conflict(StorageError):
    """A row that must be unique is already there."""


class StoreUnusable(StorageError):
    """The data folder cannot be opened; the message says what to do."""


class InUse(StoreUnusable):
    """Another process has files of the data folder open that must be nobody's; nothing was changed."""


class BackupDirUnusable(StoreUnusable):
    """The folder that backups go into cannot be made or written; the store is as it was."""


class NoRoom(StoreUnusable):
    """There is less free disk than a copy needs; nothing was changed."""


class StoreDamaged(StoreUnusable):
    """A file of the data folder is not what was written there; no answer can rest on it.

    The message names the file or the part, and both ways back (docs/operations.md).

    Attributes:
        what: the message without the ways.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what}. Stop the server; then either bring a backup back (`statehold restore BACKUP "
            "--replace`), or copy every state that still verifies into a new folder (`statehold "
            "salvage NEW_FOLDER`)"
        )


class BackupRunning(StorageError):
    """Somebody is making a backup in the same folder."""


class BackupExists(StorageError):
    """There is a backup of that name."""


class BackupDamaged(StorageError):
    """A backup is not as it was written; the message says what of it."""


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
