"""Runs schemathesis, as its users do, against a server and reads what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

_ROOT: Final = Path(__file__).parents[2]

# A refusal for want of room, or of a moment, is an answer with a problem body that the schema declares,
# and is held against it like any other. What fits a schema may still not fit the store (two forms of the
# tokens, an announced length), so that good data need not be accepted; bad data must be refused.
_CONFIG: Final = """
hooks = "tests.fuzz.hooks"

[cache]
enabled = false

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503, 507]
[checks.positive_data_acceptance]
enabled = false
[checks.negative_data_rejection]
expected-statuses = ["4xx", 503, 507]

[warnings]
enabled = false
"""


@dataclass(frozen=True)
class Outcome:
    """What a run came to. `report` is schemathesis's own, with every failure and how to repeat it."""

    cases: int
    failures: int
    report: str


def run(
    url: str,
    folder: Path,
    *,
    phases: Sequence[str],
    examples: int,
    seed: int,
    secret: str | None = None,
    in_turn: Sequence[str] = (),
    operator: str = "",
    kept: Sequence[str] = (),
    timeout_s: float = 560,
) -> Outcome:
    """Fuzz the whole document.

    Args:
        examples: cases of each operation, and walks along links, at most; coverage has its own number.
        secret: token of every case. Without one the document is taken without its security, so that
            open access is no finding.
        in_turn: tokens that cases take in turn, instead.
        operator: token for putting things back.
        kept: ids of tokens that must not be revoked.
    """
    document = httpx.get(f"{url}/openapi.json", timeout=30).json()
    if secret is None:
        _drop_security(document)
    schema, config, report = folder / "openapi.json", folder / "fuzz.toml", folder / "report.json"
    schema.write_text(json.dumps(document))
    config.write_text(_CONFIG)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
        *("run", str(schema), "--url", url, "--phases", ",".join(phases)),
        *("--max-examples", str(examples), "--seed", str(seed), "--no-color"),
        *("--continue-on-failure", "--request-timeout", "30", "--generation-database", "none"),
        *("--report", "json", "--report-json-path", str(report)),
    ]
    if secret is not None:
        command += ["-H", f"Authorization: Bearer {secret}"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "FUZZ_URL": url,
        "FUZZ_OPERATOR": operator,
        "FUZZ_TOKENS": ",".join(in_turn),
        "FUZZ_KEPT": ",".join(kept),
    }
    done = subprocess.run(
        command,
        cwd=folder,  # it keeps what crashed where it is started
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    failures = len(found["failures"]) + len(found["errors"])
    assert (done.returncode == 0) == (failures == 0), done.stdout + done.stderr
    assert found["complete"], done.stdout
    return Outcome(found["test_cases"]["generated"], failures, done.stdout)


def _drop_security(document: dict[str, Any]) -> None:
    del document["components"]["securitySchemes"]
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
