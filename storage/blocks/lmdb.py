"""Blocks in LMDB: two environments by size of the stored value, written in batches, read in copies.

Invariants (FACTS 3.C, E1, E3b): a value of 64 KiB or more never shares an environment with smaller
ones; no view of the map leaves a read transaction; a read transaction does no waiting; after a write
or sync that failed for another reason than a full disk nothing is written any more.

Durability: commits flush their data but not the last meta page (metasync off); `barrier` flushes that
too. The map is address space reserved once; what may be stored is decided elsewhere.
"""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from storage.blocks.codec import Buffer, EncodedBlock, check, copy, prove
from storage.blocks.store import BlockRef, BlockStats, Held
from storage.errors import BlockDamaged, BlockMissing, DiskFull, WriterFailed
from storage.failpoints import failpoint

LARGE_VALUE_BYTES: Final = 64 << 10
_MAP_BYTES: Final = 1 << 40
_MOST_READERS: Final = 512
_SPARE_BYTES: Final = 64 << 20
_ACKED: Final = b"acked_commit"
_KEY_BYTES: Final = 32

T = TypeVar("T")


class LmdbBlocks:
    """A block store in one folder. One per process and folder; never across a fork."""

    def __init__(
        self, folder: Path, *, readonly: bool = False, map_bytes: int = _MAP_BYTES
    ) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._failed = False
        self._noted = 0  # the last commit this process told of
        self._envs: dict[str, lmdb.Environment] = {}
        for name in ("large", "small"):
            path = folder / name
            if not readonly:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._envs[name] = lmdb.open(
                str(path),
                map_size=map_bytes,
                readonly=readonly,
                create=not readonly,
                metasync=False,
                sync=True,
                writemap=False,
                readahead=True,
                mode=0o600,
                max_readers=_MOST_READERS,
                max_dbs=1,
                max_spare_txns=16,
            )
        self._large, self._small = self._envs["large"], self._envs["small"]
        self._meta = self._small.open_db(b"meta", create=not readonly)

    # ---- writing ---------------------------------------------------------------------------

    def put(self, blocks: Sequence[EncodedBlock], acked_commit: int) -> None:
        """Write or overwrite; one commit for each environment touched. See `BlockStore`."""
        large = [b for b in blocks if len(b.value) >= LARGE_VALUE_BYTES]
        small = [b for b in blocks if len(b.value) < LARGE_VALUE_BYTES]
        size = sum(len(block.value) for block in blocks)
        with self._writing(size):
            if large:
                with self._large.begin(write=True) as txn:
                    for block in large:
                        txn.put(block.digest, block.value)
                    failpoint("blocks.before_commit")
            if small or acked_commit > self._noted:
                with self._small.begin(write=True) as txn:
                    for block in small:
                        txn.put(block.digest, block.value)
                    self._note(txn, acked_commit)
                    failpoint("blocks.before_commit")
        failpoint("blocks.after_commit")

    def delete(self, digests: Sequence[bytes], acked_commit: int) -> None:
        """Remove values; absent ones are in order. See `BlockStore`."""
        with self._writing(0):
            for env in (self._large, self._small):
                with env.begin(write=True) as txn:
                    for digest in digests:
                        txn.delete(digest)
                    if env is self._small:
                        self._note(txn, acked_commit)

    def barrier(self) -> None:
        """Make every commit so far durable, whichever process made it. See `BlockStore`."""
        with self._writing(0):
            self._large.sync(True)
            self._small.sync(True)

    def note_commit(self, acked_commit: int) -> None:
        """Tell of an SQL commit that has been acknowledged. See `BlockStore`."""
        if acked_commit > self.acked_commit():
            with self._writing(0), self._small.begin(write=True) as txn:
                self._note(txn, acked_commit)

    # ---- reading ---------------------------------------------------------------------------

    def held(self, refs: Sequence[BlockRef]) -> list[Held]:
        """What lies under each key, by checksum, in place. See `BlockStore`."""
        return [at for at, _ in self._look(refs)]

    def stored_bytes(self, refs: Sequence[BlockRef]) -> list[int | None]:
        """Length of each intact value. See `BlockStore`."""
        return [size if at is Held.INTACT else None for at, size in self._look(refs)]

    def read(self, refs: Sequence[BlockRef]) -> list[Buffer]:
        """Verified copies, in order. See `BlockStore`.

        The transaction covers the copying (or decoding) only; the copies are proven after it.
        """
        copies = []
        with self._reading() as get:
            for ref in refs:
                value = get(ref.digest)
                if value is None:
                    raise BlockMissing("the block is not there", ref.digest)
                copies.append(copy(value, ref.digest, ref.raw_bytes))
        return [prove(raw, ref.digest) for raw, ref in zip(copies, refs, strict=True)]

    def digests(self, after: bytes | None, limit: int) -> list[bytes]:
        """Keys of both environments behind `after`, in order of the key."""
        parts = [self._keys(env, after, limit) for env in (self._large, self._small)]
        return list(islice(_distinct(merge(*parts)), limit))

    def acked_commit(self) -> int:
        """The highest SQL commit that any process has told of."""
        with self._small.begin(db=self._meta) as txn:
            return int.from_bytes(txn.get(_ACKED) or b"", "little")

    def stats(self) -> BlockStats:
        """Figures of both environments."""
        blocks = used = file_bytes = 0
        for name, env in self._envs.items():
            stat = env.stat()
            pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            blocks += stat["entries"] - (1 if env is self._small else 0)
            used += pages * stat["psize"]
            file_bytes += (self._folder / name / "data.mdb").stat().st_size
        return BlockStats(blocks, used, file_bytes)

    def reader_check(self) -> int:
        """Clear reader slots of dead processes; returns how many."""
        return sum(env.reader_check() for env in self._envs.values())

    def close(self) -> None:
        """Let go of the files."""
        for env in self._envs.values():
            env.close()

    # ---- within ----------------------------------------------------------------------------

    def _look(self, refs: Sequence[BlockRef]) -> list[tuple[Held, int]]:
        found = []
        with self._reading() as get:
            for ref in refs:
                value = get(ref.digest)
                if value is None:
                    found.append((Held.ABSENT, 0))
                    continue
                try:
                    check(value, ref.digest, ref.raw_bytes)
                except BlockDamaged:
                    found.append((Held.DAMAGED, len(value)))
                else:
                    found.append((Held.INTACT, len(value)))
        return found

    @contextmanager
    def _reading(self) -> Iterator[Callable[[bytes], memoryview | None]]:
        with (
            self._large.begin(buffers=True) as large,
            self._small.begin(buffers=True) as small,
        ):

            def get(digest: bytes) -> memoryview | None:
                value = large.get(digest)
                return small.get(digest) if value is None else value

            yield get

    @contextmanager
    def _writing(self, size: int) -> Iterator[None]:
        with self._lock:
            if self._failed:
                raise WriterFailed("an earlier write failed")
            try:
                yield
            except lmdb.MapFullError as error:
                raise DiskFull("the block store's map is full") from error
            except (lmdb.Error, OSError) as error:
                if self._is_full(error, size):
                    raise DiskFull("the device is full") from error
                self._failed = True
                raise WriterFailed("LMDB could not write") from error

    def _is_full(self, error: Exception, size: int) -> bool:
        # LMDB reports a short write on a full disk as an I/O error (FACTS E5).
        if isinstance(error, lmdb.DiskError) or getattr(error, "errno", None) == errno.ENOSPC:
            return True
        return shutil.disk_usage(self._folder).free < max(2 * size, _SPARE_BYTES)

    def _note(self, txn: lmdb.Transaction, acked_commit: int) -> None:
        before = int.from_bytes(txn.get(_ACKED, db=self._meta) or b"", "little")
        if acked_commit > before:
            txn.put(_ACKED, acked_commit.to_bytes(8, "little"), db=self._meta)
        self._noted = max(before, acked_commit)

    @staticmethod
    def _keys(env: lmdb.Environment, after: bytes | None, limit: int) -> list[bytes]:
        with env.begin() as txn, txn.cursor() as cursor:
            found = cursor.set_range(after) if after is not None else cursor.first()
            keys: list[bytes] = []
            while found and len(keys) < limit:
                key = bytes(cursor.key())
                if key != after and len(key) == _KEY_BYTES:
                    keys.append(key)
                found = cursor.next()
            return keys


def _distinct(keys: Iterator[bytes]) -> Iterator[bytes]:
    last = None
    for key in keys:
        if key != last:
            yield key
        last = key
