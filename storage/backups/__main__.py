"""The child that makes a backup: `python -m storage.backups DATA_DIR BACKUP_DIR NAME VERSION RESERVE_BYTES`.

Says how far it is and how it ended in lines of JSON on standard output. It ends when its standard input does,
so that it never outlives the server that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from storage.backups.copying import back_up
from storage.errors import StorageError
from storage.layout import DataFolder

_SAY_EVERY_SECONDS = 0.25


def main() -> None:
    """Make it, and say how it went."""
    data_dir, backup_dir, name, version, reserve_bytes = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.umask(0o077)
    os.nice(5)  # lookups come first
    said = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= _SAY_EVERY_SECONDS:
            said = now
            _say({"done": done, "total": total})

    try:
        made = back_up(
            DataFolder(Path(data_dir)),
            Path(backup_dir),
            name,
            version=version,
            reserve_bytes=int(reserve_bytes),
            progress=progress,
        )
    except StorageError as error:
        _say({"error": type(error).__name__, "detail": str(error)})
        return
    _say(
        {
            "states": made.manifest.states,
            "quarantined": made.manifest.quarantined,
            "quarantined_here": made.quarantined_here,
            "blocks": made.manifest.blocks,
            "bytes": made.manifest.size_bytes,
            "bad": [[digest.hex(), raw_bytes] for digest, raw_bytes in made.bad_digests],
        }
    )


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
