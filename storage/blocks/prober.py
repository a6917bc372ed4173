"""Reading and proving blocks in a process of its own, so that no page, however broken, ends the server.

LMDB trusts its pages. Of 300 bits flipped in structure pages (py-lmdb 3.0.0) 299 gave a right answer, an
absent key, another value or an exception, and one a SIGBUS: a scrub, which means to read every page,
would find that one for sure and take the server with it. So a child opens the block store for
reading, and the parent only learns how each block is. A child that dies is started again and asked for
the blocks of its last batch one by one; the one that it dies of is damaged. (A restore reads in the
server: it reads only what it was asked for, and 100 us for each block would be too much.)

Wire, native byte order: to the child a count, then (key, raw bytes) of each block; from it one byte and 32
more for each: how it is held, and the digest that was found instead, zeros where there is none. The child
ends when its standard input does, so it never outlives its parent.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import lmdb

from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.children import child_environment
from storage.errors import BlockFault, BlockMissing, StoreUnusable

_COUNT: Final = struct.Struct("=I")
_ASKED: Final = struct.Struct("=32sQ")
_TOLD: Final = struct.Struct("=B32s")
_HOW: Final = (Held.INTACT, Held.ABSENT, Held.DAMAGED)
_NOTHING: Final = bytes(32)
# The child's start, and after that one batch from a device that hardly answers.
_PATIENCE_SECONDS: Final = 60.0
MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Proof:
    """How a block is: decoded and compared with its key. `actual` is the digest of other bytes."""

    held: Held
    reason: str = ""
    actual: bytes | None = None


class Prober:
    """Asks a child about blocks. For one thread; close it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    def prove(self, refs: Sequence[BlockRef]) -> list[Proof]:
        """How each block is, in order; at most `MOST_AT_ONCE`.

        Raises:
            StoreUnusable: the child cannot open the block store, or does not answer in time.
        """
        try:
            return self._ask(refs)
        except _ChildDied:
            return [self._alone(ref) for ref in refs]

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _alone(self, ref: BlockRef) -> Proof:
        try:
            return self._ask([ref])[0]
        except _ChildDied as error:
            return Proof(Held.DAMAGED, f"reading it ends the process ({error})")

    def _ask(self, refs: Sequence[BlockRef]) -> list[Proof]:
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        asked = b"".join(_ASKED.pack(ref.digest, ref.raw_bytes) for ref in refs)
        try:
            child.stdin.write(_COUNT.pack(len(refs)) + asked)
            child.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        told = self._answer(child.stdout, _TOLD.size * len(refs))
        return [
            Proof(_HOW[how], _SENTENCES[how], None if actual == _NOTHING else actual)
            for how, actual in _TOLD.iter_unpack(told)
        ]

    def _start(self) -> subprocess.Popen[bytes]:
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "storage.blocks.prober", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        assert self._child.stdout is not None
        try:
            self._answer(self._child.stdout, 1)
        except _ChildDied as error:
            raise StoreUnusable(f"the block store cannot be opened for reading ({error})") from None
        return self._child

    def _answer(self, pipe: IO[bytes], size: int) -> bytes:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        parts = bytearray()
        while len(parts) < size:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise StoreUnusable("the device did not give a batch of blocks within a minute")
            part = os.read(pipe.fileno(), size - len(parts))
            if not part:
                raise self._died()
            parts += part
        return bytes(parts)

    def _died(self) -> _ChildDied:
        child, self._child = self._child, None
        assert child is not None
        with suppress(BrokenPipeError):
            child.communicate()
        code = child.returncode
        return _ChildDied(f"signal {-code}" if code < 0 else f"exit code {code}")


class _ChildDied(Exception):
    """The child has ended without an answer."""


_SENTENCES: Final = ("", "the block is not there", "the stored value is not what was recorded")


def _prove(blocks: LmdbBlocks, ref: BlockRef) -> bytes:
    try:
        blocks.read([ref])
    except BlockMissing:
        return _TOLD.pack(1, _NOTHING)
    except BlockFault as error:
        return _TOLD.pack(2, error.actual or _NOTHING)
    except lmdb.Error:
        return _TOLD.pack(2, _NOTHING)
    return _TOLD.pack(0, _NOTHING)


def main() -> None:
    """The child: answer until nobody asks any more."""
    os.nice(5)  # lookups come first
    blocks = LmdbBlocks(Path(sys.argv[1]), readonly=True)
    asked, told = sys.stdin.buffer, sys.stdout.buffer
    told.write(b"+")
    told.flush()
    while head := asked.read(_COUNT.size):
        (count,) = _COUNT.unpack(head)
        for digest, raw_bytes in _ASKED.iter_unpack(asked.read(_ASKED.size * count)):
            told.write(_prove(blocks, BlockRef(digest, raw_bytes)))
        told.flush()


if __name__ == "__main__":
    main()
