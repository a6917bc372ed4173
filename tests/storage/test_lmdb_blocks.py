"""Blocks in LMDB: verified copies out, durable batches in, and a stop after a write that failed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.blocks.codec import HEADER_BYTES, EncodedBlock, encode
from storage.blocks.lmdb import LARGE_VALUE_BYTES, LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.errors import BlockDamaged, BlockMissing, DiskFull, WriterFailed


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
for step in (
    lambda: store.put([kept], 0),
    lambda: store.put([encode(b"small", generation=0)], 0),
    lambda: store.delete([kept.digest], 0),
    store.barrier,
    lambda: store.note_commit(9),
):
    try:
        step()
    except WriterFailed as error:
        print(error)
print(len(store.read([BlockRef(kept.digest, kept.raw_bytes)])[0]))
"""


def test_after_a_failed_write_nothing_is_written_any_more_and_reads_go_on(tmp_path: Path) -> None:
    done = subprocess.run(  # a child, because the limit on file sizes is the process's
        [sys.executable, "-c", _FAILING, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == [
        "LMDB could not write",
        *["an earlier write failed"] * 6,
        "100000",
    ]


def test_files_are_the_owners_alone(store: LmdbBlocks, tmp_path: Path) -> None:
    for name in ("large", "small"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
        assert (tmp_path / name / "data.mdb").stat().st_mode & 0o777 == 0o600


def test_a_store_opened_again_after_a_failed_write_is_whole_and_writes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", _FAILING, str(tmp_path)],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    store = LmdbBlocks(tmp_path)
    keys = store.digests(None, 10)
    assert len(keys) == 1
    assert store.held([BlockRef(keys[0], 100_000)]) == [Held.INTACT]
    block = _block(5 << 20)
    store.put([block], 1)
    store.barrier()
    assert store.held([_ref(block)]) == [Held.INTACT]
    store.close()


_SMALL_FAILING = """
import os, resource, signal, sys
from pathlib import Path
from storage.blocks.codec import encode
from storage.blocks.lmdb import LmdbBlocks
from storage.errors import WriterFailed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = LmdbBlocks(Path(sys.argv[1]))
store.put([encode(b"kept", generation=0)], 3)
size = (Path(sys.argv[1]) / "small" / "data.mdb").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
try:
    for number in range(1000):
        store.put([encode(os.urandom(30_000), generation=0)], 4 + number)
except WriterFailed as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
try:
    store.put([encode(os.urandom(1 << 20), generation=0)], 5000)
except WriterFailed as error:
    print(error)
"""


def test_a_failed_write_of_small_values_stops_the_large_ones_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SMALL_FAILING, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == ["LMDB could not write", "an earlier write failed"]
    store = LmdbBlocks(tmp_path)
    assert all(len(key) == 32 for key in store.digests(None, 2000))
    assert 3 <= store.acked_commit() < 5000
    store.close()


# ---- damage, seen through the store ----------------------------------------------------------

_STATES = Path(__file__).parents[1] / "data" / "states"
KINDS = {
    "noise": os.urandom(3000),
    "zeros": bytes(200_000),
    "f16": np.random.default_rng(1).normal(size=1500).astype(np.float16).tobytes(),
    "f32, large": np.random.default_rng(1).normal(size=40_000).astype(np.float32).tobytes(),
}


def _put_value(folder: Path, key: bytes, value: bytes) -> None:
    """Lay a value under a key behind the store's back."""
    name = "large" if len(value) >= LARGE_VALUE_BYTES else "small"
    env = lmdb.open(str(folder / name), map_size=1 << 40, max_dbs=1)
    with env.begin(write=True) as txn:
        txn.put(key, value)
    env.close()


def _never_other_bytes(folder: Path, values: list[bytes], digest: bytes, raw: bytes) -> int:
    """Lay each value under the key in turn; returns how many of them reads refused."""
    refused = 0
    ref = BlockRef(digest, len(raw))
    for value in values:
        _put_value(folder, digest, value)
        store = LmdbBlocks(folder, readonly=True)
        assert store.held([ref]) == [Held.DAMAGED]
        assert store.forms([ref]) == [None]
        try:
            assert bytes(store.read([ref])[0]) == raw
        except BlockDamaged as error:
            assert error.digest == digest
            refused += 1
        store.close()
    return refused


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_byte_is_never_served(tmp_path: Path, name: str) -> None:
    raw = KINDS[name]
    block = encode(raw, generation=1)
    good = bytes(block.value)
    LmdbBlocks(tmp_path).close()
    chance = random.Random(name)
    places = [*range(HEADER_BYTES), *(chance.randrange(HEADER_BYTES, len(good)) for _ in range(60))]
    values = [good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :] for at in places]
    refused = _never_other_bytes(tmp_path, values, block.digest, raw)
    # Only the generation and the checksum of a value stored raw say nothing about its bytes.
    assert refused >= len(places) - 16
    assert refused == len(places) or good[5] == 0


@pytest.mark.parametrize("name", KINDS)
def test_a_value_cut_short_is_never_served(tmp_path: Path, name: str) -> None:
    raw = KINDS[name]
    block = encode(raw, generation=1)
    good = bytes(block.value)
    LmdbBlocks(tmp_path).close()
    fields = (1, 4, 5, 6, 8, 16, 24, 56, 63, 64)
    kept = [length for length in fields if length < len(good)]
    values = [b"", *(good[:length] for length in kept), good + b"x"]
    if len(good) < LARGE_VALUE_BYTES:
        values += [good[: len(good) // 2], good[:-1]]
    assert _never_other_bytes(tmp_path, values, block.digest, raw) == len(values)


def test_a_value_under_another_key_is_never_served(tmp_path: Path) -> None:
    one, other = _block(5000), _block(5000)
    LmdbBlocks(tmp_path).close()
    _put_value(tmp_path, one.digest, bytes(other.value))
    store = LmdbBlocks(tmp_path)
    assert store.held([_ref(one)]) == [Held.DAMAGED]
    with pytest.raises(BlockDamaged) as caught:
        store.read([_ref(one)])
    assert (caught.value.digest, caught.value.actual) == (one.digest, other.digest)
    store.close()


@pytest.mark.parametrize("claimed", [0, 1, 4999, 5001, 1 << 40])
def test_a_reference_that_lies_about_the_length_gets_nothing(
    store: LmdbBlocks, claimed: int
) -> None:
    block = _block(5000)
    store.put([block], 0)
    ref = BlockRef(block.digest, claimed)
    assert store.held([ref]) == [Held.DAMAGED]
    with pytest.raises(BlockDamaged):
        store.read([ref])


def test_one_bad_block_among_good_ones_is_the_one_that_is_named(tmp_path: Path) -> None:
    blocks = [_block(3000) for _ in range(5)]
    store = LmdbBlocks(tmp_path)
    store.put(blocks[:4], 0)
    with pytest.raises(BlockMissing) as missing:
        store.read([_ref(block) for block in blocks])
    assert missing.value.digest == blocks[4].digest
    store.close()
    bad = bytearray(blocks[2].value)
    bad[-1] ^= 1
    _spoil(tmp_path, blocks[2].digest, bytes(bad))
    store = LmdbBlocks(tmp_path)
    with pytest.raises(BlockDamaged) as damaged:
        store.read([_ref(block) for block in blocks[:4]])
    assert damaged.value.digest == blocks[2].digest
    wanted = [Held.INTACT, Held.INTACT, Held.DAMAGED, Held.INTACT, Held.ABSENT]
    assert store.held([_ref(block) for block in blocks]) == wanted
    store.put([blocks[2]], 0)
    assert len(store.read([_ref(block) for block in blocks[:4]])) == 4
    store.close()


def test_a_value_that_vanished_is_missing_and_writing_it_again_heals(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    block = _block(100_000)
    store.put([block], 0)
    store.close()
    _spoil(tmp_path, block.digest, None)
    store = LmdbBlocks(tmp_path)
    with pytest.raises(BlockMissing):
        store.read([_ref(block)])
    store.put([block], 0)
    assert store.held([_ref(block)]) == [Held.INTACT]
    store.close()


# ---- everyday life ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(_STATES.glob("*.bin")), ids=lambda path: path.name)
def test_real_states_come_back_from_the_store(store: LmdbBlocks, path: Path) -> None:
    raw = path.read_bytes()
    parts = [raw[at : at + 500_000] for at in range(0, len(raw), 500_000)]
    blocks = [encode(part, generation=0) for part in parts]
    store.put(blocks, 0)
    copies = store.read([_ref(block) for block in blocks])
    assert b"".join(bytes(copy) for copy in copies) == raw


def test_what_was_put_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    blocks = [_block(size) for size in (10, 100_000)]
    store = LmdbBlocks(tmp_path)
    store.put(blocks, 3)
    store.barrier()
    store.close()
    store = LmdbBlocks(tmp_path, readonly=True)
    assert [bytes(copy) for copy in store.read([_ref(block) for block in blocks])] == [
        bytes(block.value)[HEADER_BYTES:] for block in blocks
    ]
    assert store.acked_commit() == 3
    store.close()


def test_copies_outlive_the_value_they_were_made_from(store: LmdbBlocks) -> None:
    block = _block(100_000)
    store.put([block], 0)
    copied = store.read([_ref(block)])[0]
    store.delete([block.digest], 0)
    store.put([_block(100_000) for _ in range(10)], 0)
    assert bytes(copied) == bytes(block.value)[HEADER_BYTES:]


def test_the_same_block_twice_in_a_read_comes_back_twice(store: LmdbBlocks) -> None:
    block = _block(1000)
    store.put([block, block], 0)
    one, two = store.read([_ref(block), _ref(block)])
    assert bytes(one) == bytes(two) == bytes(block.value)[HEADER_BYTES:]
    assert store.stats().blocks == 1
    assert store.read([]) == []


def test_stored_bytes_are_the_lengths_of_intact_values(store: LmdbBlocks) -> None:
    zeros, noise, absent = encode(bytes(100_000), generation=0), _block(1000), _block(10)
    store.put([zeros, noise], 0)
    refs = [_ref(zeros), _ref(noise), _ref(absent), BlockRef(noise.digest, 999)]
    sizes = [None if form is None else form.value_bytes for form in store.forms(refs)]
    assert sizes == [zeros.value_bytes, 1064, None, None]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 25)), max_size=30),
    st.integers(1, 9),
    st.binary(max_size=32),
)
def test_a_sweep_sees_every_key_that_is_there_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[bool, int]],
    limit: int,
    behind: bytes,
) -> None:
    store = LmdbBlocks(tmp_path_factory.mktemp("sweep"))
    blocks = [
        encode(
            bytes([number]) + random.Random(number).randbytes(70_000 if number % 2 else 50),
            generation=0,
        )
        for number in range(26)
    ]
    there: set[bytes] = set()
    for keep, number in steps:
        digest = blocks[number].digest
        if keep:
            store.put([blocks[number]], 1)
            there.add(digest)
        else:
            store.delete([digest], 1)
            there.discard(digest)
    seen: list[bytes] = []
    after = None
    while part := store.digests(after, limit):
        assert len(part) <= limit
        seen += part
        after = part[-1]
    assert seen == sorted(there)
    assert store.stats().blocks == len(there)
    if behind:
        assert store.digests(behind, 100) == [key for key in sorted(there) if key > behind]
    store.close()


def test_an_empty_store_has_nothing_to_sweep(store: LmdbBlocks) -> None:
    assert store.digests(None, 10) == []
    assert store.digests(b"\xff" * 32, 10) == []
    store.note_commit(1)
    assert store.digests(None, 10) == []
    assert store.stats().blocks == 0


def test_a_sweep_goes_on_behind_a_key_that_was_deleted_meanwhile(store: LmdbBlocks) -> None:
    blocks = sorted((_block(100) for _ in range(10)), key=lambda block: block.digest)
    store.put(blocks, 0)
    part = store.digests(None, 4)
    store.delete([part[-1]], 0)
    assert store.digests(part[-1], 100) == [block.digest for block in blocks[4:]]


def test_every_way_of_writing_tells_of_the_commit(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    large, small = _block(100_000), _block(10)
    store.put([large], 1)
    assert store.acked_commit() == 1
    store.put([small], 2)
    assert store.acked_commit() == 2
    store.put([], 3)
    assert store.acked_commit() == 3
    store.delete([large.digest], 4)
    assert store.acked_commit() == 4
    store.delete([small.digest], 2)
    assert store.acked_commit() == 4
    store.note_commit(1 << 62)
    store.close()
    store = LmdbBlocks(tmp_path, readonly=True)
    assert store.acked_commit() == 1 << 62
    store.close()


_NOTES = """
import sys
from pathlib import Path
from storage.blocks.lmdb import LmdbBlocks
store = LmdbBlocks(Path(sys.argv[1]))
store.note_commit(20)
store.close()
"""


def test_a_commit_that_another_process_told_of_is_not_taken_back(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    store.note_commit(5)
    subprocess.run(
        [sys.executable, "-c", _NOTES, str(tmp_path)], check=True, cwd=Path(__file__).parents[2]
    )
    assert store.acked_commit() == 20
    store.put([_block(10)], 6)
    store.delete([], 7)
    store.note_commit(8)
    assert store.acked_commit() == 20
    store.close()


@pytest.mark.parametrize("size", [3000, 200_000])
def test_a_batch_that_finds_the_map_full_leaves_nothing_of_itself(
    tmp_path: Path, size: int
) -> None:
    store = LmdbBlocks(tmp_path, map_bytes=2 << 20)
    kept = [_block(3000), _block(100_000)]
    store.put(kept, 1)
    before = store.digests(None, 1000)
    batch = [_block(size) for _ in range((4 << 20) // size)]
    for _ in range(3):
        with pytest.raises(DiskFull):
            store.put(batch, 2)
        assert store.digests(None, 1000) == before
    assert store.held([_ref(block) for block in kept]) == [Held.INTACT] * 2
    store.put(batch[:1], 2)
    store.barrier()
    assert store.held([_ref(batch[0])]) == [Held.INTACT]
    assert store.acked_commit() == 2
    store.close()


def test_room_that_was_deleted_is_used_again(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path, map_bytes=2 << 20)
    for _ in range(20):
        block = _block(500_000)
        store.put([block], 0)
        assert store.held([_ref(block)]) == [Held.INTACT]
        store.delete([block.digest], 0)
    assert store.digests(None, 10) == []
    store.close()


def test_threads_that_write_and_read_see_whole_values_only(store: LmdbBlocks) -> None:
    blocks = [_block(size) for size in [200, 70_000] * 10]
    wrong: list[BaseException] = []

    def write(mine: list[EncodedBlock]) -> None:
        try:
            for block in mine:
                store.put([block], 0)
                assert bytes(store.read([_ref(block)])[0]) == bytes(block.value)[HEADER_BYTES:]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(blocks[at::4],)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert store.held([_ref(block) for block in blocks]) == [Held.INTACT] * 20


def test_a_store_opened_for_reading_writes_nothing(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    block = _block(10)
    store.put([block], 1)
    store.close()
    store = LmdbBlocks(tmp_path, readonly=True)
    with pytest.raises(WriterFailed):
        store.put([_block(20)], 2)
    assert store.digests(None, 10) == [block.digest]
    store.close()


def test_figures_grow_with_what_is_stored(store: LmdbBlocks) -> None:
    before = store.stats()
    store.put([_block(1 << 20), _block(100)], 0)
    after = store.stats()
    assert (before.blocks, after.blocks) == (0, 2)
    assert after.used_bytes - before.used_bytes >= 1 << 20
    assert after.file_bytes >= after.used_bytes
    assert store.reader_check() == 0
