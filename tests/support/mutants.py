"""The product with a fault put in, to prove that a test finds such a fault.

Run as a module with `serve`; the variable MUTANT names the fault.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import lmdb

from app.cli import main
from storage.blocks.codec import EncodedBlock
from storage.blocks.lmdb import LmdbBlocks
from storage.metadata.database import Database
from storage.store import Store


def _no_barrier() -> None:
    """A commit is acknowledged before its blocks are durable."""
    LmdbBlocks.barrier = lambda self: None  # type: ignore[method-assign]


def _no_block_sync() -> None:
    """LMDB is told not to sync at all."""
    opened = lmdb.open

    def careless(*arguments: Any, **options: Any) -> Any:
        return opened(*arguments, **{**options, "sync": False})

    lmdb.open = careless  # type: ignore[assignment]
    _no_barrier()


def _no_full_commits() -> None:
    """SQL commits are acknowledged before they are durable."""
    write = Database.write

    @contextmanager
    def careless(self: Database, *, durable: bool, wait_ms: int | None = None) -> Iterator[Any]:
        with write(self, durable=False, wait_ms=wait_ms) as connection:
            yield connection

    Database.write = careless  # type: ignore[method-assign]


def _careless_eviction() -> None:
    """Blocks are deleted before the removal of their state is durable."""
    evict, write = Store.evict, Database.write

    def careless(self: Store, *arguments: Any, **options: Any) -> Any:
        @contextmanager
        def loose(_: Database, *, durable: bool, wait_ms: int | None = None) -> Iterator[Any]:
            with write(self.db, durable=False, wait_ms=wait_ms) as connection:
                yield connection

        self.db.write = loose.__get__(self.db)  # type: ignore[method-assign]
        try:
            return evict(self, *arguments, **options)
        finally:
            del self.db.write

    Store.evict = careless  # type: ignore[method-assign]


def _blocks_after_sql() -> None:
    """Blocks are written once their state has been made live."""
    put, publish = LmdbBlocks.put, Store.publish
    waiting: list[tuple[LmdbBlocks, Sequence[EncodedBlock], int]] = []

    def later(self: LmdbBlocks, blocks: Sequence[EncodedBlock], acked_commit: int) -> None:
        waiting.append((self, list(blocks), acked_commit))

    def then(self: Store, *arguments: Any, **options: Any) -> Any:
        done = publish(self, *arguments, **options)
        while waiting:
            put(*waiting.pop(0))
        return done

    LmdbBlocks.put = later  # type: ignore[method-assign]
    Store.publish = then  # type: ignore[method-assign]


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "no_barrier": _no_barrier,
    "no_block_sync": _no_block_sync,
    "no_full_commits": _no_full_commits,
    "careless_eviction": _careless_eviction,
    "blocks_after_sql": _blocks_after_sql,
}

if __name__ == "__main__":
    MUTANTS[os.environ["MUTANT"]]()
    raise SystemExit(main())
