"""Damage done to the files of a data folder, the way hardware would: behind everybody's back."""

from __future__ import annotations

from pathlib import Path

import lmdb
from blake3 import blake3
from pysqlite3 import dbapi2

from storage.integrity import check


def flip_block(data: Path, raw: bytes, *, at: int = 1000) -> None:
    """Flip one bit of the stored value of the block with these raw bytes, in the LMDB file itself."""
    flip_value(data, blake3(raw).digest(), at=at)


def flip_value(data: Path, digest: bytes, *, at: int = 1000) -> None:
    """Flip one bit of the stored value of a block, however it is encoded, in the LMDB file itself."""
    for name in ("large", "small"):
        file = data / "blocks" / name / "data.mdb"
        image = file.read_bytes()
        start = 0
        found = False
        # The header holds the digest 24 bytes in; old copies of the page may hold it too.
        while (position := image.find(b"SHBK", start)) >= 0:
            start = position + 4
            if image[position + 24 : position + 56] == digest:
                target = position + 64 + at
                with file.open("r+b") as handle:
                    handle.seek(target)
                    handle.write(bytes([image[target] ^ 0x10]))
                found = True
        if found:
            return
    raise AssertionError("the block is stored in no file")


def lose_value(data: Path, digest: bytes) -> None:
    """Take the stored value of a block out of LMDB and leave its rows."""
    for name in ("large", "small"):
        with (
            lmdb.open(str(data / "blocks" / name), map_size=1 << 40, max_dbs=1) as env,
            env.begin(write=True) as txn,
        ):
            if txn.delete(digest):
                return
    raise AssertionError("the block is in no file")


def blocks_of(data: Path, state_id: str, component: str) -> list[bytes]:
    """Digests of a component's blocks in their order."""
    rows = sql(
        data,
        "SELECT block.digest FROM state JOIN component ON component.state = state.id "
        "JOIN state_block ON state_block.state = state.id AND state_block.ordinal = component.ordinal "
        "JOIN block ON block.id = state_block.block "
        "WHERE state.state_id = ? AND component.name = ? ORDER BY state_block.seq",
        state_id,
        component,
    )
    found = [digest for (digest,) in rows if isinstance(digest, bytes)]
    assert found
    return found


def sql(data: Path, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    """Run a statement on the metadata as another process would."""
    connection = dbapi2.connect(str(data / "metadata.db"), timeout=10, isolation_level=None)
    try:
        return list(connection.execute(statement, parameters))
    finally:
        connection.close()


def checked(data: Path, *, allow_unowned: bool = False) -> list[str]:
    """Findings of the integrity check."""
    return check(data, allow_unowned=allow_unowned)
