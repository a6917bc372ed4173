"""Tokens, tenants and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from app.api.schemas.common import EXAMPLE_ID, Model
from app.scopes import TENANT_PATTERN, Scope

Tenant = Annotated[
    str,
    Field(
        max_length=64,
        pattern=TENANT_PATTERN,
        description='A tenant; "" is the default one, whose namespaces those without a tenant use.',
        examples=["team-search"],
    ),
]
Pattern = Annotated[str, Field(min_length=1, max_length=256, examples=["smollm2-*"])]


class TokenRequest(Model):
    """What a new token is good for."""

    label: str = Field(min_length=1, max_length=200, examples=["gateway eu-1"])
    scopes: list[Scope] = Field(min_length=1, examples=[["lookup", "record"]])
    tenant: Tenant | None = Field(
        None,
        description="Null: an operator of the whole store, or with `namespaces` as for the default "
        "tenant. What an operator records belongs to the default tenant.",
    )
    namespaces: list[Pattern] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Shell patterns (`*`, `?`, `[…]`) of the namespaces it may use. Null: all of its "
        "tenant's.",
    )
    expires_in_s: int | None = Field(None, ge=1, le=10 * 366 * 86_400, examples=[7_776_000])


class TokenInfo(Model):
    """A token as it is kept: without its secret."""

    token_id: str = Field(examples=[EXAMPLE_ID])
    label: str
    scopes: list[Scope]
    tenant: str | None
    namespaces: list[str] | None
    good: bool = Field(description="Neither expired nor revoked.")
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None
    used_at_ms: int | None = Field(description="Last use, to about ten seconds.")


class NewToken(TokenInfo):
    """A token that was just made. Nobody can find out the secret again."""

    secret: str = Field(
        description="Send it as `Authorization: Bearer …`. Shown this once.",
        examples=[f"sth_{EXAMPLE_ID}_…"],
    )


class TokenList(Model):
    """A page of tokens in order of making."""

    tokens: list[TokenInfo]
    next: str | None = Field(description="Give this as `after` for the next page; null at the end.")


class WhoAmI(Model):
    """Who the service takes the caller for."""

    access: Literal["open", "token"]
    token_id: str | None
    tenant: str | None = Field(description="Null: the whole store.")
    scopes: list[Scope]
    namespaces: list[str] | None = Field(description="Patterns; null: all of its tenant's.")


_Limit = Annotated[int | None, Field(ge=1, le=1 << 60)]


class TenantLimitsChange(Model):
    """Limits of a tenant: an absent field stays, null takes the limit away."""

    max_stored_bytes: _Limit = Field(
        None, description="On disk, overhead included; LRU makes room."
    )
    max_logical_bytes: _Limit = Field(None, description="Live states as recorded; LRU makes room.")
    max_entries: _Limit = Field(None, description="Live states; LRU makes room.")
    max_in_flight_records: _Limit = Field(None, description="Recordings under way.")
    max_requests_per_second: _Limit = None
    max_bytes_per_second: _Limit = Field(None, description="Payload in both directions together.")

    @model_validator(mode="after")
    def _something(self) -> TenantLimitsChange:
        if not self.model_fields_set:
            raise ValueError("name at least one limit")
        return self


class TenantInfo(TenantLimitsChange):
    """A tenant's limits and usage."""

    tenant: str
    namespaces: int
    entries: int
    stored_bytes: int = Field(description="Sum over its namespaces.")
    logical_bytes: int
    recordings: int = Field(description="Under way.")
    reserved_bytes: int = Field(description="Raw bytes that these have announced.")


class TenantList(Model):
    """All tenants that have limits or a namespace."""

    tenants: list[TenantInfo]


class AuditEntry(Model):
    """A call that changed something for operators, or tried to."""

    id: int
    at_ms: int
    actor: str = Field(description="Token id, or `open` where no token was needed.")
    action: str = Field(examples=["POST /admin/v1/evictions"])
    target: str
    outcome: str = Field(description="`done`, or the code of the refusal.")
    details: dict[str, Any] = Field(description="What was sent, shortened.")


class AuditLog(Model):
    """A page of the audit log, newest first."""

    entries: list[AuditEntry]
    next: int | None = Field(description="Give this as `after` for the next page; null at the end.")
