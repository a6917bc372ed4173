"""The `statehold` command, run as a function: a process of its own costs a second."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from typing import Any

import pytest

from app.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def sentence(self) -> str:
        """The one sentence on standard error."""
        (line,) = self.err.splitlines()
        assert line.startswith("statehold: "), line
        return line.removeprefix("statehold: ")


class Command:
    """Runs the command line with settings of its own and none of the environment's."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: object, **settings: object) -> Done:
        before, handlers = dict(os.environ), logging.getLogger().handlers[:]
        level, mask = logging.getLogger().level, os.umask(0o077)
        os.umask(mask)
        values = {"log_level": "error", "free_disk_reserve_bytes": "64MiB", **settings}
        for name in before:
            if name.startswith("STATEHOLD_"):
                del os.environ[name]
        os.environ.update({f"STATEHOLD_{name.upper()}": str(v) for name, v in values.items()})
        self._capture.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:  # argparse
            code = int(str(ended.code))
        finally:
            # All that the command changes of its process.
            os.umask(mask)
            os.environ.clear()
            os.environ.update(before)
            logging.getLogger().handlers[:] = handlers
            logging.getLogger().setLevel(level)
        out, err = self._capture.readouterr()
        return Done(code, out, err)
