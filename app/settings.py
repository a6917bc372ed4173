"""All settings, typed, with units and defaults. A leaf: imports nothing of the project.

Each is read from the environment as `STATEHOLD_<NAME>`. Sizes take IEC units ("64GiB"). A setting that
cannot be used stops the start with a sentence that names it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from pydantic import ByteSize, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX: Final = "STATEHOLD_"
# Read by other parts: crash points (storage.failpoints) and the tests' shared data.
_OTHERS: Final = frozenset({"STATEHOLD_FAILPOINT", "STATEHOLD_SHARED"})

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


class Settings(BaseSettings):
    """What a process is started with."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    data_dir: Path = Field(Path("data"), description="Folder of everything that lasts.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    workers: int = Field(1, ge=1, le=64, description="Worker processes on the data folder.")

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
    max_entries: int = Field(1_000_000, ge=1, description="Hard limit on live states.")
    free_disk_reserve_bytes: ByteSize = Field(
        ByteSize(_GIB), ge=0, description="Recording is refused when less disk would stay free."
    )
    max_in_flight_bytes: ByteSize = Field(
        ByteSize(32 * _GIB), ge=_MIB, description="Raw bytes of recordings under way, all together."
    )
    max_in_flight_records: int = Field(256, ge=1, description="Recordings under way at once.")
    record_ttl_s: int = Field(
        600, ge=1, le=86_400, description="Seconds without progress after which a recording ends."
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
        ByteSize(256 * _MIB),
        ge=_MIB,
        description="Memory for blocks read ahead of an answer, per process.",
    )
    verify_ahead_bytes: ByteSize = Field(
        ByteSize(16 * _MIB), ge=0, description="Blocks read and kept before an answer begins."
    )

    least_gain: float = Field(
        0.25,
        ge=0.001,
        lt=1,
        description="A block is compressed only if that saves at least this part. 0.015 saves about "
        "14 % on 16-bit KV and halves the speed of recording and restoring it.",
    )

    max_json_bytes: ByteSize = Field(ByteSize(8 * _MIB), ge=_KIB, description="Largest JSON body.")
    max_tokens: int = Field(1_000_000, ge=1, description="Longest prefix, in tokens.")
    idle_timeout_s: float = Field(
        30.0, gt=0, description="Seconds of silence after which a client is cut off."
    )
    min_rate_bytes: ByteSize = Field(
        ByteSize(64 * _KIB),
        ge=0,
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

    @model_validator(mode="after")
    def _sensible(self) -> Settings:
        unknown = sorted(
            name
            for name in os.environ
            if name.startswith(PREFIX)
            and name not in _OTHERS
            and name.removeprefix(PREFIX).lower() not in type(self).model_fields
        )
        if unknown:
            raise ValueError(f"there is no setting {unknown[0]}")
        if self.lease_ttl_s > self.max_lease_ttl_s:
            raise ValueError("STATEHOLD_LEASE_TTL_S exceeds STATEHOLD_MAX_LEASE_TTL_S")
        return self


def explain(error: ValidationError) -> str:
    """One sentence that names the wrong setting."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = "_".join(str(step) for step in first["loc"]).upper()
    return f"{PREFIX}{where}: {first['msg']}" if where else first["msg"]
