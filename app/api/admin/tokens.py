"""/admin/v1/tokens and /admin/v1/whoami: who may do what."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import APIRouter, Path, Query

from app.api.access import CacheDep, CallerDep
from app.api.intake import StrictRoute
from app.api.problems import JSON_BODY, responses
from app.api.schemas.access import NewToken, TokenInfo, TokenList, TokenRequest, WhoAmI
from app.api.schemas.common import EXAMPLE_ID, UUID_PATTERN
from app.engine.access import EVERYONE
from app.scopes import Scope, tenant_named
from storage.clock import wall_ms
from storage.rows import TokenRow

router = APIRouter(tags=["admin"], route_class=StrictRoute)


@router.get(
    "/admin/v1/whoami",
    summary="Who the service takes you for",
    response_model=WhoAmI,
    responses=responses(),
)
async def whoami(caller: CallerDep, cache: CacheDep) -> WhoAmI:
    """Any good token may ask; without tokens everybody is an operator."""
    if caller is EVERYONE:
        return WhoAmI(
            access="open", token_id=None, tenant=None, scopes=list(get_args(Scope)), namespaces=None
        )
    row = cache.gate.token(caller.actor)
    return WhoAmI(
        access="token",
        token_id=row.token_id,
        tenant=row.tenant,
        scopes=list(row.scopes),  # type: ignore[arg-type]  # only made through the schema
        namespaces=None if row.namespaces is None else list(row.namespaces),
    )


@router.post(
    "/admin/v1/tokens",
    summary="Make a token",
    status_code=201,
    response_model=NewToken,
    responses=responses(*JSON_BODY, "busy", "low_space"),
)
async def make(request: TokenRequest, cache: CacheDep) -> NewToken:
    """The secret is in this answer and nowhere else.

    The first token ends open access: from then on every request needs one, so the first should have
    `admin:write` and no tenant.
    """
    row, secret = await cache.gate.make(
        request.label,
        request.scopes,
        tenant=None if request.tenant is None else tenant_named(request.tenant),
        namespaces=request.namespaces,
        expires_in_s=request.expires_in_s,
    )
    return NewToken(**_info(row).model_dump(), secret=secret)


@router.get(
    "/admin/v1/tokens",
    summary="List tokens",
    response_model=TokenList,
    responses=responses("invalid_request", "busy"),
)
async def listing(
    cache: CacheDep,
    after: Annotated[
        str | None, Query(pattern=UUID_PATTERN, description="Those made after this one.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> TokenList:
    """Also those that have expired or were revoked, never a secret."""
    rows = await cache.gate.tokens(after, limit)
    return TokenList(
        tokens=[_info(row) for row in rows],
        next=rows[-1].token_id if len(rows) == limit else None,
    )


@router.delete(
    "/admin/v1/tokens/{token_id}",
    summary="Revoke a token",
    response_model=TokenInfo,
    responses=responses("invalid_request", "token_not_found", "busy"),
)
async def revoke(
    token_id: Annotated[
        str, Path(pattern=UUID_PATTERN, description="The token's id.", examples=[EXAMPLE_ID])
    ],
    cache: CacheDep,
) -> TokenInfo:
    """Good for nothing at once here, within a second at other workers. Twice is once.

    Access does not become open again when the last token goes: make a new one with
    `statehold token create` on the data folder.
    """
    return _info(await cache.gate.revoke(token_id))


def _info(row: TokenRow) -> TokenInfo:
    expired = row.expires_at_ms is not None and row.expires_at_ms <= wall_ms()
    return TokenInfo(
        token_id=row.token_id,
        label=row.label,
        scopes=list(row.scopes),  # type: ignore[arg-type]  # only made through the schema
        tenant=row.tenant,
        namespaces=None if row.namespaces is None else list(row.namespaces),
        good=not expired and row.revoked_at_ms is None,
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        revoked_at_ms=row.revoked_at_ms,
        used_at_ms=row.used_at_ms,
    )
