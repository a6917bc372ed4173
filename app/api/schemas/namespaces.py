"""Namespaces and their identities."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from app.api.schemas.access import Tenant
from app.api.schemas.common import EXAMPLE_DIGEST, Mode, Model, Namespace, WriteAmplification


class RegisterRequest(Model):
    """A namespace and the document that describes it."""

    namespace: Namespace
    identity: dict[str, Any] = Field(
        description="Everything besides the tokens that changes state bytes. Absent and default "
        "values are different identities.",
        examples=[
            {
                "model_id": "SmolLM2-135M-Instruct",
                "weights_digest": "sha256:2f1a…",
                "quantisation": "Q4_1",
                "runtime_abi": "llama.cpp ggsq 3",
                "kv_types": {"k": "f16", "v": "f16"},
                "flash_attention": True,
            }
        ],
    )
    allow_missing_weights_digest: bool = Field(
        False,
        description="Accept an identity that cannot tell two models of one name apart. It carries "
        "a warning in every listing.",
    )


class NamespaceInfo(Model):
    """A namespace, its limits and counts."""

    namespace: str
    tenant: str = Field(description='Whose; "" is the default tenant.')
    identity: dict[str, Any] | None
    identity_digest: str | None = Field(
        description="BLAKE3-256 of the canonical identity JSON, hex.", examples=[EXAMPLE_DIGEST]
    )
    warnings: list[str]
    mode: Mode | None = Field(description="Null: the store's.")
    min_tokens: int | None = Field(description="Null: the store's.")
    max_entries: int | None = Field(description="Null: no limit of its own.")
    max_stored_bytes: int | None = Field(description="Null: no limit of its own.")
    entries: int = Field(description="Live states.")
    stored_bytes: int = Field(description="On disk, each block once, overhead included.")
    logical_bytes: int = Field(description="Of live states, as recorded.")
    created_at_ms: int
    write_amplification: WriteAmplification


class NamespaceDetail(NamespaceInfo):
    """A namespace as operators see it."""

    model: str | None = Field(
        description="Its identity's `model_id`.", examples=["SmolLM2-135M-Instruct"]
    )
    effective_mode: Mode = Field(description="In force: its own, else the store's.")
    recording: int = Field(description="States that are being recorded.")
    quarantined: int = Field(description="States out of service.")
    pinned: int = Field(description="States of any status with a pin that has not run out.")


class NamespaceDetailList(Model):
    """A page of namespaces."""

    namespaces: list[NamespaceDetail]
    next: str | None = Field(
        description="Give this as `after`, with the same filters, for the next page; null at the end."
    )


class NamespaceList(Model):
    """A page of namespaces."""

    namespaces: list[NamespaceInfo]
    next: str | None = Field(description="Give this as `after` for the next page; null at the end.")


class NamespaceChange(Model):
    """What to change; a field that is absent stays, null goes back to the store's."""

    namespace: Namespace
    tenant: Tenant | None = Field(None, description="Whose; null: the caller's.")
    mode: Mode | None = None
    min_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_entries: int | None = Field(None, ge=1, le=1 << 40)
    max_stored_bytes: int | None = Field(None, ge=1, le=1 << 60)

    @model_validator(mode="after")
    def _something(self) -> NamespaceChange:
        if not self.model_fields_set - {"namespace", "tenant"}:
            raise ValueError("name at least one field to change")
        return self
