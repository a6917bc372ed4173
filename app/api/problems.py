"""Engine errors as RFC 9457 problems, and the list of every code that a caller can meet.

A code never changes its meaning; its status follows from the table, so that OpenAPI, the answers and
the documentation cannot disagree. Nothing of the request is ever echoed.
"""

from __future__ import annotations

import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.api.access import RIGHTS
from app.api.problem_body import problem_body
from app.api.schemas.common import IN_WORDS
from app.engine.errors import EngineError, InvalidInput, Unauthorized
from app.engine.threads import DAMAGED, trouble
from storage.errors import StorageError, StoreDamaged

MEDIA_TYPE: Final = "application/problem+json"

_ERRORS_TOLD: Final = 20
# Longer than every name of a field or parameter.
_MOST_NAME_CHARACTERS: Final = 40
# pydantic (2.14) says what it has found here, and nowhere else.
_MESSAGES: Final = {"union_tag_invalid": "This is none of the documented kinds"}

_log = structlog.get_logger("statehold.api")


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One code: its status and its title."""

    status: int
    title: str


CODES: Final[dict[str, ProblemKind]] = {
    # the request itself
    "invalid_request": ProblemKind(422, "The request does not have the documented form"),
    "invalid_json": ProblemKind(400, "The body is not JSON"),
    "body_too_large": ProblemKind(413, "The body is larger than this route takes"),
    "too_slow": ProblemKind(408, "The body arrived too slowly"),
    "invalid_namespace": ProblemKind(422, "The namespace is not acceptable"),
    "invalid_tokens": ProblemKind(422, "The token ids are not acceptable"),
    "invalid_geometry": ProblemKind(422, "The geometry does not fit its component"),
    "invalid_payload": ProblemKind(422, "Kind, components and descriptor do not fit together"),
    "invalid_descriptor": ProblemKind(422, "The KV descriptor does not fit the payload"),
    "descriptor_too_large": ProblemKind(422, "The KV descriptor is too large"),
    "invalid_identity": ProblemKind(422, "The identity document is not acceptable"),
    "invalid_tenant": ProblemKind(422, "The tenant's name is not acceptable"),
    "weights_digest_missing": ProblemKind(422, "The identity lacks a weights digest"),
    "length_mismatch": ProblemKind(400, "The body does not have the announced length"),
    "digest_mismatch": ProblemKind(400, "The body does not have the announced digest"),
    "invalid_digest_header": ProblemKind(400, "Content-Digest cannot be read"),
    "invalid_multipart": ProblemKind(400, "The multipart body cannot be read"),
    "range_not_satisfiable": ProblemKind(416, "The range lies outside the component"),
    "not_found": ProblemKind(404, "There is no such route"),
    "invalid_http": ProblemKind(400, "The request is not HTTP/1.1"),
    "url_too_long": ProblemKind(414, "The URL is too long"),
    "header_too_large": ProblemKind(431, "The header block is too large"),
    "method_not_allowed": ProblemKind(405, "The route does not take this method"),
    # who asks
    "unauthorized": ProblemKind(401, "A good token is needed"),
    "forbidden": ProblemKind(403, "The token is not good for this"),
    "rate_limited": ProblemKind(429, "The tenant has used up its rate"),
    "over_quota": ProblemKind(429, "The tenant has used up its quota"),
    "token_not_found": ProblemKind(404, "There is no such token"),
    # things that are not there, or not any more
    "state_not_found": ProblemKind(404, "There is no such state"),
    "component_not_found": ProblemKind(404, "The state has no such component"),
    "component_not_announced": ProblemKind(404, "Admission did not name this component"),
    "record_not_found": ProblemKind(404, "There is no such recording"),
    "lease_not_found": ProblemKind(404, "There is no such lease"),
    "node_not_found": ProblemKind(404, "The tree has no such node"),
    "job_not_found": ProblemKind(404, "There is no such job"),
    "namespace_not_found": ProblemKind(404, "There is no such namespace"),
    "pin_not_found": ProblemKind(404, "The state is not pinned"),
    "lease_expired": ProblemKind(410, "The lease has run out"),
    "state_quarantined": ProblemKind(410, "The state is out of service"),
    # not in this phase of its life
    "record_committed": ProblemKind(409, "The recording has been committed"),
    "spool_damaged": ProblemKind(503, "The gathered bytes changed on the device"),
    "invalid_framing": ProblemKind(400, "The block stream is not framed as specified"),
    "invalid_blocks": ProblemKind(422, "A block is not what it claims to be"),
    "blocks_missing": ProblemKind(422, "Blocks of the component have not come"),
    "components_missing": ProblemKind(409, "Components have not arrived yet"),
    "component_complete": ProblemKind(409, "The component has arrived already"),
    "upload_in_progress": ProblemKind(409, "The component is being uploaded"),
    "already_recorded": ProblemKind(409, "The prefix was recorded meanwhile"),
    "lease_released": ProblemKind(409, "The lease has been released"),
    "identity_conflict": ProblemKind(409, "Another identity is registered"),
    "namespace_in_use": ProblemKind(409, "The namespace was used before it had an identity"),
    "state_not_live": ProblemKind(409, "The state is not in service"),
    "pin_budget_exceeded": ProblemKind(409, "No more can be pinned"),
    "state_not_quarantined": ProblemKind(409, "The state is not quarantined"),
    "still_failing": ProblemKind(409, "The state still fails verification"),
    "component_unreadable": ProblemKind(
        409, "The rows that say where its blocks belong are damaged"
    ),
    "newer_recording": ProblemKind(409, "A newer recording of the prefix took its place"),
    "state_leased": ProblemKind(409, "Somebody holds a lease on the state"),
    "job_running": ProblemKind(409, "A job of this kind is running"),
    "job_ended": ProblemKind(409, "The job has ended"),
    "backup_exists": ProblemKind(409, "There is a backup of that name"),
    # admission
    "in_flight": ProblemKind(409, "Somebody is recording this prefix"),
    "too_short": ProblemKind(422, "The prefix is too short to be recorded"),
    "oversize": ProblemKind(413, "The state is larger than the budget"),
    "disabled": ProblemKind(403, "Recording is switched off"),
    "at_capacity": ProblemKind(503, "No more can be recorded at the moment"),
    "busy": ProblemKind(503, "The store is busy"),
    "stopped": ProblemKind(503, "The writer has stopped"),
    "low_space": ProblemKind(507, "The free-disk reserve has been reached"),
    "unreadable": ProblemKind(503, "The store cannot be read at this moment"),
    # ours
    "quarantine_failed": ProblemKind(503, "A damaged state could not be taken out of service"),
    "store_damaged": ProblemKind(503, "The store's metadata is damaged"),
    "internal_error": ProblemKind(500, "Something went wrong here"),
}

# What every route with a JSON body can answer about it.
JSON_BODY: Final = ("invalid_request", "invalid_json", "body_too_large", "too_slow")


# What every route can answer: every one comes over a connection (app/api/guard.py) and reads the metadata.
_ALWAYS: Final = (
    "internal_error",
    "store_damaged",
    "unreadable",
    "invalid_http",
    "url_too_long",
    "header_too_large",
)
# What every route that is not public can answer, about who asks and about what it writes.
_ACCESS: Final = ("unauthorized", "forbidden", "rate_limited", "busy", "stopped", "low_space")


class ApiProblem(HTTPException):
    """A problem found while translating HTTP, before the engine was asked."""

    def __init__(
        self,
        code: str,
        detail: str,
        field: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(CODES[code].status, detail, headers)
        self.code = code
        self.field = field


def responses(*codes: str, public: bool = False) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that can answer with these codes, with an example of each.

    Args:
        public: everybody may call it, as often as they like.
    """
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    always = _ALWAYS if public else (*_ALWAYS, *_ACCESS)
    for code in dict.fromkeys((*always, *codes)):
        by_status[CODES[code].status].append(code)
    return {
        status: {
            "description": "; ".join(f"`{code}`: {CODES[code].title}" for code in members),
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": {
                        code: {
                            "summary": CODES[code].title,
                            "value": {
                                "type": f"urn:statehold:problem:{code}",
                                "title": CODES[code].title,
                                "status": status,
                                "code": code,
                                "detail": f"{CODES[code].title}.",
                                "request_id": "0198c0de-0000-7000-8000-000000000000",
                            },
                        }
                        for code in members
                    },
                }
            },
        }
        for status, members in sorted(by_status.items())
    }


def answer(
    request: Request,
    code: str,
    detail: str,
    *,
    field: str | None = None,
    headers: dict[str, str] | None = None,
    **extra: Any,
) -> Response:
    """A problem as a response."""
    kind = CODES[code]
    if field is not None:
        extra["field"] = field
    body = problem_body(
        kind.status,
        code,
        kind.title,
        detail,
        request_id=getattr(request.state, "request_id", None),
        **extra,
    )
    return Response(body, kind.status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error of the app a problem."""

    @app.exception_handler(EngineError)
    async def _engine(request: Request, error: EngineError) -> Response:
        headers = {}
        if error.retry_after_s is not None:
            headers["Retry-After"] = str(error.retry_after_s)
        if isinstance(error, Unauthorized):
            headers["WWW-Authenticate"] = 'Bearer realm="statehold"'
        code = error.code if error.code in CODES else _fallback(error)
        return answer(request, code, error.detail, field=error.field, headers=headers)

    @app.exception_handler(StorageError)
    async def _storage(request: Request, error: StorageError) -> Response:
        known = trouble(error)
        if not isinstance(known, EngineError):
            raise error
        _log.error(known.code, error=str(error))
        return await _engine(request, known)

    @app.exception_handler(StoreDamaged)
    async def _damaged(request: Request, error: StoreDamaged) -> Response:
        _log.error("store_damaged", error=error.what, where=_where(error))
        return answer(request, "store_damaged", DAMAGED, headers={"Retry-After": "30"})

    @app.exception_handler(ValidationError)
    @app.exception_handler(ResponseValidationError)
    async def _misfit(
        request: Request, error: ValidationError | ResponseValidationError
    ) -> Response:
        # What is asked is validated before; so it is what was read that does not fit its description.
        _log.error("answer_does_not_fit", fields=[_path(item["loc"]) for item in error.errors()])
        return answer(request, "store_damaged", DAMAGED, headers={"Retry-After": "30"})

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if isinstance(error, ApiProblem):
            return answer(request, error.code, error.detail, field=error.field, headers=headers)
        if error.status_code == 405 and (allowed := _allowed(request)):
            headers["Allow"] = allowed
        code = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}.get(
            error.status_code, "invalid_json" if error.status_code == 400 else "invalid_request"
        )
        return answer(request, code, f"{CODES[code].title}.", headers=headers)

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> Response:
        code, members = validation_answer(error)
        return answer(request, code, **members)


def validation_answer(error: RequestValidationError) -> tuple[str, dict[str, Any]]:
    """The code, and `detail`, `field` and `errors`, of a request that is not of the documented form.

    As short as the documented names are: what the client made up, be it a key or a tag, is cut or left out.
    """
    found = error.errors()
    if found and found[0]["type"] == "json_invalid":
        return "invalid_json", {"detail": "The body is not JSON."}
    errors = [
        {
            "field": _path(item["loc"]),
            "message": _message(item),
            "type": item["type"],
        }
        for item in found[:_ERRORS_TOLD]
    ]
    first = errors[0] if errors else {"field": "body", "message": "invalid"}
    return "invalid_request", {
        "detail": f"{first['field']}: {first['message']}",
        "field": first["field"],
        "errors": errors,
    }


def _message(item: dict[str, Any]) -> str:
    """For people, who know neither regular expressions nor pydantic's words."""
    said: str = item["msg"]
    if item["type"] == "string_pattern_mismatch":
        return IN_WORDS.get(item.get("ctx", {}).get("pattern"), said)
    return _MESSAGES.get(item["type"], said)


def _allowed(request: Request) -> str:
    """All methods of a path; the framework names those of its first route alone (Starlette 1.10)."""
    path = getattr(request.scope.get("route"), "path", None)
    return ", ".join(sorted(method for method, known in RIGHTS if known == path))


def _fallback(error: EngineError) -> str:
    _log.error("undocumented_code", code=error.code)
    return "invalid_request" if isinstance(error, InvalidInput) else "internal_error"


def _where(error: BaseException) -> str:
    """The line of ours where it came up. Not its text, which may hold what a client sent."""
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(_step(part) for part in location if part != "body") or "body"


def _step(part: int | str) -> str:
    name = str(part)
    # What a client made a name of may be what it computes with: a token id.
    if isinstance(part, str) and not (name[:1].isalpha() or name.startswith("_")):
        return "…"
    return name if len(name) <= _MOST_NAME_CHARACTERS else f"{name[:_MOST_NAME_CHARACTERS]}…"
