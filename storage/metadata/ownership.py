"""Who owns which block. Invariant: `block.refs` is the number of `state_block` rows, in every commit.

Ownership is taken before the block is written and before its presence is trusted: from the commit
of `own` on, no reclaimer can take the block, because the reclaimer looks at `refs` under the same
write lock (DESIGN section 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, select, update

from storage.errors import OverLimit
from storage.metadata import namespaces, totals
from storage.metadata.schema import block, state_block
from storage.rows import Limits

_ADD_REFS = (
    update(block)
    .where(block.c.id == bindparam("block_id"))
    .values(refs=block.c.refs + bindparam("owners"))
)


def own(
    connection: Connection,
    *,
    state: int,
    namespace_id: int,
    ordinal: int,
    first_seq: int,
    blocks: Sequence[tuple[bytes, int, int]],
    limits: Limits,
) -> None:
    """Make `state` an owner of the next blocks of one component.

    Args:
        state: row of a recording.
        blocks: (digest, raw bytes, stored bytes) in order; repeats allowed.
        limits: what the store and the namespace may hold afterwards.

    Raises:
        OverLimit: nothing was changed; roll back, make room, try again.

    Cost: five statements however many blocks; per block one row in `state_block` and one probe.
    """
    sizes = {digest: (raw, stored) for digest, raw, stored in blocks}
    held = _rows(connection, list(sizes))
    fresh = [digest for digest in sizes if digest not in held]
    new_bytes = sum(sizes[digest][1] for digest in fresh)
    in_namespace = _owned_by_namespace(connection, namespace_id, [id_ for id_, _ in held.values()])
    namespace_bytes = new_bytes + sum(
        stored for id_, stored in held.values() if id_ not in in_namespace
    )
    check_room(connection, namespace_id, limits, new_bytes, namespace_bytes)
    if fresh:
        connection.execute(
            insert(block),
            [
                {
                    "digest": digest,
                    "raw_bytes": sizes[digest][0],
                    "stored_bytes": sizes[digest][1],
                    "refs": 0,
                }
                for digest in fresh
            ],
        )
        held |= _rows(connection, fresh)
    owners = Counter(digest for digest, _, _ in blocks)
    connection.execute(
        _ADD_REFS, [{"block_id": held[digest][0], "owners": n} for digest, n in owners.items()]
    )
    connection.execute(
        insert(state_block),
        [
            {
                "state": state,
                "ordinal": ordinal,
                "seq": first_seq + index,
                "block": held[digest][0],
                "namespace_id": namespace_id,
            }
            for index, (digest, _, _) in enumerate(blocks)
        ],
    )
    totals.add(connection, stored_bytes=new_bytes)
    namespaces.count(connection, namespace_id, stored_bytes=namespace_bytes)


def release(
    connection: Connection, *, state: int, namespace_id: int, ordinal: int | None = None
) -> int:
    """Give up a state's blocks, or those of one component. Returns the bytes left without an owner."""
    mine = state_block.c.state == state
    if ordinal is not None:
        mine &= state_block.c.ordinal == ordinal
    owned: dict[int, int] = dict(
        connection.execute(
            select(state_block.c.block, func.count()).where(mine).group_by(state_block.c.block)
        )
        .tuples()
        .all()
    )
    if not owned:
        return 0
    connection.execute(delete(state_block).where(mine))
    connection.execute(
        _ADD_REFS, [{"block_id": id_, "owners": -count} for id_, count in owned.items()]
    )
    left_namespace = 0
    unowned = 0
    ids = list(owned)
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        still = exists().where(
            state_block.c.block == block.c.id, state_block.c.namespace_id == namespace_id
        )
        left_namespace += connection.execute(
            select(func.coalesce(func.sum(block.c.stored_bytes), 0)).where(
                block.c.id.in_(part), ~still
            )
        ).scalar_one()
        unowned += connection.execute(
            select(func.coalesce(func.sum(block.c.stored_bytes), 0)).where(
                block.c.id.in_(part), block.c.refs == 0
            )
        ).scalar_one()
    namespaces.count(connection, namespace_id, stored_bytes=-left_namespace)
    return int(unowned)


def unowned(connection: Connection, limit: int) -> list[tuple[int, bytes]]:
    """Blocks without an owner: (row, digest). Call under the write lock if they are to be deleted."""
    rows = connection.execute(
        select(block.c.id, block.c.digest)
        .where(block.c.refs == 0)
        .order_by(block.c.id)
        .limit(limit)
    )
    return [(row.id, row.digest) for row in rows]


def forget(connection: Connection, rows: Sequence[int]) -> None:
    """Remove the rows of blocks whose values are gone."""
    freed = connection.execute(
        delete(block).where(block.c.id.in_(rows), block.c.refs == 0).returning(block.c.stored_bytes)
    ).scalars()
    totals.add(connection, stored_bytes=-sum(freed))


def check_room(
    connection: Connection,
    namespace_id: int,
    limits: Limits,
    new_bytes: int = 0,
    namespace_bytes: int = 0,
) -> None:
    """Refuse what would break a byte limit.

    Args:
        new_bytes: what the store would hold in addition.
        namespace_bytes: what the namespace would hold in addition.

    Raises:
        OverLimit: with how much must go first.
    """
    over = totals.stored_bytes(connection) + new_bytes - limits.budget_bytes
    if over > 0:
        raise OverLimit(None, over, 0)
    if limits.namespace_bytes is not None:
        held = namespaces.by_id(connection, namespace_id).stored_bytes
        over = held + namespace_bytes - limits.namespace_bytes
        if over > 0:
            raise OverLimit(namespace_id, over, 0)


def known(connection: Connection, digests: Sequence[bytes]) -> set[bytes]:
    """Which of these digests have a row (owned or waiting to be reclaimed)."""
    return set(_rows(connection, digests))


def _rows(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, tuple[int, int]]:
    rows = connection.execute(
        select(block.c.digest, block.c.id, block.c.stored_bytes).where(block.c.digest.in_(digests))
    )
    return {row.digest: (row.id, row.stored_bytes) for row in rows}


def _owned_by_namespace(connection: Connection, namespace_id: int, ids: list[int]) -> set[int]:
    if not ids:
        return set()
    return set(
        connection.execute(
            select(state_block.c.block)
            .distinct()
            .where(state_block.c.block.in_(ids), state_block.c.namespace_id == namespace_id)
        ).scalars()
    )
