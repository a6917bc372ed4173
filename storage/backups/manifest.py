"""The manifest of a backup: which files it has, and what they must be. A folder without it is no backup.

One line of canonical JSON that holds its own BLAKE3: whatever byte of it changes, it is not read any more.
It is written after everything else is durable, and made durable itself, before the backup gets its name.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from blake3 import blake3

from storage.errors import BackupDamaged, StoreUnusable
from storage.layout import sync

MANIFEST: Final = "manifest.json"
DATABASE: Final = "metadata.db"
FILES: Final = (DATABASE, "blocks/large/data.mdb", "blocks/small/data.mdb")
_FORMAT: Final = 1
# What the fields below may be; a number counts something.
_TYPES: Final = {"str": str, "int": int}
_MOST_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file, by its name in the backup; `blake3` in hex."""

    name: str
    bytes: int
    blake3: str


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup holds. `commit` is the number of the last commit in it."""

    version: str
    schema: str
    created_at_ms: int
    states: int
    quarantined: int
    blocks: int
    commit: int
    files: tuple[FileEntry, ...]
    format: int = _FORMAT

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(file.bytes for file in self.files)


Read = TypeVar("Read", FileEntry, BackupManifest)


def write(folder: Path, manifest: BackupManifest) -> None:
    """Write it and make it durable, file and folder."""
    descriptor = os.open(
        folder / MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(_line(dataclasses.asdict(manifest)))
        file.flush()
        os.fsync(file.fileno())
    sync(folder)


def read(folder: Path) -> BackupManifest:
    """The manifest of a backup, proven.

    Raises:
        BackupDamaged: there is none, or it is not as it was written.
        StoreUnusable: it is of a newer version.
    """
    path = folder / MANIFEST
    try:
        if path.exists() and not path.is_file():
            raise BackupDamaged(f"{folder} is no backup: its {MANIFEST} is no file")
        with path.open("rb") as reading:
            content = reading.read(_MOST_BYTES)
    except OSError as error:
        raise BackupDamaged(
            f"{folder} is no backup: its {MANIFEST} cannot be read ({error.strerror})"
        ) from error
    damaged = BackupDamaged(f"{MANIFEST} of {folder} is not as it was written")
    try:
        found = json.loads(content)
        inner = found["backup"]
        if content != _line(inner):
            raise damaged
        if type(inner["format"]) is int and inner["format"] > _FORMAT:
            raise StoreUnusable(
                f"{folder} was made by a newer version (format {inner['format']}): restore it with that "
                "version"
            )
        files = tuple(_typed(FileEntry(**entry)) for entry in inner.pop("files"))
        manifest = _typed(BackupManifest(files=files, **inner))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged from error
    if manifest.format != _FORMAT:
        raise damaged
    if tuple(file.name for file in manifest.files) != FILES:
        raise damaged
    return manifest


def entry(folder: Path, name: str) -> FileEntry:
    """A file as it is now; reads all of it."""
    digest, size = blake3(), 0
    with (folder / name).open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
    return FileEntry(name, size, digest.hexdigest())


def _typed(read: Read) -> Read:
    """The same, with every text a text and every number one from 0 on.

    Raises:
        ValueError: they are not.
    """
    for field in dataclasses.fields(read):
        kind, value = _TYPES.get(str(field.type)), getattr(read, field.name)
        if kind is not None and type(value) is not kind:
            raise ValueError(f"{field.name} is no {field.type}")
        if kind is int and value < 0:
            raise ValueError(f"{field.name} is less than 0")
    return read


def _line(inner: dict[str, object]) -> bytes:
    text = json.dumps(inner, sort_keys=True, separators=(",", ":"))
    sealed = {"backup": inner, "blake3": blake3(text.encode()).hexdigest()}
    return json.dumps(sealed, sort_keys=True, separators=(",", ":")).encode() + b"\n"
