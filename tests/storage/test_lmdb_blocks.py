"""Blocks in LMDB: verified copies out, durable batches in, and a stop after a write that failed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from storage.blocks.codec import EncodedBlock, encode
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.errors import BlockDamaged, BlockMissing, DiskFull


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbBlocks]:
    found = LmdbBlocks(tmp_path)
    yield found
    found.close()


def _block(size: int) -> EncodedBlock:
    return encode(os.urandom(size), generation=1)


def _ref(block: EncodedBlock) -> BlockRef:
    return BlockRef(block.digest, block.raw_bytes)


def _spoil(folder: Path, digest: bytes, value: bytes | None) -> None:
    """Change a value with LMDB's own means, as bit rot inside its pages would look."""
    for name in ("large", "small"):
        env = lmdb.open(str(folder / name), map_size=1 << 40, max_dbs=1)
        with env.begin(write=True) as txn:
            if txn.get(digest) is not None:
                if value is None:
                    txn.delete(digest)
                else:
                    txn.put(digest, value)
        env.close()


def test_blocks_of_every_size_come_back(store: LmdbBlocks) -> None:
    blocks = [_block(size) for size in (1, 100, 65_000, 65_536, 70_000, 1 << 20)]
    store.put(blocks, 0)
    copies = store.read([_ref(block) for block in blocks])
    assert [bytes(copy) for copy in copies] == [bytes(b.value)[64:] for b in blocks]
    assert store.held([_ref(block) for block in blocks]) == [Held.INTACT] * 6


def test_small_and_large_values_live_apart(store: LmdbBlocks, tmp_path: Path) -> None:
    store.put([_block(1000), _block(1 << 20)], 0)
    assert store.stats().blocks == 2
    store.close()
    counts = {}
    for name in ("large", "small"):
        env = lmdb.open(str(tmp_path / name), map_size=1 << 40, max_dbs=1, readonly=True)
        counts[name] = env.stat()["entries"]
        env.close()
    assert counts == {"large": 1, "small": 2}  # the small one also names the meta database


def test_a_missing_key_is_corruption_and_named(store: LmdbBlocks) -> None:
    block = _block(10)
    with pytest.raises(BlockMissing) as caught:
        store.read([_ref(block)])
    assert caught.value.digest == block.digest
    assert store.held([_ref(block)]) == [Held.ABSENT]


def test_a_damaged_value_is_found_and_writing_it_again_heals(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    block = _block(100_000)
    store.put([block], 0)
    store.close()
    bad = bytearray(block.value)
    bad[50_000] ^= 1
    _spoil(tmp_path, block.digest, bytes(bad))
    store = LmdbBlocks(tmp_path)
    assert store.held([_ref(block)]) == [Held.DAMAGED]
    with pytest.raises(BlockDamaged):
        store.read([_ref(block)])
    store.put([block], 0)
    assert store.held([_ref(block)]) == [Held.INTACT]
    assert bytes(store.read([_ref(block)])[0]) == bytes(block.value)[64:]
    store.close()


def test_deleting_what_is_absent_is_in_order(store: LmdbBlocks) -> None:
    block = _block(10)
    store.put([block], 0)
    store.delete([block.digest, bytes(32)], 0)
    store.delete([block.digest], 0)
    assert store.held([_ref(block)]) == [Held.ABSENT]


def test_keys_are_swept_in_order_over_both_environments(store: LmdbBlocks) -> None:
    blocks = [_block(size) for size in [100] * 20 + [70_000] * 20]
    store.put(blocks, 5)
    seen: list[bytes] = []
    after = None
    while part := store.digests(after, 7):
        seen += part
        after = part[-1]
    assert seen == sorted(block.digest for block in blocks)


def test_the_last_acknowledged_commit_is_kept_and_never_goes_back(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    assert store.acked_commit() == 0
    store.put([_block(10)], 7)
    store.note_commit(5)
    store.put([_block(70_000)], 6)
    store.close()
    store = LmdbBlocks(tmp_path)
    assert store.acked_commit() == 7
    store.note_commit(9)
    assert store.acked_commit() == 9
    store.close()


def test_a_full_map_is_a_full_disk_and_the_store_goes_on(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path, map_bytes=1 << 20)
    first = _block(100_000)
    store.put([first], 0)
    with pytest.raises(DiskFull):
        store.put([_block(200_000) for _ in range(10)], 0)
    store.delete([first.digest], 0)
    again = _block(100_000)
    store.put([again], 0)
    assert store.held([_ref(again)]) == [Held.INTACT]
    store.close()


_FAILING = """
import os, resource, signal, sys
from pathlib import Path
from storage.blocks.codec import encode
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef
from storage.errors import WriterFailed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = LmdbBlocks(Path(sys.argv[1]))
kept = encode(os.urandom(100_000), generation=0)
store.put([kept], 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
for attempt in range(2):
    try:
        store.put([encode(os.urandom(4 << 20), generation=0)], 0)
    except WriterFailed as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for step in (lambda: store.put([kept], 0), store.barrier, lambda: store.note_commit(9)):
    try:
        step()
    except WriterFailed as error:
        print(error)
print(len(store.read([BlockRef(kept.digest, kept.raw_bytes)])[0]))
"""


def test_after_a_failed_write_nothing_is_written_any_more_and_reads_go_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAILING, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == [
        "LMDB could not write",
        *["an earlier write failed"] * 4,
        "100000",
    ]


def test_files_are_the_owners_alone(store: LmdbBlocks, tmp_path: Path) -> None:
    for name in ("large", "small"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
        assert (tmp_path / name / "data.mdb").stat().st_mode & 0o777 == 0o600
