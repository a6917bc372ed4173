"""Coverage-guided fuzzing of the targets with atheris (extra `fuzz`).

    python -m tests.fuzz.guided [TARGET ...] [--seconds N] [--corpus FOLDER]

Each target runs in a process of its own for so many seconds, begins with all that is known of it, and
keeps what led somewhere new in FOLDER/TARGET. An input that breaks what must hold is printed, and the
exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.corpus import NAMES, inputs

_ROOT: Final = Path(__file__).parents[2]
_MOST_BYTES: Final = 1 << 14
# Of the process: atheris keeps what it saw compared, 4 GiB in 400 s of the descriptor target, which
# alone stays at 35 MiB. What one input may take is the limit that counts.
_MOST_RSS_MIB: Final = 12_288
_MOST_ALLOCATED_MIB: Final = 64
_SLOWEST_SECONDS: Final = 10


@dataclass(frozen=True)
class Found:
    """What a run of one target came to."""

    name: str
    executions: int
    failed: bool
    log: str


def fuzz(name: str, seconds: int, corpus: Path) -> Found:
    """Run one target in a process of its own."""
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    for index, data in enumerate(inputs(name)):
        (folder / f"known-{index:04}").write_bytes(data)
    with tempfile.TemporaryDirectory() as broken:
        command = [
            *(sys.executable, "-m", "tests.fuzz.guided", "--inside", name),
            *(str(folder), f"-max_total_time={seconds}", f"-max_len={_MOST_BYTES}"),
            *(f"-rss_limit_mb={_MOST_RSS_MIB}", f"-malloc_limit_mb={_MOST_ALLOCATED_MIB}"),
            *(
                f"-timeout={_SLOWEST_SECONDS}",
                f"-artifact_prefix={broken}/",
                "-print_final_stats=1",
            ),
        ]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        for file in Path(broken).iterdir():
            log += f"\n{file.name}: {file.read_bytes()!r}"
    count = re.search(r"number_of_executed_units: (\d+)", log)
    return Found(name, 0 if count is None else int(count[1]), done.returncode != 0, log)


def _inside(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["app", "storage"]):
        from tests.fuzz.corpus import load

        target = load(name).target
    atheris.Setup([name, *arguments], target)
    atheris.Fuzz()


def main() -> int:
    """Fuzz the targets named, or all of them; the exit code is 1 if one of them broke."""
    if sys.argv[1:2] == ["--inside"]:
        _inside(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.fuzz.guided")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--corpus", type=Path, help="where to keep what led somewhere new")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(NAMES):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    broken = False
    with tempfile.TemporaryDirectory() as forgotten:
        for name in options.targets or NAMES:
            found = fuzz(name, options.seconds, options.corpus or Path(forgotten))
            print(f"{name}: {found.executions} executions, {'broken' if found.failed else 'held'}")
            if found.failed:
                print(found.log[-6000:])
            broken |= found.failed
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
