"""The optional TOML file of settings: found by STATEHOLD_CONFIG, read whole, never guessed at. A leaf.

The environment wins over the file. Keys are the names of settings in lower case, at the top level.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

CONFIG_VARIABLE: Final = "STATEHOLD_CONFIG"
_MOST_BYTES: Final = 1 << 20
# How alike two names are that one may be meant by the other: `budget` and `budget_bytes` are, `colour` and
# `port` are not.
_NEAR: Final = 0.65


class UnusableSettings(ValueError):
    """Settings that cannot be used; one sentence that names the setting and where it comes from."""


def named_file() -> Path | None:
    """The file that the environment names, if it names one.

    Raises:
        UnusableSettings: the name is empty.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    if named is not None and not named.strip():
        raise UnusableSettings(
            f"{CONFIG_VARIABLE} (or --config) is empty: name a settings file, or do not set it"
        )
    return Path(named) if named else None


def read(path: Path) -> dict[str, Any]:
    """What stands in the file.

    Raises:
        UnusableSettings: it cannot be read, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise UnusableSettings(f"the settings file {path} is larger than 1 MiB")
        return tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise UnusableSettings(
            f"the settings file {path} cannot be read: {error.strerror}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnusableSettings(f"the settings file {path} is not TOML: {error}") from error


def unknown(name: str, known: Iterable[str], where: str, prefix: str = "") -> str:
    """The sentence about a setting that does not exist.

    Args:
        prefix: what every name begins with, which makes none of them alike.
    """
    spelled = {one.removeprefix(prefix).lower(): one for one in known}
    wanted = name.removeprefix(prefix).lower()
    near = difflib.get_close_matches(wanted, list(spelled), n=1, cutoff=_NEAR)
    meant = f"; did you mean {spelled[near[0]]}?" if near else ""
    return f"there is no setting {name}{where}{meant}"
