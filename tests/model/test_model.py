"""The service beside a model of it, step by step; and proof that the machine finds faults that are there.

A failure prints the steps in as few as were found to do, and a line `@reproduce_failure(...)`: put it above the
class that `_machine` makes, and run the test again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import CacheMachine
from tests.model.mutants import MUTANTS
from tests.support.server import Server

_TESTED_EXAMPLES = 5
_TESTED_STEPS = 20
_SOAKED_EXAMPLES = 2_000
_SOAKED_STEPS = 40
# As many examples as a mutant may outlive.
_MUTANTS_EXAMPLES = 100


def _machine(server: Callable[..., Server] = Server) -> type[CacheMachine]:
    """A machine that counts for itself."""

    class Machine(CacheMachine):
        examples = 0
        steps = 0

    Machine.server = staticmethod(server)
    return Machine


def _run(machine: type[CacheMachine], examples: int, steps: int, **more: Any) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )


def test_the_service_agrees_with_the_model_after_every_step() -> None:
    """The same few examples every time."""
    machine = _machine()
    _run(machine, _TESTED_EXAMPLES, _TESTED_STEPS, derandomize=True, database=None)
    assert machine.examples >= _TESTED_EXAMPLES


@pytest.mark.soak
def test_the_service_agrees_with_the_model_in_many_lives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine, began = _machine(), time.monotonic()
    try:
        _run(machine, int(os.environ.get("SOAK_LIVES", _SOAKED_EXAMPLES)), _SOAKED_STEPS)
    finally:
        with capsys.disabled():
            print(
                f"\n{machine.examples:,} examples, {machine.steps:,} steps compared, "
                f"{time.monotonic() - began:.0f} s"
            )


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_seeded_fault_is_found(
    mutant: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine = _machine(partial(Server, sabotage=mutant))
    with pytest.raises((AssertionError, Flaky)):
        _run(
            machine,
            _MUTANTS_EXAMPLES,
            _SOAKED_STEPS,
            database=None,
            phases=[Phase.generate],
            derandomize=True,
        )
    with capsys.disabled():
        print(f"\n{mutant.__name__}: found after {machine.steps:,} steps")
