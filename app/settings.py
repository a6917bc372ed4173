"""All settings, typed, with units and defaults. A leaf: imports nothing of the service.

Each is read from the environment as `STATEHOLD_<NAME>`, or else from a TOML file
(`app/settings_file.py`). Sizes take IEC units ("64GiB"). A setting that cannot be used stops the start
with a sentence that names it and where it comes from; all that are wrong are named. docs/settings.md is
made from this class (`python -m app.settings_page`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ByteSize, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from app.settings_file import CONFIG_VARIABLE, UnusableSettings, named_file, read, unknown

PREFIX: Final = "STATEHOLD_"
# Read by other parts: the settings file, the command line's way to a server, crash points
# (storage.failpoints) and the tests' shared data.
_OTHERS: Final = frozenset(
    {
        CONFIG_VARIABLE,
        "STATEHOLD_URL",
        "STATEHOLD_TOKEN",
        "STATEHOLD_FAILPOINT",
        "STATEHOLD_SHARED",
    }
)
# sun_path of Linux, less the zero at its end.
_LONGEST_SOCKET_PATH: Final = 107

# Names that are none, at most, of each place: for people, and each is compared with all that are.
_MOST_STRANGE: Final = 20

_SIZE: Final = "it is no size: write bytes, or KiB, MiB, GiB, TiB as in 64GiB"
# In place of what pydantic says, for people who know neither its words nor regular expressions.
_WORDS: Final = {
    "byte_size": _SIZE,
    "byte_size_unit": _SIZE,
    "string_pattern_mismatch": "it is no mode: write three digits from 0 to 7, as in 0660",
    "bool_parsing": "write true or false",
    "int_parsing": "it is no whole number",
    "float_parsing": "it is no number",
}

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


def _from_file() -> dict[str, Any]:
    """What the settings file sets; nothing where none is named.

    Raises:
        UnusableSettings: the file cannot be read.
    """
    path = named_file()
    if path is None:
        return {}
    # What is left out here stops the start too, with all else that is wrong (`_strange`).
    return {name: value for name, value in read(path).items() if _can_be_set(name, value)}


class Settings(BaseSettings):
    """What a process is started with."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    data_dir: Path = Field(Path("data"), description="Folder of everything that lasts.")
    backup_dir: Path | None = Field(
        None, description="Folder that backups go into; without it `backups` in `data_dir`."
    )
    socket: Path | None = Field(
        None,
        description="Unix socket to listen on instead of TCP; `host` and `port` mean nothing then.",
    )
    socket_mode: str = Field(
        "0600",
        pattern="^0?[0-7]{3}$",
        json_schema_extra={"unit": "octal mode"},
        description="Mode of the socket's file, in octal: who may write it may connect. 0660 lets the "
        "group of the server's process in, for a reverse proxy.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(
        8080,
        ge=0,
        le=65535,
        json_schema_extra={"unit": "TCP port"},
        description="Port to listen on; 0 takes a free one.",
    )
    workers: int = Field(1, ge=1, le=64, description="Worker processes on the data folder.")

    access: Literal["auto", "tokens", "open"] = Field(
        "auto",
        description="Who is served: `tokens` only who has one; `auto` everybody until the first token "
        "is made, on loopback only; `open` everybody, on any address.",
    )
    dedupe_scope: Literal["tenant", "store"] = Field(
        "tenant",
        description="Whose recordings make a block one that is held already. With `store` the time "
        "an upload takes can tell one tenant what another has recorded.",
    )

    mode: Literal["disabled", "record", "lookup", "lookup_record"] = Field(
        "lookup_record", description="What is allowed, unless changed at run time."
    )
    min_tokens: int = Field(1, ge=1, description="Shortest prefix worth recording, in tokens.")
    budget_bytes: ByteSize = Field(
        ByteSize(64 * _GIB), ge=_MIB, description="Hard limit on stored bytes, overhead included."
    )
    low_water: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Eviction goes down to this part of the limit it makes room in.",
    )
    pin_budget_bytes: ByteSize = Field(
        ByteSize(16 * _GIB),
        ge=0,
        description="Bytes, as recorded, that pinned states may have together; no more than "
        "`budget_bytes` count. 0 allows no pins.",
    )
    max_entries: int = Field(1_000_000, ge=1, description="Hard limit on live states.")
    free_disk_reserve_bytes: ByteSize = Field(
        ByteSize(_GIB), ge=0, description="Recording is refused when less disk would stay free."
    )
    max_in_flight_bytes: ByteSize = Field(
        ByteSize(32 * _GIB), ge=_MIB, description="Raw bytes of recordings under way, all together."
    )
    max_in_flight_records: int = Field(256, ge=1, description="Recordings under way at once.")
    record_ttl_s: int = Field(
        60, ge=1, le=86_400, description="Seconds without progress after which a recording ends."
    )
    lease_ttl_s: int = Field(60, ge=1, le=86_400, description="Seconds a lease lasts by default.")
    max_lease_ttl_s: int = Field(3600, ge=1, le=86_400, description="Seconds a lease may last.")
    tombstones: int = Field(
        8192, ge=0, description="Evicted prefixes remembered to explain misses."
    )

    buffer_bytes: ByteSize = Field(
        ByteSize(128 * _MIB),
        ge=8 * _MIB,
        description="Memory for uploads on their way, per process.",
    )
    restore_buffer_bytes: ByteSize = Field(
        ByteSize(_GIB),
        ge=_MIB,
        description="Memory for components put together before an answer, per process. A larger one "
        "is put together piece by piece, reading its blocks anew for each.",
    )
    verify_ahead_bytes: ByteSize = Field(
        ByteSize(16 * _MIB), ge=0, description="Blocks read and kept before an answer begins."
    )

    least_gain: float = Field(
        1 / 64,
        ge=0.001,
        lt=1,
        description="A block is compressed only if that saves at least this part. 16-bit KV saves "
        "about 14 %; 0.25 keeps it raw, which plain restores read faster.",
    )

    max_json_bytes: ByteSize = Field(ByteSize(8 * _MIB), ge=_KIB, description="Largest JSON body.")
    max_tokens: int = Field(1_000_000, ge=1, description="Longest prefix, in tokens.")
    idle_timeout_s: float = Field(
        30.0, gt=0, description="Seconds of silence after which a client is cut off."
    )
    min_rate_bytes: ByteSize = Field(
        ByteSize(64 * _KIB),
        ge=0,
        json_schema_extra={"unit": "bytes a second"},
        description="Least bytes a second of an upload, after 10 seconds.",
    )
    touch_flush_s: float = Field(
        1.0, gt=0, description="Seconds between writes of last-use times and counters."
    )
    shutdown_grace_s: int = Field(
        20, ge=0, description="Seconds that requests under way get at shutdown."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is logged."
    )
    log_json: bool = Field(True, description="JSON lines instead of text.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment before the file; no other place is looked at."""
        of_file = InitSettingsSource(settings_cls, _from_file())
        return init_settings, env_settings, of_file

    @field_validator("data_dir", "backup_dir", "socket", "host", mode="before")
    @classmethod
    def _said(cls, value: object) -> object:
        # An empty path would be the folder that the process was started in, an empty host every address.
        if isinstance(value, str) and not value.strip():
            raise ValueError("it is empty: give it a value, or do not set it")
        if isinstance(value, str) and "\0" in value:
            raise ValueError("it holds a NUL character")
        return value

    @field_validator("socket")
    @classmethod
    def _short(cls, value: Path | None) -> Path | None:
        if value is not None and len(os.fsencode(value)) > _LONGEST_SOCKET_PATH:
            raise ValueError(f"a socket's path has 1 to {_LONGEST_SOCKET_PATH} bytes")
        return value

    @model_validator(mode="after")
    def _sensible(self) -> Settings:
        wrong = _strange()
        if self.lease_ttl_s > self.max_lease_ttl_s:
            wrong.append(f"{origin('lease_ttl_s')} exceeds {origin('max_lease_ttl_s')}")
        if wrong:
            raise ValueError("\n".join(wrong))
        return self


def explain(error: ValidationError | UnusableSettings) -> list[str]:
    """A sentence for each wrong setting, which names it, and the file if that sets it."""
    if isinstance(error, UnusableSettings):
        found = [str(error), *_strange_variables()]
    else:
        found = _strange()
        for part in error.errors(include_url=False, include_context=False):
            found += _sentences(part)
    return list(dict.fromkeys(found))


def faults() -> list[str]:
    """A sentence for each setting that cannot be used as it is set now; none where a start would take all."""
    try:
        Settings()
    except (UnusableSettings, ValidationError) as error:
        return explain(error)
    return []


def origin(name: str) -> str:
    """A setting by the name that it has where it was set: the variable's, or the file's with the file."""
    variable = PREFIX + name.upper()
    path = named_file()
    if path is not None and variable not in os.environ and name in read(path):
        return f"{name} in {path}"
    return variable


def _strange() -> list[str]:
    """A sentence for each variable that looks like a setting and is none, and each such line of the file."""
    path = named_file()
    lines = [] if path is None else list(read(path).items())
    wrong = [name for name, value in lines if not _can_be_set(name, value)]
    fields = Settings.model_fields
    return _strange_variables() + [
        f"{name} in {path}: it is not a setting of true or false"
        if name in fields
        else unknown(name, fields, f", which {path} sets")
        for name in wrong[:_MOST_STRANGE]
    ]


def _strange_variables() -> list[str]:
    fields = Settings.model_fields
    known = [PREFIX + name.upper() for name in fields]
    wrong = [
        name
        for name in sorted(os.environ)
        if name.startswith(PREFIX)
        and name not in _OTHERS
        and name.removeprefix(PREFIX).lower() not in fields
    ]
    return [unknown(name, known, "", PREFIX) for name in wrong[:_MOST_STRANGE]]


def _can_be_set(name: str, value: object) -> bool:
    """Whether a file may set it so, as far as the class would not see.

    The environment has only text, so the class takes text for numbers; of a file's types only true and false
    would be mistaken for a number.
    """
    field = Settings.model_fields.get(name)
    return field is not None and (not isinstance(value, bool) or field.annotation is bool)


def _sentences(error: ErrorDetails) -> list[str]:
    said = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return said.split("\n")  # of `_sensible`
    return [f"{origin(str(error['loc'][0]))}: {_WORDS.get(error['type'], said)}"]
