"""Every target with all that is known of it, and with mutations of that; needs no fuzzer."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.fuzz.corpus import KEPT, NAMES, inputs, load
from tests.fuzz.mutation import mutants

# Settings are read 500 times slower than anything else is parsed.
MUTANTS = {"toml": 200}
MOST_MUTANTS = 1500
# Of one input of at most 64 KiB: what it is put into, its pieces and the words about it.
MOST_BYTES = 16 << 20


@pytest.mark.parametrize("name", NAMES)
def test_what_is_known_of_a_parser_holds(name: str) -> None:
    target, known = load(name).target, inputs(name)
    assert len(known) > 3
    target(b"")
    tracemalloc.start()
    try:
        for data in known:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            target(data)
            assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES, data[:100]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", NAMES)
def test_mutations_of_it_hold_too(name: str) -> None:
    target = load(name).target
    for data in mutants(inputs(name), MUTANTS.get(name, MOST_MUTANTS), seed=20261203):
        try:
            target(data)
        except Exception as error:
            raise AssertionError(f"{name} with {data!r}") from error


def test_the_kept_inputs_are_few_and_small() -> None:
    files = [file for file in KEPT.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 300 << 10
    assert {file.parent.name for file in files} <= set(NAMES)
