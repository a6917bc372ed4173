"""The audit log: every call of a route that changes something for operators, also those that fail.

What is kept of the body is what operators sent, which never holds token ids or payload bytes. A full disk
does not keep an operator from making room: an entry that cannot be written goes to the log alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.access import RIGHTS, cache_of, caller_of
from app.api.parsing import SMALL, values
from app.engine.errors import EngineError

_AUDITED: Final = frozenset({"admin:write", "forensics"})
_MOST_DETAIL_CHARACTERS: Final = 2000
_MOST_FIELDS: Final = 20

_log = structlog.get_logger("statehold.audit")


def is_audited(method: str, path: str) -> bool:
    """Whether calls of the route go into the log."""
    right = RIGHTS[method, path]
    return right is not None and right.scope in _AUDITED


async def audited(
    request: Request, path: str, handler: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Run a handler and note how it ended."""
    outcome = "broken_off"
    try:
        response = await handler(request)
    except EngineError as error:
        outcome = error.code
        raise
    except RequestValidationError:
        outcome = "invalid_request"
        raise
    except HTTPException as error:
        outcome = getattr(error, "code", str(error.status_code))
        raise
    except Exception:
        outcome = "internal_error"
        raise
    else:
        outcome = "done"
        return response
    finally:
        await asyncio.shield(_note(request, path, outcome))


async def _note(request: Request, path: str, outcome: str) -> None:
    body = await _body(request)
    named = {"path": dict(request.path_params), "query": dict(request.query_params), "body": body}
    details = json.dumps({key: value for key, value in named.items() if value})
    if len(details) > _MOST_DETAIL_CHARACTERS:
        fields = sorted(body)[:_MOST_FIELDS] if isinstance(body, dict) else []
        shortened: dict[str, object] = {"fields": [field[:64] for field in fields]}
        # A look must not read as a change.
        if isinstance(body, dict) and body.get("dry_run") is True:
            shortened["body"] = {"dry_run": True}
        details = json.dumps(shortened)
    entry = {
        "actor": caller_of(request).actor,
        "action": f"{request.method} {path}",
        "target": _target(request, body),
        "outcome": outcome,
        "details": details,
    }
    if not await cache_of(request).audit(entry):
        _log.warning("audit_not_written", **entry)


async def _body(request: Request) -> Any:
    """The parsed body, where the handler has read one."""
    raw = getattr(request, "_body", b"")
    try:
        return values(raw, SMALL) if raw else None
    except RequestValidationError:
        return None


def _target(request: Request, body: Any) -> str:
    named = [str(value) for value in request.path_params.values()]
    if not named and isinstance(body, dict):
        named = [str(body[key]) for key in ("namespace", "name", "kind") if body.get(key)]
    return " ".join(named)[:300]
