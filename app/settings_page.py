"""docs/settings.md, made from the settings class: `python -m app.settings_page`.

A test fails when the page is not what this makes.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from app import sizes
from app.settings import Settings

_PAGE: Final = Path(__file__).parents[1] / "docs" / "settings.md"

_HEAD: Final = """\
# Settings

<!-- Made by `python -m app.settings_page` from app/settings.py; do not edit. -->

A setting comes from the environment variable `STATEHOLD_<NAME>`, or from a TOML file; the environment wins.
The file is named by `--config FILE` or by `STATEHOLD_CONFIG`. Sizes are bytes or take IEC units: `64GiB`,
`1.5GiB`, `512KiB`. A relative path starts at the folder that the process was started in. A setting that does
not exist, or a value that cannot be used, stops the start with a sentence for each that names the setting, and
the file if it stands there (exit code 2). A path, a host or a name of the file that is set but empty cannot
be used.

These are read at the start. What operators change at run time (the mode, limits) is kept in the data folder and
goes before them.

| name | unit | default | takes | what it sets |
| --- | --- | --- | --- | --- |
"""

_FILE: Final = """\

## As a file

Every setting with its default. All may be left out.

```toml
"""


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{name}` | {unit(name, field)} | {_shown_default(field)} | {_takes(field)} "
        f"| {field.description} |\n"
        for name, field in Settings.model_fields.items()
    ]
    return _HEAD + "".join(rows) + _FILE + "".join(_toml_lines()) + "```\n"


def unit(name: str, field: FieldInfo) -> str:
    """What the value counts, from its type and name; `json_schema_extra={"unit": ...}` goes before."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "unit" in extra:
        return str(extra["unit"])
    kind = _kind(field)
    if kind is ByteSize or name.endswith("_bytes"):
        return "bytes"
    for ending, said in (("_s", "seconds"), ("_ms", "ms"), ("_minutes", "minutes")):
        if name.endswith(ending):
            return said
    if name.endswith("_tokens"):
        return "tokens"
    return {int: "count", float: "fraction", bool: "true or false", Path: "path"}.get(kind, "name")


def default_text(field: FieldInfo) -> str | None:
    """The default as it would be written in the environment; None where there is none."""
    value = field.get_default(call_default_factory=True)
    if value is None:
        return None
    if _kind(field) is ByteSize:
        return sizes.exact(int(value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _shown_default(field: FieldInfo) -> str:
    text = default_text(field)
    return "none" if text is None else f"`{text}`"


def _takes(field: FieldInfo) -> str:
    kind = _kind(field)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    show = sizes.exact if kind is ByteSize else str
    said = []
    for bound in field.metadata:
        match bound:
            case Ge():
                said.append(f"at least {show(bound.ge)}")  # type: ignore[arg-type]
            case Gt():
                said.append(f"more than {show(bound.gt)}")  # type: ignore[arg-type]
            case Le():
                said.append(f"at most {show(bound.le)}")  # type: ignore[arg-type]
            case Lt():
                said.append(f"less than {show(bound.lt)}")  # type: ignore[arg-type]
            case _:
                continue
    return ", ".join(said)


def _kind(field: FieldInfo) -> Any:
    """The type without "or None"."""
    annotation = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _toml_lines() -> list[str]:
    lines = []
    for name, field in Settings.model_fields.items():
        text = default_text(field)
        bare = _kind(field) in (int, float, bool)
        value = '"/…"' if text is None else text if bare else f'"{text}"'
        lines.append(f"{'# ' if text is None else ''}{name} = {value}\n")
    return lines


def main() -> None:
    """Write the page."""
    _PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
