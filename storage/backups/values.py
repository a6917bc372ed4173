"""The blocks of a backup: read from one moment of the store, checked, written into new environments.

A block that fails its check, or is not there, is not copied; who owns it is for others to ask.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import select

from storage.blocks.codec import EncodedBlock
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef
from storage.errors import BlockFault, DiskFull
from storage.metadata import schema as t
from storage.metadata.database import Database

_BATCH_BYTES: Final = 32 << 20
_MARGIN_BYTES: Final = 64 << 20


class BlockWriter:
    """Writes the blocks of one backup."""

    def __init__(
        self, copy: Database, blocks: LmdbBlocks, partial: Path, reserve_bytes: int
    ) -> None:
        self.blocks = blocks
        self._copy = copy
        self._partial = partial
        self._reserve_bytes = reserve_bytes

    def copy_all(
        self, value_of: Callable[[BlockRef], bytes], progress: Callable[[int], None]
    ) -> tuple[int, list[tuple[bytes, int]]]:
        """Copy every block with an owner, in order of the key.

        Returns:
            How many were copied, and (digest, raw bytes) of those that could not be.
        """
        bad: list[tuple[bytes, int]] = []
        count, size, after = 0, 0, b""
        with self._copy.read() as connection:
            commit = int(connection.execute(select(t.store.c.commit_counter)).scalar_one())
        while rows := self._page(after):
            batch: list[EncodedBlock] = []
            for digest, raw_bytes, stored_bytes in rows:
                try:
                    value = value_of(BlockRef(digest, raw_bytes))
                except BlockFault:
                    bad.append((digest, raw_bytes))
                    continue
                batch.append(EncodedBlock(digest, raw_bytes, len(value), value))
                size += stored_bytes
                if sum(len(block.value) for block in batch) >= _BATCH_BYTES:
                    self._put(batch, commit)
                    count += len(batch)
                    batch = []
                    progress(size)
            self._put(batch, commit)
            count += len(batch)
            progress(size)
            after = rows[-1][0]
        self.blocks.note_commit(commit)
        self.blocks.barrier()
        return count, bad

    def _page(self, after: bytes) -> list[tuple[bytes, int, int]]:
        with self._copy.read() as connection:
            rows = connection.execute(
                select(t.block.c.digest, t.block.c.raw_bytes, t.block.c.stored_bytes)
                .where(t.block.c.digest > after, t.block.c.refs > 0)
                .order_by(t.block.c.digest)
                .limit(256)
            )
            return [(row[0], row[1], row[2]) for row in rows]

    def _put(self, batch: list[EncodedBlock], commit: int) -> None:
        check_room(self._partial, sum(len(block.value) for block in batch), self._reserve_bytes, 0)
        if batch:
            self.blocks.put(batch, commit)


def check_room(
    partial: Path, size_bytes: int, reserve_bytes: int, margin_bytes: int = _MARGIN_BYTES
) -> None:
    """Refuse what the device of the backups has no room for.

    Raises:
        DiskFull: less than that, the reserve and the margin are free.
    """
    if shutil.disk_usage(partial).free < size_bytes + reserve_bytes + margin_bytes:
        raise DiskFull("the device of the backups has too little room")
