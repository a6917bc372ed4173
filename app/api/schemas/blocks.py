"""The native block form."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from app.api.schemas.common import DIGEST_PATTERN, EXAMPLE_DIGEST, ComponentName, Model

Digest = Annotated[
    str,
    Field(
        pattern=DIGEST_PATTERN,
        description="BLAKE3-256 of a block's raw bytes, lower-case hex.",
        examples=[EXAMPLE_DIGEST],
    ),
]


class NeedRequest(Model):
    """The blocks of a component, in order."""

    digests: list[Digest] = Field(max_length=1 << 20, fail_fast=True)


class NeedResponse(Model):
    """What has to be sent."""

    need: list[int] = Field(description="Places (seq) of the blocks to be sent, ascending.")
    blocks_digest: str | None = Field(
        description="Where nothing is needed: the component has arrived, and is known by this digest "
        "of its list of blocks."
    )


class BlocksReceipt(Model):
    """A component that has arrived whole as blocks."""

    name: ComponentName
    blocks_digest: str = Field(description="Digest of its list of blocks, hex (docs/native.md).")


class BlocksWanted(Model):
    """Which blocks of a state to send."""

    have: list[Digest] = Field(
        default=[],
        max_length=1 << 20,
        fail_fast=True,
        description="Blocks that the client holds already.",
    )
    tokens: list[int] | None = Field(
        None,
        min_length=2,
        max_length=2,
        fail_fast=True,
        description="[first, last): of components with token windows only those that hold rows of "
        "these tokens, and the frame. Other components are sent whole.",
        examples=[[128, 192]],
    )

    @model_validator(mode="after")
    def _range_fits(self) -> BlocksWanted:
        if self.tokens is not None and not 0 <= self.tokens[0] < self.tokens[1] <= 1 << 31:
            raise ValueError("tokens is [first, last) with 0 <= first < last")
        return self
