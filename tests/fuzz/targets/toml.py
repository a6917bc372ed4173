"""The settings file: any bytes give settings, or a sentence for each that is wrong."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from app.settings import Settings, explain
from app.settings_file import CONFIG_VARIABLE, UnusableSettings

_file: Final = tempfile.NamedTemporaryFile(suffix=".toml")  # noqa: SIM115  (of the whole process)


def seeds() -> Iterator[bytes]:
    yield b'host = "127.0.0.1"\nport = 8080\nbudget_bytes = "64GiB"\n'
    yield b"lease_ttl_s = 100\nmax_lease_ttl_s = 50\nlog_json = false\n"
    yield b'socket = "/tmp/x"\naccess = "tokens"\nidle_timeout_s = 1e3\nlog_level = "info"'
    yield b"workers = 0x7f\nmin_tokens = [1, {a = 2}]\n[budget_bytes]\nx = 1979-05-27T07:32:00Z"
    yield b'prot = 1\n"\\u0000" = inf\nport = true\nhost = """\n"""'


def target(data: bytes) -> None:
    path = Path(_file.name)
    path.write_bytes(data)
    before = os.environ.get(CONFIG_VARIABLE)
    os.environ[CONFIG_VARIABLE] = _file.name
    try:
        with suppress(ValidationError, UnusableSettings):
            assert Settings().port >= 0
            return
        try:
            Settings()
        except (ValidationError, UnusableSettings) as error:
            said = explain(error)
            assert said
            assert all(said)
            assert sum(map(len, said)) < 16_384 + 2 * len(data)
    finally:
        if before is None:
            del os.environ[CONFIG_VARIABLE]
        else:
            os.environ[CONFIG_VARIABLE] = before
