"""Blocks in LMDB: two environments by size of the stored value, written in batches, read in copies.

Invariants (FACTS 3.C, E1, E3b): a value of 64 KiB or more never shares an environment with smaller
ones; no view of the map leaves a read transaction; a read transaction does no waiting; after a failed
sync, or a write that failed for another reason than a full disk, nothing is written any more. A tree
that LMDB finds broken is damage of the blocks behind it, never their absence. An environment that LMDB gives
up, because a meta page could not be written, is opened anew before it is next used: what was committed before
goes on being read, disk or no disk.

Durability: commits flush their data but not the last meta page (metasync off); `barrier` flushes that
too. The map is address space reserved once; what may be stored is decided elsewhere.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import lmdb
import numpy as np

from storage.blocks.codec import HEADER_BYTES, Buffer, EncodedBlock, check, codec_of, copy, prove
from storage.blocks.store import BlockRef, BlockStats, EnvironmentStats, Held, StoredForm
from storage.errors import (
    BlockDamaged,
    BlockMissing,
    DiskFull,
    StoreDamaged,
    StoreUnusable,
    Unreadable,
    WriterFailed,
)
from storage.failpoints import failpoint
from storage.layout import sync

LARGE_VALUE_BYTES: Final = 64 << 10
_MAP_BYTES: Final = 1 << 40
_MOST_READERS: Final = 512
_SPARE_BYTES: Final = 64 << 20
_ACKED: Final = b"acked_commit"
_DATA: Final = "data.mdb"
_KEY_BYTES: Final = 32
# What LMDB says of a page that is not what its parent takes it for (FACTS E16). A transaction that met
# one refuses every later call.
_BROKEN_TREE: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError)
_DAMAGE: Final = (*_BROKEN_TREE, lmdb.InvalidError, lmdb.VersionMismatchError)
_MOST_COMMITS: Final = 1 << 62
# LMDB knows who reads by process numbers, each with a lock of its own, and each container counts from 1.
_ANOTHER_OF_OUR_NUMBER: Final = os.strerror(errno.EAGAIN)

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
        self._readonly = readonly
        self._map_bytes = map_bytes
        # Nobody may be in a transaction while an environment is closed: its map goes with it.
        self._turn = threading.Condition()
        self._users = 0
        self._dead = False
        if not readonly:
            for name in ("large", "small"):
                _make(folder / name)
        self._open_all()

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
                    noted = self._note(txn, acked_commit)
                    failpoint("blocks.before_commit")
                self._noted = noted
            # Compressed otherwise than before, a block changes its environment; what it leaves behind
            # may be the very damage that it replaces.
            self._forget(self._small, [b.digest for b in large])
            self._forget(self._large, [b.digest for b in small if _may_be_large(b.raw_bytes)])
        failpoint("blocks.after_commit")

    def delete(self, digests: Sequence[bytes], acked_commit: int) -> None:
        """Remove values; absent ones are in order. See `BlockStore`."""
        with self._writing(0):
            for env in (self._large, self._small):
                with env.begin(write=True) as txn:
                    for digest in digests:
                        txn.delete(digest)
                    noted = self._note(txn, acked_commit) if env is self._small else self._noted
            self._noted = noted

    def barrier(self) -> None:
        """Make every commit so far durable, whichever process made it. See `BlockStore`."""
        with self._writing(0):
            try:
                self._large.sync(True)
                self._small.sync(True)
            except lmdb.Error as error:
                # Even on a full disk: the kernel may have dropped the pages, and a second sync would
                # succeed without them.
                self._failed = True
                raise WriterFailed("LMDB could not sync") from error

    def note_commit(self, acked_commit: int) -> None:
        """Tell of an SQL commit that has been acknowledged. See `BlockStore`."""
        if acked_commit > self.acked_commit():
            with self._writing(0), self._small.begin(write=True) as txn:
                self._note(txn, acked_commit)

    # ---- reading ---------------------------------------------------------------------------

    def held(self, refs: Sequence[BlockRef]) -> list[Held]:
        """What lies under each key, by checksum, in place. See `BlockStore`."""
        return [at for at, _ in self._look(refs)]

    def forms(self, refs: Sequence[BlockRef]) -> list[StoredForm | None]:
        """How each intact value is stored. See `BlockStore`."""
        return [form if at is Held.INTACT else None for at, form in self._look(refs)]

    def read(self, refs: Sequence[BlockRef]) -> list[Buffer]:
        """Verified copies, in order. See `BlockStore`.

        The transaction covers the copying (or decoding) only; the copies are proven after it.
        """
        copies = []
        with self._reading() as get:
            for ref in refs:
                value = get(ref)
                if value is None:
                    raise BlockMissing("the block is not there", ref.digest)
                copies.append(copy(value, ref.digest, ref.raw_bytes))
        return [prove(raw, ref.digest) for raw, ref in zip(copies, refs, strict=True)]

    def values(self, refs: Sequence[BlockRef], room: int) -> tuple[memoryview, list[int]]:
        """Stored values as verified copies, one behind another. See `BlockStore`."""
        with self._reading() as get:
            found = []
            for ref in refs:
                value = get(ref)
                if value is None:
                    raise BlockMissing("the block is not there", ref.digest)
                found.append(value)
            sizes = [len(value) for value in found]
            copies = np.empty(sum(sizes) + room * len(sizes), dtype=np.uint8).data
            at = room
            for value, size in zip(found, sizes, strict=True):
                copies[at : at + size] = value
                at += size + room
        at = room
        for ref, size in zip(refs, sizes, strict=True):
            check(copies[at : at + size], ref.digest, ref.raw_bytes)
            at += size + room
        return copies, sizes

    @contextmanager
    def moment(self) -> Iterator[Callable[[BlockRef], bytes]]:
        """What lies here now, for as long as it takes to copy it: gives checked copies of stored values.

        The function raises as `values`. Nothing that is deleted meanwhile frees its pages, so this is
        for a backup and not for serving.
        """
        with self._reading() as get:

            def value_of(ref: BlockRef) -> bytes:
                value = get(ref)
                if value is None:
                    raise BlockMissing("the block is not there", ref.digest)
                found = bytes(value)
                check(found, ref.digest, ref.raw_bytes)
                return found

            yield value_of

    def digests(self, after: bytes | None, limit: int) -> list[bytes]:
        """Keys of both environments behind `after`, in order of the key.

        Raises:
            StoreUnusable: a tree is broken, so that nobody can tell which keys there are.
        """
        with self._using():
            parts = [self._keys(env, after, limit) for env in (self._large, self._small)]
        return list(islice(_distinct(merge(*parts)), limit))

    def acked_commit(self) -> int:
        """The highest SQL commit that any process has told of.

        Raises:
            StoreDamaged: it cannot be read.
        """
        with (
            self._using(),
            _usable(self._folder / "small"),
            self._small.begin(db=self._meta) as txn,
        ):
            found = int.from_bytes(txn.get(_ACKED) or b"", "little")
        if found > _MOST_COMMITS:
            raise StoreDamaged(f"the number of commits in {self._folder / 'small'} is none")
        return found

    def stats(self) -> BlockStats:
        """Figures of both environments."""
        each = self.environments()
        return BlockStats(
            sum(env.values for env in each),
            sum(env.used_bytes for env in each),
            sum(env.file_bytes for env in each),
        )

    def environments(self) -> list[EnvironmentStats]:
        """Figures of each environment."""
        with self._using():
            return [self._figures(name, env) for name, env in self._envs.items()]

    @property
    def failed(self) -> bool:
        """Whether an earlier write failed, so that nothing is written any more."""
        return self._failed

    def try_writing(self) -> None:
        """Make LMDB look for a free page in each environment, and change nothing.

        Raises:
            WriterFailed: it could not; and a broken list of free pages may end the process.
        """
        with self._writing(0):
            for env in self._envs.values():
                txn = env.begin(write=True)
                txn.put(bytes(_KEY_BYTES), bytes(8 << 10))
                txn.abort()

    def reader_check(self) -> int:
        """Clear reader slots of dead processes; returns how many."""
        with self._using():
            return sum(env.reader_check() for env in self._envs.values())

    def close(self) -> None:
        """Let go of the files."""
        for env in self._envs.values():
            env.close()

    # ---- within ----------------------------------------------------------------------------

    def _open_all(self) -> None:
        with ExitStack() as undo:
            envs = {}
            for name in ("large", "small"):
                envs[name] = _open(
                    self._folder / name, readonly=self._readonly, map_bytes=self._map_bytes
                )
                undo.callback(envs[name].close)
            with _usable(self._folder / "small"):
                meta = envs["small"].open_db(b"meta", create=not self._readonly)
            undo.pop_all()
        self._envs, self._meta = envs, meta
        self._large, self._small = envs["large"], envs["small"]

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Around every use of an environment, never one within another; opens anew what is dead."""
        with self._turn:
            while self._dead:
                if self._users:
                    self._turn.wait()
                else:
                    self._revive()
            self._users += 1
        try:
            yield
        finally:
            with self._turn:
                self._users -= 1
                if not self._users:
                    self._turn.notify_all()

    def _revive(self) -> None:
        # Opening writes nothing: LMDB goes by the meta page of the last commit that it wrote whole.
        self.close()
        try:
            self._open_all()
        except StoreDamaged:
            raise
        except StoreUnusable as error:
            raise Unreadable("the block store cannot be opened anew at this moment") from error
        self._dead = False

    def _given_up(self) -> bool:
        """Whether LMDB refuses everything since a meta page could not be written."""
        for env in self._envs.values():
            try:
                env.begin().abort()
            except lmdb.PanicError:
                return True
            except lmdb.Error:  # no reader slot, say: the write's own error is what counts
                continue
        return False

    def _figures(self, name: str, env: lmdb.Environment) -> EnvironmentStats:
        stat, info = env.stat(), env.info()
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return EnvironmentStats(
            name,
            values=stat["entries"] - (1 if env is self._small else 0),  # the name of the meta table
            used_bytes=pages * stat["psize"],
            file_bytes=(self._folder / name / _DATA).stat().st_size,
            map_bytes=info["map_size"],
            reader_slots=info["num_readers"],
            most_reader_slots=info["max_readers"],
        )

    def _look(self, refs: Sequence[BlockRef]) -> list[tuple[Held, StoredForm | None]]:
        found: list[tuple[Held, StoredForm | None]] = []
        while len(found) < len(refs):  # once, unless a tree is broken
            with self._reading() as get:
                for ref in refs[len(found) :]:
                    try:
                        value = get(ref)
                    except BlockDamaged:
                        found.append((Held.DAMAGED, None))
                        break
                    found.append(_state(value, ref))
        return found

    @contextmanager
    def _reading(self) -> Iterator[Callable[[BlockRef], memoryview | None]]:
        with self._using(), _begun(self._large) as large, _begun(self._small) as small:

            def get(ref: BlockRef) -> memoryview | None:
                # A short block is found without asking the tree of the large ones, broken or not.
                first, then = (large, small) if _may_be_large(ref.raw_bytes) else (small, large)
                try:
                    value = first.get(ref.digest)
                    return then.get(ref.digest) if value is None else value
                except _BROKEN_TREE as error:
                    raise BlockDamaged("the tree above the block is broken", ref.digest) from error

            yield get

    @contextmanager
    def _writing(self, size: int) -> Iterator[None]:
        with self._lock:
            if self._failed:
                raise WriterFailed("an earlier write failed")
            with self._using():
                try:
                    yield
                except lmdb.MapFullError as error:
                    raise DiskFull("the block store's map is full") from error
                except (lmdb.Error, OSError) as error:
                    full = self._is_full(error, size)
                    self._failed = not full
                    # Its data had been synced by then. Who writes next opens the store by what the page
                    # says now, so nothing is built on what it did not take.
                    self._dead = self._given_up()
                    if full:
                        raise DiskFull("the device is full") from error
                    raise WriterFailed("LMDB could not write") from error

    def _is_full(self, error: Exception, size: int) -> bool:
        if isinstance(error, lmdb.DiskError) or getattr(error, "errno", None) == errno.ENOSPC:
            return True
        # LMDB reports a short write on a full disk as an I/O error, which has no class of its own (FACTS
        # E5). What has one (a broken tree, a dead environment) is never a full disk.
        unnamed = type(error) is lmdb.Error or getattr(error, "errno", None) == errno.EIO
        return unnamed and shutil.disk_usage(self._folder).free < max(2 * size, _SPARE_BYTES)

    def _note(self, txn: lmdb.Transaction[bytes], acked_commit: int) -> int:
        before = int.from_bytes(txn.get(_ACKED, db=self._meta) or b"", "little")
        if acked_commit > before:
            txn.put(_ACKED, acked_commit.to_bytes(8, "little"), db=self._meta)
        return max(before, acked_commit)

    @staticmethod
    def _forget(env: lmdb.Environment, digests: Sequence[bytes]) -> None:
        with env.begin(buffers=True) as txn:
            there = [digest for digest in digests if txn.get(digest) is not None]
        if there:
            with env.begin(write=True) as txn:
                for digest in there:
                    txn.delete(digest)

    @staticmethod
    def _keys(env: lmdb.Environment, after: bytes | None, limit: int) -> list[bytes]:
        with _usable(Path(env.path())), env.begin() as txn, txn.cursor() as cursor:
            found = cursor.set_range(after) if after is not None else cursor.first()
            keys: list[bytes] = []
            while found and len(keys) < limit:
                key = bytes(cursor.key())
                if key != after and len(key) == _KEY_BYTES:
                    keys.append(key)
                found = cursor.next()
            return keys


def _make(path: Path) -> None:
    # LMDB does not sync the first pages of a new file, and half of them would be refused for ever: so
    # that a power cut leaves a whole environment or none, it is made elsewhere and renamed.
    if (path / _DATA).exists():
        return
    made = path.with_name(path.name + ".new")
    shutil.rmtree(made, ignore_errors=True)
    for folder in (path, made):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _open(made, readonly=False, map_bytes=_MAP_BYTES) as env:
        env.sync(True)
    (made / _DATA).rename(path / _DATA)
    sync(path)
    shutil.rmtree(made)


def _open(path: Path, *, readonly: bool, map_bytes: int) -> lmdb.Environment:
    with _usable(path):
        return lmdb.open(
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


def _begun(env: lmdb.Environment) -> lmdb.Transaction[memoryview]:
    try:
        return env.begin(buffers=True)
    except lmdb.Error as error:
        raise Unreadable("LMDB begins no transaction at this moment") from error


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise StoreDamaged(f"the block store {path} is damaged: {error}") from error
    except lmdb.Error as error:
        if str(error).endswith(_ANOTHER_OF_OUR_NUMBER):
            raise StoreUnusable(
                f"the block store {path} is used by a process of another container that has this "
                "process's number: run the command inside that container"
            ) from error
        raise StoreUnusable(f"the block store {path} cannot be used: {error}") from error


def _may_be_large(raw_bytes: int) -> bool:
    # A stored value is never longer than its header and its raw bytes.
    return raw_bytes + HEADER_BYTES >= LARGE_VALUE_BYTES


def _state(value: memoryview | None, ref: BlockRef) -> tuple[Held, StoredForm | None]:
    if value is None:
        return Held.ABSENT, None
    try:
        check(value, ref.digest, ref.raw_bytes)
    except BlockDamaged:
        return Held.DAMAGED, None
    return Held.INTACT, StoredForm(codec_of(value), len(value))


def _distinct(keys: Iterator[bytes]) -> Iterator[bytes]:
    last = None
    for key in keys:
        if key != last:
            yield key
        last = key
