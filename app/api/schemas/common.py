"""Shapes that several resources share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.scopes import TENANT_PATTERN
from storage.backups.copying import NAME, NAME_RULE

Kind = Literal["full_state", "kv_recurrent", "recurrent_only", "kv"]
ComponentName = Literal["full", "kv", "recurrent", "logits"]
Status = Literal["recording", "live", "quarantined"]
Mode = Literal["disabled", "record", "lookup", "lookup_record"]

UUID_PATTERN = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
DIGEST_PATTERN = r"^[0-9a-f]{64}$"
PAGE_ID_PATTERN = r"^[\x21-\x7e]{1,128}$"
BACKUP_PATTERN = rf"^{NAME.pattern}$"
# What a text must be, for people; the patterns stand in the OpenAPI document.
IN_WORDS = {
    UUID_PATTERN: "an id is a UUID in lower case, as in 01938c0d-e000-7000-8000-000000000000",
    DIGEST_PATTERN: "a digest is 64 hexadecimal digits in lower case",
    PAGE_ID_PATTERN: "it has 1 to 128 printable ASCII characters and no space",
    BACKUP_PATTERN: NAME_RULE,
    TENANT_PATTERN: "it has at most 64 letters, digits, '.', '_' and '-'",
}
EXAMPLE_ID = "01938c0d-e000-7000-8000-000000000000"
EXAMPLE_DIGEST = "3a6ff5f3a8f2c8e7b6a8d3d5e2c1b0a99f8e7d6c5b4a39281706f5e4d3c2b1a0"

Namespace = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        description="Everything besides the tokens that changes state bytes; opaque to the cache. "
        "1 to 256 characters, NFC, no control characters.",
        examples=["smollm2-135m-instruct-q4_1/llama.cpp-ggsq3/f16"],
    ),
]


class Model(BaseModel):
    """Strict: no coercion, no unknown fields, no NaN."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Problem(BaseModel):
    """An RFC 9457 problem. `code` is stable; `detail` is for people."""

    type: str = Field(description="URN of the problem code.")
    title: str
    status: int
    code: str = Field(description="Stable, machine-readable.", examples=["state_not_found"])
    detail: str
    field: str | None = Field(None, description="The offending field of the request.")
    request_id: str | None = None
    errors: list[dict[str, Any]] | None = Field(
        None, description="All validation findings, for `invalid_request`."
    )


class Prefix(Model):
    """Token ids of a namespace, as base64 of little-endian int32 (fast) or as a JSON array."""

    namespace: Namespace
    tokens_b64: str | None = Field(
        None,
        description="Standard base64 with padding of the token ids as little-endian int32. "
        "Costs a seventh of the array form.",
        examples=["ewoAAGcBAAD9AAAA"],
    )
    tokens: list[int] | None = Field(
        None,
        fail_fast=True,
        description="The token ids as int32 numbers.",
        examples=[[2683, 359, 253]],
    )

    @model_validator(mode="after")
    def _one_form(self) -> Prefix:
        if (self.tokens is None) == (self.tokens_b64 is None):
            raise ValueError("give exactly one of tokens and tokens_b64")
        return self


class Component(Model):
    """One byte string of a state."""

    name: ComponentName
    bytes: int = Field(description="Length in bytes.")
    digest: str | None = Field(
        None,
        description="BLAKE3-256 of its bytes in hex; also its ETag. Null until it has arrived, and "
        "of a component that arrived as blocks.",
        examples=[EXAMPLE_DIGEST],
    )
    blocks_digest: str | None = Field(
        None, description="Of a component that arrived as blocks: digest of its list of blocks."
    )


class State(Model):
    """A recorded state."""

    state_id: str = Field(description="Names this recording (UUIDv7).", examples=[EXAMPLE_ID])
    page_id: str = Field(
        description="Names the prefix: given by the client, or BLAKE3 of namespace and tokens.",
        examples=[EXAMPLE_DIGEST],
    )
    kind: Kind
    token_count: int = Field(description="Tokens of the prefix.", examples=[192])
    logical_bytes: int = Field(description="Bytes of all components.", examples=[4427520])
    created_at_ms: int = Field(description="Wall clock, ms since the Unix epoch.")


class WriteAmplification(Model):
    """What recording growing prefixes has cost, of components with geometry, before compression."""

    new_bytes: int = Field(description="Raw bytes of the blocks that were new to the store.")
    new_row_bytes: int = Field(description="Bytes of the rows that were new to the prefix tree.")
    ratio: float | None = Field(description="The first over the second; null before there is any.")
