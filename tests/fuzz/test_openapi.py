"""schemathesis on the whole OpenAPI document: no 5xx, and nothing that the document does not say.

The short form covers the schemas once, openly, and a few cases of every operation with a token of every
scope. The long form (`make soak`) has at least 50,000 cases. FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.scopes import SCOPES
from tests.conftest import ServerFactory
from tests.fuzz.openapi import Outcome, run
from tests.support.damage import checked
from tests.support.server import Server

LEAST_CASES = 50_000
# Reading whole bodies and a few recordings at once is a bounded cost, however many cases there are.
MOST_GROWTH_KIB = 256 << 10
ALL = "coverage", "examples", "fuzzing", "stateful"


def _peak_kib(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def _sound(server: Server, outcomes: list[Outcome], peak_kib: int) -> None:
    """Nothing was found, nothing unexpected was logged, and the store is whole."""
    for outcome in outcomes:
        assert outcome.failures == 0, outcome.report
    assert "unexpected_error" not in server.logged()
    assert "undocumented_code" not in server.logged()
    assert httpx.get(f"{server.url}/readyz").json()["ready"]
    assert _peak_kib(server) - peak_kib < MOST_GROWTH_KIB
    server.stop()
    assert checked(server.data) == []


def _tokens(server: Server) -> tuple[dict[str, str], list[str]]:
    """A secret for each scope and one for all, and the ids; the one for all is the first of them."""
    secrets: dict[str, str] = {}
    ids = []
    for name, scopes in {"all": list(SCOPES), **{scope: [scope] for scope in SCOPES}}.items():
        made = httpx.post(
            f"{server.url}/admin/v1/tokens",
            json={"label": name, "scopes": scopes},
            headers={"Authorization": f"Bearer {secrets.get('all', '')}"} if secrets else {},
        ).json()
        secrets[name] = made["secret"]
        ids.append(made["token_id"])
    return secrets, ids


@pytest.mark.timeout(600)
def test_whoever_sends_whatever_gets_what_the_document_says(
    start: ServerFactory, tmp_path: Path
) -> None:
    server = start(access="open")
    peak_kib = _peak_kib(server)
    outcome = run(server.url, tmp_path, phases=ALL, examples=1, seed=1)
    assert outcome.cases > 1000
    _sound(server, [outcome], peak_kib)


@pytest.mark.timeout(600)
def test_a_token_of_any_scope_gets_what_the_document_says(
    start: ServerFactory, tmp_path: Path
) -> None:
    server = start()
    peak_kib = _peak_kib(server)
    secrets, ids = _tokens(server)
    outcome = run(
        server.url,
        tmp_path,
        phases=("fuzzing", "stateful"),
        examples=3,
        seed=1,
        in_turn=list(secrets.values()),
        operator=secrets["all"],
        kept=ids,
    )
    assert outcome.cases > 100
    _sound(server, [outcome], peak_kib)


@pytest.mark.soak
def test_fifty_thousand_cases_get_what_the_document_says(
    start: ServerFactory, tmp_path: Path
) -> None:
    """Rounds with a token of each scope, one of all, and open access, until there are enough."""
    seed = int(os.environ.get("FUZZ_SEED", random.randrange(1 << 30)))
    least = int(os.environ.get("FUZZ_CASES", LEAST_CASES))
    print(f"seed {seed}")
    cases = 0
    # Tokens first: whoever fuzzes openly makes some, and the store is closed from then on.
    server = start()
    secrets, ids = _tokens(server)
    kept = {"operator": secrets["all"], "kept": ids}
    while cases < least:
        peak_kib, outcomes = _peak_kib(server), []
        for name, secret in secrets.items():
            seed += 1
            outcomes.append(_long(server, tmp_path, seed, f"scope {name}", secret=secret, **kept))
        _sound(server, outcomes, peak_kib)
        open_server = start(access="open")
        peak_kib = _peak_kib(open_server)
        outcomes.append(_long(open_server, tmp_path, seed, "open access"))
        _sound(open_server, outcomes, peak_kib)
        cases += sum(outcome.cases for outcome in outcomes)
        print(f"{cases} cases")
        server = start()


def _long(server: Server, folder: Path, seed: int, name: str, **access: Any) -> Outcome:
    outcome = run(server.url, folder, phases=ALL, examples=60, seed=seed, timeout_s=7200, **access)
    print(f"{outcome.cases} cases with {name} (seed {seed}): {outcome.failures} failures")
    return outcome
