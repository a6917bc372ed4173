"""Recording."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.schemas.common import (
    EXAMPLE_ID,
    PAGE_ID_PATTERN,
    Component,
    ComponentName,
    Kind,
    Model,
    Prefix,
    State,
    Status,
)


class AnnouncedComponent(Model):
    """A component and its exact length."""

    name: ComponentName
    bytes: int = Field(ge=0, le=1 << 50, description="Exact length in bytes.", examples=[4427520])


class RecordRequest(Prefix):
    """What the caller would like to record; asked before it pays for the export."""

    kind: Kind
    components: list[AnnouncedComponent] = Field(min_length=1, max_length=4, fail_fast=True)
    kv_descriptor: dict[str, Any] | None = Field(
        None,
        description="Layout of a non-empty `kv` component; unknown keys are kept and given back.",
    )
    geometry: dict[ComponentName, dict[str, Any]] | None = Field(
        None,
        description="Layout of components by name: `rows` (one per token), `runs` (`offset`, "
        "`stride`, optionally `first_row` and `rows`: row i of a run lies at `offset` + (i - "
        "`first_row`) x `stride`) and `element` (`f16`, `bf16`, `f32`, `q8_0`, `opaque`). Growing "
        "prefixes then share their blocks. A `kv` component without one gets that of its "
        "descriptor, a llama.cpp slot file its own.",
        examples=[
            {
                "full": {
                    "rows": 192,
                    "runs": [
                        {"offset": 2872, "stride": 384, "label": "k0"},
                        {"offset": 76612, "stride": 384, "label": "k1"},
                    ],
                    "element": "f16",
                }
            }
        ],
    )
    page_id: str | None = Field(
        None,
        pattern=PAGE_ID_PATTERN,
        description="The client's name for the prefix; default: BLAKE3 of namespace and tokens.",
    )
    replace: bool = Field(False, description="Record again even if the prefix is held.")
    ttl_s: int | None = Field(
        None,
        ge=1,
        le=86400,
        description="The recording ends by itself when nothing arrives for this long; capped by "
        "`record_ttl_s`.",
    )


class BlockLayout(Model):
    """How a component is cut into blocks, for clients that send blocks (docs/native.md)."""

    name: ComponentName
    window_rows: int | None = Field(
        description="Rows of a token window; null where blocks lie in wire order."
    )
    block_count: int = Field(description="Blocks of the component: windows, then the frame.")


class RecordResponse(Model):
    """Admission's answer where it is not a refusal."""

    admission: Literal["admitted", "already_recorded"]
    state_id: str = Field(
        description="The recording, which is the state to be; or the state that is held.",
        examples=[EXAMPLE_ID],
    )
    ttl_ms: int | None = Field(None, description="Time without progress after which it ends.")
    layouts: list[BlockLayout] | None = Field(
        None, description="With `admitted`: how each component is cut, where that is known yet."
    )


class ComponentReceipt(Model):
    """A component that has arrived whole."""

    name: ComponentName
    bytes: int
    digest: str = Field(description="BLAKE3-256 of its bytes in hex.")


class RecordStatus(State):
    """Where a recording stands."""

    namespace: str
    status: Status | Literal["committing"]
    components: list[Component] = Field(description="`digest` is null until it has arrived.")
    expires_in_ms: int | None = Field(
        None, description="While recording: ends by itself then unless something arrives."
    )
