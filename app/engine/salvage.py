"""A new data folder of what a damaged one still proves.

A state is copied if its tokens hash to the digest it was recorded with, its rows to the seal of its manifest,
and every one of its blocks to its key: then it is what was recorded, whatever else is broken. It goes the way
of every recording (`storage/store.py`), so that refs, totals and trees are made anew. Nothing else is copied:
limits, modes, tenants, access tokens and leases prove nothing about themselves, and a quarantined state is
evidence that stays where it is.

The damaged folder is only read. What is made lies in a folder beside the target, which gets its name when all
of it was proven and made durable: cut off before, there is no target, and the next salvage begins anew.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.engine.admission import overhead_bytes
from app.engine.identity import identity_digest, model_of, token_digest
from app.engine.manifest import ManifestMismatch, load
from app.engine.proof import findings
from storage.blocks.codec import EncodedBlock
from storage.blocks.store import BlockRef
from storage.errors import StorageError, StoreUnusable
from storage.failpoints import failpoint
from storage.layout import DataFolder, in_use, sync
from storage.recovery import mark_clean, recover
from storage.rows import AdmissionFacts, Arrival, Limits, NewComponent, NewRecording
from storage.salvage import tables
from storage.salvage.pages import FoundValues
from storage.salvage.rescued import Rescued, RescuedRows
from storage.store import Publication, Store

_NO_LIMITS: Final = Limits(budget_bytes=1 << 60, max_entries=1 << 60)
_TTL_MS: Final = 3_600_000
_BATCH_BYTES: Final = 32 << 20
_WAIT_MS: Final = 60_000


@dataclass(slots=True)
class Salvaged:
    """What came of it. `lost`: state id and why, of live states whose row could be read.

    `unread`: a sentence for each table that could not be read to its end, so that there may have been more.
    """

    states: int = 0
    bytes: int = 0
    quarantined_left: int = 0
    lost: list[tuple[str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def salvage(
    source: DataFolder,
    target: Path,
    *,
    upgrade: Callable[[Path], None],
    progress: Callable[[int, int], None],
) -> Salvaged:
    """Copy what proves itself from `source` into the new folder `target`.

    Args:
        upgrade: makes a database of this version's schema.
        progress: called with (done, total) states.

    Raises:
        StoreUnusable: the source is in use or holds nothing that proves itself, or the target is not new;
            there is no target then.
    """
    _check(source, target)
    partial = target.with_name(f".{target.name}.salvaging")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(mode=0o700, parents=True)
        done = _fill(source, DataFolder(partial), upgrade, progress)
        if not done.states and (lost := done.unread or [why for _, why in done.lost]):
            raise StoreUnusable(
                f"nothing in {source.path} verifies ({'; '.join(lost[:3])}): bring a backup back with "
                "`statehold restore`"
            )
        for folder, _, names in os.walk(partial):
            for name in names:
                sync(Path(folder) / name)
            sync(Path(folder))
        failpoint("salvage.before_rename")
        partial.rename(target)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise StoreUnusable(f"{target} cannot be written: {error.strerror}") from error
        raise
    sync(target.parent)
    return done


def _check(source: DataFolder, target: Path) -> None:
    if not source.database.exists():
        raise StoreUnusable(f"there is no data in {source.path}")
    if source.is_locked() or in_use(source):
        raise StoreUnusable(f"the data folder {source.path} is in use: stop its processes first")
    here, there = source.path.resolve(), target.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise StoreUnusable(f"{target} must lie outside the damaged folder")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreUnusable(f"{target} is not empty: name a new folder")


def _fill(
    source: DataFolder,
    folder: DataFolder,
    upgrade: Callable[[Path], None],
    progress: Callable[[int, int], None],
) -> Salvaged:
    done = Salvaged()
    folder.prepare()
    upgrade(folder.database)
    work = folder.path / "rescue"
    copy = tables.copy_database(source.database, work)
    tables.mend_first_page(copy, folder.database)
    done.unread = tables.rescue(copy, work / "rows.db")
    rows = RescuedRows(work / "rows.db")
    store = Store(folder)
    try:
        recover(store)
        counts = rows.counts()
        done.quarantined_left = counts["quarantined"]
        writer = _Writer(store, FoundValues(source.blocks), rows)
        for number, rescued in enumerate(rows.live()):
            progress(number, counts["live"])
            try:
                done.bytes += writer.copy(rescued)
                done.states += 1
            except _NotProven as error:
                done.lost.append((str(rescued.state.state_id), str(error)))
        mark_clean(store)
    finally:
        store.close()
        rows.close()
    tables.remove(work)
    shutil.rmtree(folder.instances, ignore_errors=True)
    failpoint("salvage.before_proof")
    wrong = findings(folder.path, lambda _done, _total: None)
    if wrong:
        raise StoreUnusable(f"what was copied does not verify: {wrong[0]}")
    return done


class _NotProven(Exception):
    """The state is not, or not wholly, what was recorded; says why."""


class _Writer:
    """Proves rescued states and records them anew."""

    def __init__(self, store: Store, values: FoundValues, rows: RescuedRows) -> None:
        self._store = store
        self._values = values
        self._rows = rows
        self._described: set[str] = set()

    def copy(self, rescued: Rescued) -> int:
        """Record a state under its own id; returns its raw bytes.

        Raises:
            _NotProven: nothing of it was kept.
        """
        blocks = self._proven(rescued)
        new = _as_new(rescued)
        facts = self._store.admit(new, _if_not_held, _WAIT_MS)
        if facts.held_state_id is not None:
            raise _NotProven("another state of the same prefix and kind was copied")
        try:
            self._write(rescued, blocks)
        except StorageError as error:
            self._store.drop_recording(new.state_id)
            self._store.reclaim()
            if isinstance(error, StoreUnusable):
                raise _NotProven(str(error)) from error
            raise
        self._describe(rescued)
        return new.logical_bytes

    def _proven(self, rescued: Rescued) -> list[EncodedBlock]:
        if rescued.problem:
            raise _NotProven(rescued.problem)
        state = rescued.state
        try:
            if token_digest(rescued.namespace, rescued.tokens) != state.token_digest:
                raise _NotProven("its tokens are not those that it was recorded for")
            if len(rescued.tokens) != 4 * state.token_count:
                raise _NotProven("its tokens are not as many as were recorded")
            load(state, rescued.components, rescued.blocks)
        except ManifestMismatch as error:
            raise _NotProven(str(error)) from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            # A damaged row may hold anything where a number or a digest belongs.
            raise _NotProven("its rows are not of the kind that was recorded") from error
        found = []
        for owned in rescued.blocks:
            block = self._values.block(BlockRef(owned.digest, owned.raw_bytes))
            if block is None:
                raise _NotProven(f"block {owned.digest.hex()} is damaged or missing")
            found.append(block)
        return found

    def _write(self, rescued: Rescued, blocks: list[EncodedBlock]) -> None:
        recording = self._store.catalog.recording(rescued.state.state_id)
        assert recording is not None
        for component in rescued.components:
            mine = [
                (owned.seq, block)
                for owned, block in zip(rescued.blocks, blocks, strict=True)
                if owned.ordinal == component.ordinal
            ]
            while mine:
                size = taken = 0
                while taken < len(mine) and size < _BATCH_BYTES:
                    size += mine[taken][1].value_bytes
                    taken += 1
                now, mine = mine[:taken], mine[taken:]
                some = [block for _, block in now]
                seqs = [seq for seq, _ in now]
                self._store.own(recording.state, component.ordinal, seqs, some, _NO_LIMITS)
                self._store.put(some)
            assert component.digest is not None
            arrival = Arrival(
                component.digest, bool(component.by_blocks), row_bytes=component.row_bytes
            )
            self._store.finish_component(recording.state, component.ordinal, arrival)
        digest = rescued.state.manifest_digest
        assert digest is not None
        self._store.barrier()
        [refused] = self._store.publish(
            [Publication(rescued.state.state_id, lambda _recording, _blocks: digest, _NO_LIMITS)]
        )
        if refused is not None:
            raise refused

    def _describe(self, rescued: Rescued) -> None:
        """The identity of a namespace whose name is proven by a state, where its digest proves it."""
        if rescued.namespace in self._described:
            return
        self._described.add(rescued.namespace)
        _, identity, digest = self._rows.namespaces[rescued.state.namespace_id]
        try:
            document = json.loads(identity)
            if identity_digest(document) != digest:
                return
        except (TypeError, ValueError, AttributeError):
            return
        values = {"identity": identity, "identity_digest": digest, "model": model_of(document)}
        self._store.ledger.change_namespace(rescued.namespace, lambda _: values, create=True)


def _as_new(rescued: Rescued) -> NewRecording:
    state = rescued.state
    described = len((state.kv_descriptor or "").encode())
    described += sum(len(c.geometry or b"") for c in rescued.components)
    return NewRecording(
        state_id=state.state_id,
        namespace=rescued.namespace,
        page_id=state.page_id,
        kind=state.kind,
        tokens=rescued.tokens,
        token_digest=state.token_digest,
        components=tuple(
            NewComponent(c.name, c.raw_bytes, c.geometry, c.row_bytes) for c in rescued.components
        ),
        kv_descriptor=state.kv_descriptor,
        overhead_bytes=overhead_bytes(state.token_count, len(rescued.blocks), described),
        replace=False,
        ttl_ms=_TTL_MS,
    )


def _if_not_held(facts: AdmissionFacts) -> Limits | None:
    return _NO_LIMITS if facts.held_state_id is None else None
