"""The coverage-guided fuzzer over every target; an hour and more in all, in `make soak`."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.fuzz.corpus import NAMES
from tests.fuzz.guided import fuzz

SECONDS = int(os.environ.get("FUZZ_SECONDS", 400))


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_atheris_finds_breaks_a_parser(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has wheels for Linux on x86-64 only (extra `fuzz`)")
    found = fuzz(name, SECONDS, tmp_path)
    print(f"{name}: {found.executions} executions")
    assert not found.failed, found.log[-6000:]
    assert found.executions > 1000
