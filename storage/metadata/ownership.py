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
from storage.metadata.statements import HotStatement
from storage.rows import Limits

_FIND = HotStatement(
    select(block.c.id, block.c.stored_bytes).where(block.c.digest == bindparam("digest"))
)
_ADD = HotStatement(
    insert(block)
    .values(
        digest=bindparam("digest"),
        raw_bytes=bindparam("raw_bytes"),
        stored_bytes=bindparam("stored_bytes"),
        refs=0,
    )
    .returning(block.c.id)
)
_ADD_REFS = HotStatement(
    update(block)
    .where(block.c.id == bindparam("which"))
    .values(refs=block.c.refs + bindparam("owners"))
)
_OWNED_IN_NAMESPACE = HotStatement(
    select(state_block.c.block)
    .where(
        state_block.c.block == bindparam("which"),
        state_block.c.namespace_id == bindparam("namespace_id"),
    )
    .limit(1)
)
_ADD_OWNER = HotStatement(
    insert(state_block).values(
        state=bindparam("state"),
        ordinal=bindparam("ordinal"),
        seq=bindparam("seq"),
        block=bindparam("which"),
        namespace_id=bindparam("namespace_id"),
    )
)
_ALL = -1  # no component has this ordinal
_MINE = (state_block.c.state == bindparam("state")) & (
    (bindparam("ordinal") == _ALL) | (state_block.c.ordinal == bindparam("ordinal"))
)
_OWNED = HotStatement(
    select(state_block.c.block, func.count()).where(_MINE).group_by(state_block.c.block)
)
_DISOWN = HotStatement(delete(state_block).where(_MINE))
_AFTERWARDS = HotStatement(
    select(
        block.c.stored_bytes,
        block.c.refs,
        exists().where(
            state_block.c.block == bindparam("which"),
            state_block.c.namespace_id == bindparam("namespace_id"),
        ),
    ).where(block.c.id == bindparam("which"))
)
_UNOWNED = HotStatement(
    select(block.c.id, block.c.digest)
    .where(block.c.refs == 0)
    .order_by(block.c.id)
    .limit(bindparam("most"))
)
_FORGET = HotStatement(
    delete(block)
    .where(block.c.id == bindparam("which"), block.c.refs == 0)
    .returning(block.c.stored_bytes)
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
        OverLimit: roll back, make room, try again.

    Cost: for each distinct block two point reads and up to two writes, for each block one row.
    """
    sizes = {digest: (raw, stored) for digest, raw, stored in blocks}
    rows: dict[bytes, int] = {}
    new_bytes = namespace_bytes = 0
    for digest, (raw_bytes, stored_bytes) in sizes.items():
        found = _FIND.first(connection, digest=digest)
        if found is None:
            new_bytes += stored_bytes
            namespace_bytes += stored_bytes
            rows[digest] = _ADD.scalar(
                connection, digest=digest, raw_bytes=raw_bytes, stored_bytes=stored_bytes
            )
            continue
        rows[digest], held_bytes = found
        if (
            _OWNED_IN_NAMESPACE.first(connection, which=rows[digest], namespace_id=namespace_id)
            is None
        ):
            namespace_bytes += held_bytes
    check_room(connection, namespace_id, limits, new_bytes, namespace_bytes)
    owners = Counter(digest for digest, _, _ in blocks)
    _ADD_REFS.many(connection, ({"which": rows[d], "owners": n} for d, n in owners.items()))
    _ADD_OWNER.many(
        connection,
        (
            {
                "state": state,
                "ordinal": ordinal,
                "seq": first_seq + index,
                "which": rows[digest],
                "namespace_id": namespace_id,
            }
            for index, (digest, _, _) in enumerate(blocks)
        ),
    )
    totals.add(connection, stored_bytes=new_bytes)
    namespaces.count(connection, namespace_id, stored_bytes=namespace_bytes)


def release(
    connection: Connection, *, state: int, namespace_id: int, ordinal: int | None = None
) -> int:
    """Give up a state's blocks, or those of one component. Returns the bytes left without an owner."""
    which = _ALL if ordinal is None else ordinal
    owned = _OWNED.all(connection, state=state, ordinal=which)
    if not owned:
        return 0
    _DISOWN.run(connection, state=state, ordinal=which)
    _ADD_REFS.many(connection, ({"which": id_, "owners": -count} for id_, count in owned))
    left_namespace = unowned_bytes = 0
    for id_, _ in owned:
        row = _AFTERWARDS.first(connection, which=id_, namespace_id=namespace_id)
        assert row is not None
        stored_bytes, refs, still_in_namespace = row
        if not still_in_namespace:
            left_namespace += stored_bytes
        if refs == 0:
            unowned_bytes += stored_bytes
    namespaces.count(connection, namespace_id, stored_bytes=-left_namespace)
    return int(unowned_bytes)


def unowned(connection: Connection, limit: int) -> list[tuple[int, bytes]]:
    """Blocks without an owner: (row, digest). Call under the write lock if they are to be deleted."""
    return _UNOWNED.all(connection, most=limit)


def forget(connection: Connection, rows: Sequence[int]) -> None:
    """Remove the rows of blocks whose values are gone."""
    freed = sum(_FORGET.scalar(connection, which=row) or 0 for row in rows)
    totals.add(connection, stored_bytes=-freed)


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
    return {digest for digest in digests if _FIND.first(connection, digest=digest) is not None}
