"""Commands on a data folder, run as an operator runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def statehold(
    data: Path, *arguments: str, failpoint: str | None = None, **settings: object
) -> subprocess.CompletedProcess[str]:
    """Run the command line with `data` as its data folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")}
    environment |= {
        "STATEHOLD_DATA_DIR": str(data),
        "STATEHOLD_LOG_LEVEL": "error",
        "STATEHOLD_FREE_DISK_RESERVE_BYTES": "64MiB",
        **{f"STATEHOLD_{name.upper()}": str(value) for name, value in settings.items()},
    }
    if failpoint is not None:
        environment["STATEHOLD_FAILPOINT"] = failpoint
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=_ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
