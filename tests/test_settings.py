"""Settings and the command line: a wrong setting stops the start with a sentence that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings, explain

_ROOT = Path(__file__).parents[1]


def _settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    for name, value in values.items():
        monkeypatch.setenv(f"STATEHOLD_{name}", value)
    return Settings()


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("STATEHOLD_") and name != "STATEHOLD_SHARED":
            monkeypatch.delenv(name)


def test_sizes_take_iec_units(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _settings(monkeypatch, BUDGET_BYTES="3GiB").budget_bytes == 3 << 30
    assert _settings(monkeypatch, BUDGET_BYTES="5000000").budget_bytes == 5_000_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUDGET_BYTES", "lots"),
        ("BUDGET_BYTES", "-1"),
        ("LOW_WATER", "1.5"),
        ("MODE", "sometimes"),
        ("PORT", "70000"),
        ("WORKERS", "0"),
        ("LEASE_TTL_S", "x"),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, **{name: value})
    assert f"STATEHOLD_{name}" in explain(caught.value)


def test_a_setting_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, BUDGET="1GiB")
    assert "STATEHOLD_BUDGET" in explain(caught.value)


def test_settings_that_contradict_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as caught:
        _settings(monkeypatch, LEASE_TTL_S="100", MAX_LEASE_TTL_S="50")
    assert "STATEHOLD_MAX_LEASE_TTL_S" in explain(caught.value)


def _command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_a_wrong_setting_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    done = _command("serve", STATEHOLD_DATA_DIR=str(tmp_path), STATEHOLD_PORT="nope")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "STATEHOLD_PORT" in done.stderr


def test_a_data_folder_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = _command("serve", STATEHOLD_DATA_DIR=str(tmp_path / "file"))
    assert done.returncode == 3
    assert "cannot be used" in done.stderr


def test_check_finds_nothing_in_a_new_folder_and_something_in_a_broken_one(tmp_path: Path) -> None:
    from pysqlite3 import dbapi2

    from app.engine.cache import Cache
    from storage.layout import DataFolder

    assert _command("migrate", STATEHOLD_DATA_DIR=str(tmp_path)).returncode == 0
    cache = Cache(Settings(data_dir=tmp_path), DataFolder(tmp_path))
    import asyncio

    asyncio.run(cache.close())
    well = _command("check", STATEHOLD_DATA_DIR=str(tmp_path))
    assert (well.returncode, well.stdout) == (0, "0 findings\n")
    connection = dbapi2.connect(str(tmp_path / "metadata.db"))
    connection.execute("UPDATE store SET stored_bytes = 5")
    connection.commit()
    connection.close()
    broken = _command("check", STATEHOLD_DATA_DIR=str(tmp_path))
    assert broken.returncode == 1
    assert "the store counts 5 bytes but holds 0" in broken.stdout
