"""The integrity check: does every derived figure and every reference agree with what it stands for?

Read-only; may run beside a server, but compares two stores of slightly different moments then, so
its word is final only while nothing is written. Each finding is a sentence; none is good news.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, func, select

from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.layout import DataFolder
from storage.metadata import radix
from storage.metadata.database import Database
from storage.metadata.schema import (
    block,
    namespace,
    radix_node,
    recording,
    state,
    state_block,
    store,
)


def check(data_dir: Path, *, allow_unowned: bool = False) -> list[str]:
    """Compare refs with owners, totals with sums, trees with their rules, and rows with LMDB.

    Args:
        data_dir: the data folder.
        allow_unowned: whether blocks waiting to be reclaimed are in order.

    Returns:
        Findings; empty when all is well.
    """
    folder = DataFolder(data_dir)
    database = Database(folder.database)
    blocks = LmdbBlocks(folder.blocks, readonly=True)
    try:
        with database.snapshot() as connection:
            findings = [*_structure(connection), *of_metadata(connection)]
            rows = {
                row.digest: (row.raw_bytes, row.refs)
                for row in connection.execute(
                    select(block.c.digest, block.c.raw_bytes, block.c.refs)
                )
            }
        findings += _values(rows, blocks, allow_unowned=allow_unowned)
    finally:
        blocks.close()
        database.close()
    return findings


def of_metadata(connection: Connection) -> list[str]:
    """The part of the check that asks the metadata alone; also inside a transaction."""
    return [
        *_refs(connection),
        *_totals(connection),
        *_trees(connection),
        *_life(connection),
    ]


def _structure(connection: Connection) -> list[str]:
    rows = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
    foreign = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    found = [f"sqlite: {row}" for row in rows if row != "ok"]
    return found + [f"sqlite: a row of {row[0]} refers to nothing in {row[2]}" for row in foreign]


def _refs(connection: Connection) -> list[str]:
    owners = (
        select(state_block.c.block, func.count().label("owners"))
        .group_by(state_block.c.block)
        .subquery()
    )
    rows = connection.execute(
        select(block.c.id, block.c.refs, func.coalesce(owners.c.owners, 0))
        .outerjoin(owners, owners.c.block == block.c.id)
        .where(block.c.refs != func.coalesce(owners.c.owners, 0))
    )
    return [f"block {id_} counts {refs} owners but has {real}" for id_, refs, real in rows]


def _totals(connection: Connection) -> list[str]:
    findings = []
    stored, entries = connection.execute(select(store.c.stored_bytes, store.c.entries)).one()
    blocks = connection.execute(
        select(func.coalesce(func.sum(block.c.stored_bytes), 0))
    ).scalar_one()
    overhead = connection.execute(
        select(func.coalesce(func.sum(state.c.overhead_bytes), 0))
    ).scalar_one()
    live = connection.execute(select(func.count()).where(state.c.status == "live")).scalar_one()
    if stored != blocks + overhead:
        findings.append(f"the store counts {stored} bytes but holds {blocks + overhead}")
    if entries != live:
        findings.append(f"the store counts {entries} live states but holds {live}")
    for row in connection.execute(select(namespace)):
        distinct = (
            select(state_block.c.block)
            .where(state_block.c.namespace_id == row.id)
            .distinct()
            .subquery()
        )
        owned = connection.execute(
            select(func.coalesce(func.sum(block.c.stored_bytes), 0)).where(
                block.c.id.in_(select(distinct.c.block))
            )
        ).scalar_one()
        charged = connection.execute(
            select(func.coalesce(func.sum(state.c.overhead_bytes), 0)).where(
                state.c.namespace_id == row.id
            )
        ).scalar_one()
        alive, logical = connection.execute(
            select(func.count(), func.coalesce(func.sum(state.c.logical_bytes), 0)).where(
                state.c.namespace_id == row.id, state.c.status == "live"
            )
        ).one()
        if (row.stored_bytes, row.entries, row.logical_bytes) != (owned + charged, alive, logical):
            findings.append(
                f"namespace {row.id} counts {row.stored_bytes} bytes, {row.entries} states and "
                f"{row.logical_bytes} logical bytes but has {owned + charged}, {alive}, {logical}"
            )
    return findings


def _trees(connection: Connection) -> list[str]:
    findings = []
    for namespace_id in connection.execute(select(namespace.c.id)).scalars().all():
        findings += radix.check(connection, namespace_id)
    return findings


def _life(connection: Connection) -> list[str]:
    findings = []
    rows = connection.execute(
        select(state.c.state_id, state.c.status, state.c.token_count, radix_node.c.depth).outerjoin(
            radix_node, radix_node.c.id == state.c.node_id
        )
    )
    for state_id, status, token_count, depth in rows:
        if status == "recording" and depth is not None:
            findings.append(f"state {state_id} is being recorded but lookups can see it")
        if depth is not None and depth != token_count:
            findings.append(f"state {state_id} has {token_count} tokens but lies at depth {depth}")
    lonely = connection.execute(
        select(func.count())
        .select_from(state)
        .outerjoin(recording, recording.c.state == state.c.id)
        .where((state.c.status == "recording") != recording.c.state.is_not(None))
    ).scalar_one()
    if lonely:
        findings.append(f"{lonely} states and their recording rows do not fit together")
    return findings


def _values(
    rows: dict[bytes, tuple[int, int]], blocks: LmdbBlocks, *, allow_unowned: bool
) -> list[str]:
    findings = []
    keys: set[bytes] = set()
    after: bytes | None = None
    while part := blocks.digests(after, 4096):
        keys.update(part)
        after = part[-1]
    stray = len(keys - rows.keys())
    if stray:
        findings.append(f"{stray} block values have no row")
    unowned = sum(1 for _, refs in rows.values() if refs == 0)
    if unowned and not allow_unowned:
        findings.append(f"{unowned} blocks have no owner")
    owned = [BlockRef(digest, raw) for digest, (raw, refs) in rows.items() if refs > 0]
    for start in range(0, len(owned), 64):
        part_of = owned[start : start + 64]
        for ref, at in zip(part_of, blocks.held(part_of), strict=True):
            if at is not Held.INTACT:
                findings.append(f"block {ref.digest.hex()} is {at.name.lower()}")
    return findings
