"""The quarantine desk: what is out of service and why, proving it again, and its bytes for forensics.

Taking out, releasing and purging stand with the states (`states.py`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response

from app.api import views
from app.api.access import CacheDep, CallerDep, StateId
from app.api.intake import StrictRoute
from app.api.outflow import ByteStream
from app.api.problems import ApiProblem, responses
from app.api.schemas.common import UUID_PATTERN, ComponentName
from app.api.schemas.quarantine import QuarantineList, Verification
from app.engine.access import Caller
from app.engine.quarantine import Held
from storage.scoped import split

router = APIRouter(tags=["admin"], route_class=StrictRoute)

_CURSOR: Final = re.compile(rf"^(\d{{1,18}})/({UUID_PATTERN.strip('^$')})$")
_MOST_NAMED: Final = 100


@router.get(
    "/admin/v1/quarantine",
    summary="List quarantined states with their evidence",
    response_model=QuarantineList,
    responses=responses("invalid_request", "invalid_namespace", "busy"),
)
async def listing(
    cache: CacheDep,
    caller: CallerDep,
    namespace: Annotated[
        str | None, Query(max_length=256, description="Of this namespace only.")
    ] = None,
    tenant: Annotated[
        str | None,
        Query(
            max_length=64,
            description="Of this tenant only; with `namespace` whose, without it the caller's.",
        ),
    ] = None,
    failure_class: Annotated[
        str | None,
        Query(
            alias="class",
            max_length=64,
            description="Of this class only, as `block_damaged`.",
            examples=["block_damaged"],
        ),
    ] = None,
    after: Annotated[
        str | None, Query(max_length=128, description="`next` of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Those found last first, a page at a time. A caller that is bound to a tenant or to namespaces sees
    only those of its own.
    """
    rows = await cache.quarantine.page(
        limit=limit,
        after=None if after is None else place(after),
        sees=wanted(caller, namespace, tenant),
        failure_class=failure_class,
    )
    body = await asyncio.to_thread(_json, rows, limit)
    return Response(body, media_type="application/json")


@router.post(
    "/admin/v1/states/{state_id}/verify",
    summary="Prove every byte of a state",
    response_model=Verification,
    responses=responses(
        "invalid_request",
        "state_not_found",
        "state_not_live",
        "quarantine_failed",
        "busy",
        "low_space",
        "stopped",
    ),
)
async def verify(state_id: StateId, cache: CacheDep) -> Verification:
    """Of a live or a quarantined state, up to the first byte that fails. A live state that fails goes into
    quarantine. A quarantined one stays there whatever comes out: its evidence says what was found
    (class, component, block, digests), `verified_at_ms` when, and `intact` how it ended.
    """
    found = await cache.quarantine.verify(state_id)
    return Verification(
        state_id=state_id,
        intact=found.intact,
        evidence=None if found.evidence is None else views.evidence(found.evidence),
        verified_bytes=found.proven_bytes,
        seconds=round(found.seconds, 6),
    )


_RAW_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The component's bytes in wire order; zeros where a block cannot be read.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "Statehold-Damaged-Blocks": {
                "description": "Indices of the blocks of the component that cannot be read, as they are "
                "counted in its evidence: at most 100, then how many more. Absent if there are none.",
                "schema": {"type": "string"},
                "examples": {"few": {"value": "3,17"}, "many": {"value": "0,1,2,+412"}},
            },
            "Statehold-Manifest": {
                "description": "`intact`, or `damaged`: what is said of its blocks is not what was "
                "recorded, so that bytes may be missing or in the wrong place.",
                "schema": {"type": "string", "enum": ["intact", "damaged"]},
            },
        },
    },
    **responses(
        "invalid_request",
        "state_not_found",
        "component_not_found",
        "component_unreadable",
        "state_not_live",
        "quarantine_failed",
        "busy",
        "low_space",
        "stopped",
    ),
}


@router.get(
    "/admin/v1/states/{state_id}/components/{name}/raw",
    summary="Raw bytes of a component, for forensics",
    response_class=Response,
    responses=_RAW_RESPONSES,
)
async def raw(
    state_id: StateId,
    name: Annotated[ComponentName, Path(description="The component.")],
    cache: CacheDep,
) -> Response:
    """Of a quarantined or a live state, as far as it can be read. Every block is read once before the
    answer begins, to tell which cannot; one that fails after that is zeros as well. A live state that
    is found damaged goes into quarantine. If the state goes meanwhile, the answer is broken off.
    """
    found = await cache.quarantine.open_raw(state_id, name)
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{state_id}.{name}.bin"',
        "Statehold-Manifest": "intact" if found.sealed else "damaged",
    }
    if found.damaged:
        headers["Statehold-Damaged-Blocks"] = _named(found.damaged)
    return ByteStream(
        cache.forensics.stream(found),
        found.length,
        lambda: cache.forensics.close(found),
        headers=headers,
        idle_timeout_s=cache.settings.idle_timeout_s,
    )


def wanted(
    caller: Caller, namespace: str | None, tenant: str | None
) -> Callable[[str], bool] | None:
    """Which namespaces are asked for, by their held names; None: all.

    Raises:
        InvalidNamespace, Forbidden: the caller may not ask for that one.
    """
    if namespace is not None:
        only = caller.held(namespace, tenant)
        return lambda held: held == only
    if tenant is not None:
        meant = caller.meant(tenant)
        return lambda held: split(held)[0] == meant and caller.sees(held)
    return None if caller.unbounded else caller.sees


def listed(rows: Sequence[Held], limit: int) -> QuarantineList:
    """Rows as a page of so many."""
    following = _cursor(rows[-1]) if len(rows) == limit else None
    return QuarantineList(
        states=[
            views.state_detail(row.state, row.namespace, row.components, row.evidence, row.pin)
            for row in rows
        ],
        next=following,
    )


def _json(rows: Sequence[Held], limit: int) -> str:
    return listed(rows, limit).model_dump_json()


def _cursor(row: Held) -> str:
    place = f"{row.evidence.at_ms}/{row.state.state_id}"
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def place(cursor: str) -> tuple[int, str]:
    """What `_cursor` was made of.

    Raises:
        ApiProblem: it made no such thing.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded.encode("ascii"), b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    found = _CURSOR.match(text)
    if found is None:
        raise ApiProblem("invalid_request", "after: not the `next` of a page", "query.after")
    return int(found[1]), found[2]


def _named(indices: Sequence[int]) -> str:
    named = [str(index) for index in indices[:_MOST_NAMED]]
    if len(indices) > _MOST_NAMED:
        named.append(f"+{len(indices) - _MOST_NAMED}")
    return ",".join(named)
