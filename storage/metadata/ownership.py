"""Who owns which block. Invariant: `block.refs` is the number of `state_block` rows, in every commit.

Ownership is taken before the block is written and before its presence is trusted: from the commit
of `own` on, no reclaimer can take the block, because the reclaimer looks at `refs` under the same
write lock (DESIGN section 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, select, update

from storage.errors import OverLimit, StoreDamaged
from storage.metadata import namespaces, tenants, totals
from storage.metadata.schema import block, namespace, state_block
from storage.metadata.schema import state as state_table
from storage.metadata.statements import HotStatement
from storage.rows import Limits, ScrubRow

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
_SHOWN = HotStatement(
    select(block.c.raw_bytes, block.c.stored_bytes).where(
        block.c.digest == bindparam("digest"),
        exists().where(
            state_block.c.block == block.c.id,
            state_block.c.namespace_id == namespace.c.id,
            namespace.c.tenant == bindparam("tenant"),
        ),
    )
)
_AT = (
    (state_block.c.state == bindparam("state"))
    & (state_block.c.ordinal == bindparam("ordinal"))
    & (state_block.c.seq == bindparam("seq"))
)
_OWNED_AT = HotStatement(select(state_block.c.block).where(_AT))
_DISOWN_AT = HotStatement(delete(state_block).where(_AT))
_FORGET = HotStatement(
    delete(block)
    .where(block.c.id == bindparam("which"), block.c.refs == 0)
    .returning(block.c.stored_bytes, block.c.digest)
)

_PAGE = HotStatement(
    select(
        block.c.id,
        block.c.digest,
        block.c.raw_bytes,
        block.c.stored_bytes,
        exists().where(
            state_block.c.block == block.c.id,
            state_table.c.id == state_block.c.state,
            state_table.c.status == "live",
        ),
    )
    .where(block.c.id > bindparam("after"), block.c.refs > 0)
    .order_by(block.c.id)
    .limit(bindparam("most"))
)


def own(
    connection: Connection,
    *,
    state: int,
    namespace_id: int,
    ordinal: int,
    seqs: Sequence[int],
    blocks: Sequence[tuple[bytes, int, int]],
    limits: Limits,
) -> int:
    """Make `state` an owner of blocks of one component.

    Args:
        state: row of a recording.
        seqs: places in the component that it owns nothing at yet, one for each block.
        blocks: (digest, raw bytes, stored bytes); repeats allowed.
        limits: what the store and the namespace may hold afterwards.

    Returns:
        Raw bytes of the blocks among them that had no row.

    Raises:
        OverLimit: roll back, make room, try again.

    Cost: for each distinct block two point reads and up to two writes, for each block one row.
    """
    sizes = {digest: (raw, stored) for digest, raw, stored in blocks}
    rows: dict[bytes, int] = {}
    new_bytes = namespace_bytes = new_raw_bytes = 0
    for digest, (raw_bytes, stored_bytes) in sizes.items():
        found = _FIND.first(connection, digest=digest)
        if found is None:
            new_bytes += stored_bytes
            new_raw_bytes += raw_bytes
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
                "seq": seq,
                "which": rows[digest],
                "namespace_id": namespace_id,
            }
            for seq, (digest, _, _) in zip(seqs, blocks, strict=True)
        ),
    )
    totals.add(connection, stored_bytes=new_bytes)
    namespaces.count(connection, namespace_id, stored_bytes=namespace_bytes)
    return new_raw_bytes


def shown(
    connection: Connection, tenant: str, digests: Sequence[bytes]
) -> dict[bytes, tuple[int, int]]:
    """(raw bytes, stored bytes) of those blocks whose bytes the tenant has brought.

    Only who has shown the bytes becomes an owner, so an owner among its namespaces is the proof.
    """
    found = {}
    for digest in digests:
        row = _SHOWN.first(connection, digest=digest, tenant=tenant)
        if row is not None:
            found[digest] = (row[0], row[1])
    return found


def disown(
    connection: Connection, *, state: int, namespace_id: int, ordinal: int, seqs: Sequence[int]
) -> None:
    """Give up single blocks of a component."""
    which = [_OWNED_AT.scalar(connection, state=state, ordinal=ordinal, seq=seq) for seq in seqs]
    for seq in seqs:
        _DISOWN_AT.run(connection, state=state, ordinal=ordinal, seq=seq)
    _gave_up(connection, namespace_id, Counter(which))


def release(
    connection: Connection, *, state: int, namespace_id: int, ordinal: int | None = None
) -> int:
    """Give up a state's blocks, or those of one component. Returns the bytes left without an owner."""
    which = _ALL if ordinal is None else ordinal
    owned = _OWNED.all(connection, state=state, ordinal=which)
    if not owned:
        return 0
    _DISOWN.run(connection, state=state, ordinal=which)
    return _gave_up(connection, namespace_id, dict(owned))


def _gave_up(connection: Connection, namespace_id: int, owners: Mapping[int, int]) -> int:
    """So many owners of these block rows are gone. Returns the bytes left without an owner."""
    _ADD_REFS.many(connection, ({"which": id_, "owners": -n} for id_, n in owners.items()))
    left_namespace = unowned_bytes = 0
    for id_ in owners:
        stored_bytes, refs, still_in_namespace = _AFTERWARDS.one(
            connection, which=id_, namespace_id=namespace_id
        )
        if not still_in_namespace:
            left_namespace += stored_bytes
        if refs == 0:
            unowned_bytes += stored_bytes
    namespaces.count(connection, namespace_id, stored_bytes=-left_namespace)
    return int(unowned_bytes)


def unowned(connection: Connection, limit: int) -> list[tuple[int, bytes]]:
    """Blocks without an owner: (row, digest). Call under the write lock if they are to be deleted."""
    return _UNOWNED.all(connection, most=limit)


def forget(connection: Connection, rows: Sequence[int]) -> list[bytes]:
    """Remove the rows of blocks that nobody owns, by the table and not by an index of it.

    Returns:
        Digests of those that went: their values may go before this is committed, and no others.
    """
    found = [_FORGET.first(connection, which=row) for row in rows]
    gone = [row for row in found if row is not None]
    totals.add(connection, stored_bytes=-sum(stored_bytes for stored_bytes, _ in gone))
    return [digest for _, digest in gone]


def forget_unowned(connection: Connection, limit: int) -> list[bytes]:
    """Remove the rows of up to `limit` blocks without an owner: their digests, none once all are gone.

    Raises:
        StoreDamaged: an index names some, and the table has none of them so. Whoever goes on until nothing is
            left would never end.
    """
    rows = unowned(connection, limit)
    gone = forget(connection, [row for row, _ in rows])
    if rows and not gone:
        raise StoreDamaged("the database's index of blocks without an owner names none")
    return gone


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
        raise OverLimit(None, "bytes", over)
    if limits.namespace_bytes is not None:
        held = namespaces.by_id(connection, namespace_id).stored_bytes
        over = held + namespace_bytes - limits.namespace_bytes
        if over > 0:
            raise OverLimit(namespace_id, "bytes", over)
    if limits.tenant_bytes is not None:
        held = tenants.usage(connection, limits.tenant).stored_bytes
        over = held + namespace_bytes - limits.tenant_bytes
        if over > 0:
            raise OverLimit(limits.tenant, "bytes", over)


def known(connection: Connection, digests: Sequence[bytes]) -> set[bytes]:
    """Which of these digests have a row (owned or waiting to be reclaimed)."""
    return {digest for digest in digests if _FIND.first(connection, digest=digest) is not None}


def page(connection: Connection, after: int, limit: int) -> list[ScrubRow]:
    """Blocks with an owner whose rows lie behind `after`."""
    rows = _PAGE.all(connection, after=after, most=limit)
    return [
        ScrubRow(id_, digest, raw, stored, bool(live)) for id_, digest, raw, stored, live in rows
    ]
