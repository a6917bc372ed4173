"""The integrity check: does every derived figure and every reference agree with what it stands for?

Read-only; may run beside a server, but compares two stores of slightly different moments then, so
its word is final only while nothing is written. Each finding is a sentence; none is good news.

Cost: a fixed number of passes over the metadata whatever the number of namespaces, and one over the
blocks; the answer of a query is findings, never all rows. Memory: one entry for each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, LargeBinary, case, exists, func, or_, select
from sqlalchemy.exc import DatabaseError

from storage.blocks.lmdb import LmdbBlocks
from storage.blocks.store import BlockRef, Held
from storage.errors import StoreUnusable
from storage.layout import DataFolder
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

_TOKEN_BYTES: Final = 4


def check(data_dir: Path, *, allow_unowned: bool = False) -> list[str]:
    """Compare refs with owners, totals with sums, trees with their rules, and rows with LMDB.

    Args:
        data_dir: the data folder.
        allow_unowned: whether blocks waiting to be reclaimed are in order.

    Returns:
        Findings; empty when all is well.

    Raises:
        StoreUnusable: there is no data folder, or it cannot be opened.
    """
    folder = DataFolder(data_dir)
    if not folder.database.exists():
        raise StoreUnusable(f"there is no data in {folder.path}")
    # Opened under the start lock: a compaction, which holds it, renames other files over these.
    with folder.starting():
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
        with database.read() as connection:
            findings += _bad(connection, rows, blocks)
    finally:
        blocks.close()
        database.close()
    return findings


def check_metadata(database: Database) -> list[str]:
    """The part of the check that needs no block; what SQLite cannot even read is a finding too."""
    try:
        with database.snapshot() as connection:
            return [*_structure(connection), *of_metadata(connection)]
    except DatabaseError as error:
        return [f"sqlite: {error.orig}"]


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
    rows = connection.execute(
        select(
            namespace.c.id, namespace.c.stored_bytes, namespace.c.entries, namespace.c.logical_bytes
        )
    )
    owned, held = _owned(connection), _held(connection)
    for id_, *counted in rows:
        charged, alive, logical = held.get(id_, (0, 0, 0))
        real = [owned.get(id_, 0) + charged, alive, logical]
        if counted != real:
            findings.append(
                f"namespace {id_} counts {counted[0]} bytes, {counted[1]} states and "
                f"{counted[2]} logical bytes but has {real[0]}, {real[1]}, {real[2]}"
            )
    return findings


def _owned(connection: Connection) -> dict[int, int]:
    """Bytes of the distinct blocks of each namespace, in one walk along the owners' index."""
    distinct = select(state_block.c.block, state_block.c.namespace_id).distinct().subquery()
    rows = connection.execute(
        select(distinct.c.namespace_id, func.sum(block.c.stored_bytes))
        .join(block, block.c.id == distinct.c.block)
        .group_by(distinct.c.namespace_id)
    )
    return {row[0]: row[1] for row in rows}


def _held(connection: Connection) -> dict[int, tuple[int, int, int]]:
    """Overhead, live states and their logical bytes of each namespace."""
    live = state.c.status == "live"
    rows = connection.execute(
        select(
            state.c.namespace_id,
            func.sum(state.c.overhead_bytes),
            func.sum(case((live, 1), else_=0)),
            func.sum(case((live, state.c.logical_bytes), else_=0)),
        ).group_by(state.c.namespace_id)
    )
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def _trees(connection: Connection) -> list[str]:
    """The rules of `storage/metadata/radix.py`, asked of every node of every namespace in one pass."""
    t, parent, child = radix_node, radix_node.alias("parent"), radix_node.alias("child")
    inner = t.c.parent_id.is_not(None)
    end_bytes = parent.c.depth * _TOKEN_BYTES + func.length(t.c.edge)
    children = select(func.count()).where(child.c.parent_id == t.c.id).scalar_subquery()
    rules = {
        "a root is not empty": ~inner
        & ((t.c.depth != 0) | (func.length(t.c.edge) > 0) | (func.length(t.c.first_token) > 0)),
        "it hangs in another namespace": inner
        & parent.c.namespace_id.is_distinct_from(t.c.namespace_id),
        "it does not begin with its first token": inner
        & (
            (func.length(t.c.edge) == 0)
            | (func.substr(t.c.edge, 1, _TOKEN_BYTES, type_=LargeBinary) != t.c.first_token)
        ),
        "it does not lie where its edge ends": inner
        & (t.c.depth * _TOKEN_BYTES).is_distinct_from(end_bytes),
        "it serves nothing": inner & ~exists().where(state.c.node_id == t.c.id) & (children < 2),
    }
    rows = connection.execute(
        select(t.c.id, *(rule.label(f"rule_{n}") for n, rule in enumerate(rules.values())))
        .outerjoin(parent, parent.c.id == t.c.parent_id)
        .where(or_(*rules.values()))
    )
    return [
        f"node {id_}: {sentence}"
        for id_, *broken in rows
        for sentence, is_broken in zip(rules, broken, strict=True)
        if is_broken
    ]


def _life(connection: Connection) -> list[str]:
    findings = []
    seen = (state.c.status == "recording") & radix_node.c.depth.is_not(None)
    rows = connection.execute(
        select(state.c.state_id, state.c.status, state.c.token_count, radix_node.c.depth)
        .join(radix_node, radix_node.c.id == state.c.node_id)
        .where(seen | (radix_node.c.depth != state.c.token_count))
    )
    for state_id, status, token_count, depth in rows:
        if status == "recording":
            findings.append(f"state {state_id} is being recorded but lookups can see it")
        if depth != token_count:
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
    stray = 0
    after: bytes | None = None
    while part := blocks.digests(after, 4096):
        stray += sum(digest not in rows for digest in part)
        after = part[-1]
    if stray:
        findings.append(f"{stray} block values have no row")
    unowned = sum(1 for _, refs in rows.values() if refs == 0)
    if unowned and not allow_unowned:
        findings.append(f"{unowned} blocks have no owner")
    return findings


def _bad(
    connection: Connection, rows: dict[bytes, tuple[int, int]], blocks: LmdbBlocks
) -> Iterator[str]:
    # A recording owns its blocks before they are written (`storage/store.py`, step 2): one that was
    # cut off lacks some until the next start drops it. What it has is whole all the same.
    owned = [BlockRef(digest, raw) for digest, (raw, refs) in rows.items() if refs > 0]
    for start in range(0, len(owned), 64):
        part_of = owned[start : start + 64]
        for ref, at in zip(part_of, blocks.held(part_of), strict=True):
            if at is Held.DAMAGED or (
                at is Held.ABSENT and not _being_recorded(connection, ref.digest)
            ):
                yield f"block {ref.digest.hex()} is {at.name.lower()}"


def _being_recorded(connection: Connection, digest: bytes) -> bool:
    """Whether recordings are all that owns a block."""
    other = (
        select(state.c.id)
        .join(state_block, state_block.c.state == state.c.id)
        .join(block, block.c.id == state_block.c.block)
        .where(block.c.digest == digest, state.c.status != "recording")
        .limit(1)
    )
    return connection.execute(other).first() is None
