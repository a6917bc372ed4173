"""When LMDB or the disk below it fails: damage is named, a full disk passes, and a lost sync is the end."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from storage.blocks.codec import HEADER_BYTES, EncodedBlock, encode
from storage.blocks.lmdb import LARGE_VALUE_BYTES, LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.errors import BlockDamaged, StoreUnusable, WriterFailed
from tests.support.disk.shim import Shim


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbBlocks]:
    found = LmdbBlocks(tmp_path)
    yield found
    found.close()


def _block(size: int) -> EncodedBlock:
    return encode(os.urandom(size), generation=1)


def _ref(block: EncodedBlock) -> BlockRef:
    return BlockRef(block.digest, block.raw_bytes)


_LEAF, _BRANCH = 0x02, 0x01


def _mark_pages(folder: Path, flags: int, mark: int) -> int:
    """Give every page of that kind other flags, as a bad write would; returns how many there were."""
    path = folder / "data.mdb"
    data = bytearray(path.read_bytes())
    found = 0
    for start in range(2 * 4096, len(data), 4096):
        own = int.from_bytes(data[start : start + 8], "little") * 4096 == start
        if own and int.from_bytes(data[start + 10 : start + 12], "little") == flags:
            data[start + 10 : start + 12] = mark.to_bytes(2, "little")
            found += 1
    path.write_bytes(data)
    return found


def _low_space(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def test_a_damaged_value_is_healed_by_one_of_another_size_class(tmp_path: Path) -> None:
    raw = b"compresses well " * 8_000
    kept_raw = encode(raw, generation=0, least_gain=2.0)
    packed = encode(raw, generation=0)
    assert len(packed.value) < LARGE_VALUE_BYTES <= len(kept_raw.value)
    for env_name, first, then in (
        ("large", kept_raw, packed),
        ("small", packed, kept_raw),
    ):
        folder = tmp_path / str(len(first.value))
        store = LmdbBlocks(folder)
        store.put([first], 0)
        store.close()
        bad = bytearray(first.value)
        bad[-1] ^= 1
        env = lmdb.open(str(folder / env_name), map_size=1 << 40)
        with env.begin(write=True) as txn:
            txn.put(first.digest, bytes(bad))
        env.close()
        store = LmdbBlocks(folder)
        assert store.held([_ref(first)]) == [Held.DAMAGED]
        store.put([then], 0)
        assert store.held([_ref(first)]) == [Held.INTACT]
        assert bytes(store.read([_ref(first)])[0]) == raw
        assert store.stats().blocks == 1
        store.close()


def test_copies_stay_what_they_are_while_their_pages_are_used_again(store: LmdbBlocks) -> None:
    blocks = [_block(256 << 10) for _ in range(8)]
    store.put(blocks, 0)
    copies = store.read([_ref(block) for block in blocks])
    store.delete([block.digest for block in blocks], 0)
    before = store.stats().file_bytes
    for _ in range(6):
        others = [_block(256 << 10) for _ in range(8)]
        store.put(others, 0)
        store.delete([block.digest for block in others], 0)
    assert store.stats().file_bytes < before + 5 * 8 * (256 << 10)  # so pages were used again
    assert [bytes(copy) for copy in copies] == [bytes(b.value)[HEADER_BYTES:] for b in blocks]


def test_a_damaged_tree_is_damage_of_the_blocks_behind_it_and_of_no_other(tmp_path: Path) -> None:
    store = LmdbBlocks(tmp_path)
    large, small = [_block(70_000) for _ in range(200)], [_block(1000) for _ in range(20)]
    store.put([*large, *small], 0)
    store.close()
    assert _mark_pages(tmp_path / "large", _LEAF, _BRANCH) > 1
    store = LmdbBlocks(tmp_path)
    refs = [_ref(block) for block in (*large, *small)]
    held = store.held(refs)
    assert Held.DAMAGED in held[:200]
    assert Held.INTACT not in held[:200]
    assert held[200:] == [Held.INTACT] * 20
    with pytest.raises(BlockDamaged) as caught:
        store.read([refs[held.index(Held.DAMAGED)]])
    assert caught.value.digest == refs[held.index(Held.DAMAGED)].digest
    assert len(store.read(refs[200:])) == 20
    with pytest.raises(StoreUnusable):
        store.digests(None, 1000)
    store.close()


def test_files_that_are_no_block_store_are_named_when_opened(tmp_path: Path) -> None:
    LmdbBlocks(tmp_path).close()
    (tmp_path / "large" / "data.mdb").write_bytes(b"something else" * 1000)
    with pytest.raises(StoreUnusable, match="large"):
        LmdbBlocks(tmp_path)
    with pytest.raises(StoreUnusable, match="large"):
        LmdbBlocks(tmp_path / "absent", readonly=True)
    (tmp_path / "large" / "data.mdb").unlink()
    LmdbBlocks(tmp_path).close()  # nothing was left open


_FILLING = """
import os, resource, shutil, signal, sys
from pathlib import Path
from storage.blocks.codec import encode
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef
from storage.errors import DiskFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = LmdbBlocks(Path(sys.argv[1]))
usage = shutil.disk_usage("/")._replace(free=1 << 20)
shutil.disk_usage = lambda folder: usage
kept = encode(os.urandom(100_000), generation=0)
store.put([kept], 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
for size in (4 << 20, 1000):
    try:
        blocks = [encode(os.urandom(size), generation=0) for _ in range((2 << 20) // size + 1)]
        store.put(blocks, 7)
    except DiskFull as error:
        print(error, store.acked_commit())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put([encode(os.urandom(100_000), generation=0)], 7)
store.barrier()
print(store.acked_commit(), store.stats().blocks)
store.delete([kept.digest], 7)
print(store.acked_commit(), store.stats().blocks)
"""


def test_a_full_disk_refuses_the_write_and_the_store_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FILLING, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == [
        "the device is full 0",
        "the device is full 0",
        "7 2",
        "7 1",
    ]


_LOSING_A_WRITE = """
import os, sys
from pathlib import Path
from storage.blocks.codec import encode
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.errors import DiskFull, WriterFailed
from tests.support.disk.shim import WRITE, Shim

folder, error = Path(sys.argv[1]), int(sys.argv[2])
shim = Shim(folder)
sizes = (100_000, 10)
refs = lambda blocks: [BlockRef(b.digest, b.raw_bytes) for b in blocks]
kept = [encode(os.urandom(size), generation=0) for size in sizes]
store = LmdbBlocks(folder)
store.put(kept, 1)
k, failed = 0, 1
while failed:
    blocks = [encode(os.urandom(size), generation=0) for size in sizes]
    shim.fail(WRITE, error, skip=k, times=1)
    said = "written"
    try:
        store.put(blocks, 2 + k)
    except (DiskFull, WriterFailed) as told:
        said = type(told).__name__
    failed = shim.failed()
    shim.heal()
    assert store.held(refs(kept)) == [Held.INTACT] * 2
    assert len(store.read(refs(kept))) == 2
    assert store.stats().blocks >= 2
    print(said)
    if said == "WriterFailed":
        store.close()
        store = LmdbBlocks(folder)
    store.put(blocks, 2 + k)
    store.barrier()
    kept = blocks
    assert store.held(refs(kept)) == [Held.INTACT] * 2
    k += 1
"""


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_what_was_written_is_read_whichever_write_fails(tmp_path: Path, error: int) -> None:
    """LMDB gives an environment up, for reads too, when its meta page could not be written."""
    shim = Shim(tmp_path / "blocks")
    done = subprocess.run(
        [sys.executable, "-c", _LOSING_A_WRITE, str(tmp_path / "blocks"), str(error)],
        env={**os.environ, **shim.environment},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    refused = "DiskFull" if error == errno.ENOSPC else "WriterFailed"
    # Two environments, each with the pages of a commit and a meta page at least.
    assert said == [refused] * (len(said) - 1) + ["written"]
    assert len(said) > 4


class _Failing:
    """An environment whose next write or sync fails."""

    def __init__(self, env: lmdb.Environment, error: Exception) -> None:
        self._env = env
        self._error = error

    def sync(self, force: bool) -> None:
        raise self._error

    def begin(self, **how: bool) -> Any:
        if how.get("write"):
            raise self._error
        return self._env.begin(**how)  # type: ignore[call-overload]


def test_a_failed_barrier_is_never_taken_for_a_full_disk(
    store: LmdbBlocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second sync after a failed one succeeds with the pages lost: it must not be asked for.
    store.put([_block(100_000)], 0)
    _low_space(monkeypatch)
    with monkeypatch.context() as patch:
        failing = _Failing(store._large, lmdb.Error("Input/output error"))
        patch.setattr(store, "_large", failing)
        with pytest.raises(WriterFailed):
            store.barrier()
    with pytest.raises(WriterFailed):
        store.barrier()
    with pytest.raises(WriterFailed):
        store.put([_block(10)], 0)


@pytest.mark.parametrize("error", [lmdb.PanicError, lmdb.CorruptedError, lmdb.BadTxnError])
def test_a_broken_store_is_never_taken_for_a_full_disk(
    store: LmdbBlocks, monkeypatch: pytest.MonkeyPatch, error: type[lmdb.Error]
) -> None:
    _low_space(monkeypatch)
    monkeypatch.setattr(store, "_large", _Failing(store._large, error("broken")))
    with pytest.raises(WriterFailed):
        store.put([_block(100_000)], 0)


_LOCKING = """
import fcntl, pathlib, sys
files = [open(path, "r+b") for path in pathlib.Path(sys.argv[1]).glob("*/lock.mdb")]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, int(sys.argv[2]))
print(len(files), flush=True)
sys.stdin.read()
"""


def test_a_process_of_another_container_with_our_number_is_named(tmp_path: Path) -> None:
    """Both would be one reader to LMDB, which takes a lock at the place of its number."""
    LmdbBlocks(tmp_path).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", _LOCKING, str(tmp_path), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "2\n"
    try:
        with pytest.raises(StoreUnusable, match="run the command inside that container"):
            LmdbBlocks(tmp_path)
    finally:
        holder.communicate()
    LmdbBlocks(tmp_path).close()
