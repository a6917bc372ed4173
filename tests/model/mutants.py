"""Faults to be put into a server on purpose, each of a kind that the contract forbids.

A function here runs in the forked server before it serves. The machine of `machine` must find every one of
them: a test that cannot fail proves nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection

import app.engine.access as access
import app.engine.lookup as lookup
import storage.metadata.ownership as ownership
import storage.metadata.states as states
import storage.metadata.tombstones as tombstones
from storage.blocks.codec import HEADER_BYTES, RAW, Buffer, codec_of
from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef
from storage.rows import StateRow
from storage.store import Store


def serves_what_is_quarantined() -> None:
    found = states.on_path

    def on_path(connection: Connection, namespace_id: int, tokens: bytes) -> list[StateRow]:
        rows = found(connection, namespace_id, tokens)
        return [dataclasses.replace(row, status="live") for row in rows]

    _put(states, "on_path", on_path)


def serves_flipped_bytes() -> None:
    read = LmdbBlocks.read

    def unproven(self: LmdbBlocks, refs: Sequence[BlockRef]) -> list[Buffer]:
        copies: list[Buffer] = []
        for ref in refs:
            value = self._large.begin().get(ref.digest) or self._small.begin().get(ref.digest)
            if value is not None and codec_of(memoryview(value)) == RAW:
                copies.append(memoryview(bytearray(value[HEADER_BYTES:])))
            else:
                copies += read(self, [ref])
        return copies

    _put(LmdbBlocks, "read", unproven)


def evicts_what_is_leased() -> None:
    _put(states, "is_leased", lambda *_: False)


def loses_an_owner() -> None:
    gave_up = ownership._gave_up

    def too_much(connection: Connection, namespace_id: int, owners: Mapping[int, int]) -> int:
        return gave_up(connection, namespace_id, dict(list(owners.items())[:1]))

    _put(ownership, "_gave_up", too_much)


def mixes_tenants() -> None:
    _put(access, "scoped", lambda _tenant, name: name)


def keeps_recordings_of_the_dead() -> None:
    _put(Store, "expire_recordings", lambda _self, **_: 0)


def prefers_the_shortest() -> None:
    def preferred(usable: Sequence[StateRow], accept: Sequence[str]) -> StateRow:
        return usable[-1]

    _put(lookup, "preferred", preferred)


def forgets_what_was_evicted() -> None:
    _put(tombstones, "add", lambda *_: None)


def knows_no_limit_on_entries() -> None:
    _put(states, "_check_live", lambda *_: None)


MUTANTS: Final[tuple[Callable[[], None], ...]] = (
    serves_what_is_quarantined,
    serves_flipped_bytes,
    evicts_what_is_leased,
    loses_an_owner,
    mixes_tenants,
    keeps_recordings_of_the_dead,
    prefers_the_shortest,
    forgets_what_was_evicted,
    knows_no_limit_on_entries,
)


def _put(place: Any, name: str, replacement: Any) -> None:
    """Only what is there is replaced, so that a mutant does not outlive what it breaks."""
    assert hasattr(place, name), f"{place} has no {name} any more"
    setattr(place, name, replacement)
