"""Damage done to the files of a data folder, the way hardware would: behind everybody's back."""

from __future__ import annotations

from pathlib import Path

from blake3 import blake3
from pysqlite3 import dbapi2

from storage.integrity import check


def flip_block(data: Path, raw: bytes, *, at: int = 1000) -> None:
    """Flip one bit of the stored value of the block with these raw bytes, in the LMDB file itself."""
    digest = blake3(raw).digest()
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
    raise AssertionError("the block is not stored raw in any file")


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
