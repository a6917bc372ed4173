"""Engine errors as RFC 9457 problems, and the list of every code that a caller can meet.

A code never changes its meaning; its status follows from the table, so that OpenAPI, the answers and
the documentation cannot disagree. Nothing of the request is ever echoed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.api.problem_body import problem_body
from app.engine.errors import EngineError, InvalidInput

MEDIA_TYPE: Final = "application/problem+json"

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
    "invalid_payload": ProblemKind(422, "Kind, components and descriptor do not fit together"),
    "invalid_descriptor": ProblemKind(422, "The KV descriptor does not fit the payload"),
    "descriptor_too_large": ProblemKind(422, "The KV descriptor is too large"),
    "invalid_identity": ProblemKind(422, "The identity document is not acceptable"),
    "weights_digest_missing": ProblemKind(422, "The identity lacks a weights digest"),
    "length_mismatch": ProblemKind(400, "The body does not have the announced length"),
    "digest_mismatch": ProblemKind(400, "The body does not have the announced digest"),
    "invalid_digest_header": ProblemKind(400, "Content-Digest cannot be read"),
    "invalid_multipart": ProblemKind(400, "The multipart body cannot be read"),
    "range_not_satisfiable": ProblemKind(416, "The range lies outside the component"),
    "not_found": ProblemKind(404, "There is no such route"),
    "method_not_allowed": ProblemKind(405, "The route does not take this method"),
    # things that are not there, or not any more
    "state_not_found": ProblemKind(404, "There is no such state"),
    "component_not_found": ProblemKind(404, "The state has no such component"),
    "component_not_announced": ProblemKind(404, "Admission did not name this component"),
    "record_not_found": ProblemKind(404, "There is no such recording"),
    "lease_not_found": ProblemKind(404, "There is no such lease"),
    "namespace_not_found": ProblemKind(404, "There is no such namespace"),
    "lease_expired": ProblemKind(410, "The lease has run out"),
    "state_quarantined": ProblemKind(410, "The state is out of service"),
    # not in this phase of its life
    "record_committed": ProblemKind(409, "The recording has been committed"),
    "components_missing": ProblemKind(409, "Components have not arrived yet"),
    "component_complete": ProblemKind(409, "The component has arrived already"),
    "upload_in_progress": ProblemKind(409, "The component is being uploaded"),
    "already_recorded": ProblemKind(409, "The prefix was recorded meanwhile"),
    "lease_released": ProblemKind(409, "The lease has been released"),
    "identity_conflict": ProblemKind(409, "Another identity is registered"),
    "namespace_in_use": ProblemKind(409, "The namespace was used before it had an identity"),
    "state_not_live": ProblemKind(409, "The state is not in service"),
    "state_not_quarantined": ProblemKind(409, "The state is not quarantined"),
    "still_failing": ProblemKind(409, "The state still fails verification"),
    "newer_recording": ProblemKind(409, "A newer recording of the prefix is in service"),
    # admission
    "in_flight": ProblemKind(409, "Somebody is recording this prefix"),
    "too_short": ProblemKind(422, "The prefix is too short to be recorded"),
    "oversize": ProblemKind(413, "The state is larger than the budget"),
    "disabled": ProblemKind(403, "Recording is switched off"),
    "at_capacity": ProblemKind(503, "No more can be recorded at the moment"),
    "busy": ProblemKind(503, "The store is busy"),
    "stopped": ProblemKind(503, "The writer has stopped"),
    "low_space": ProblemKind(507, "The free-disk reserve has been reached"),
    # ours
    "quarantine_failed": ProblemKind(503, "A damaged state could not be taken out of service"),
    "internal_error": ProblemKind(500, "Something went wrong here"),
}

# What every route with a JSON body can answer about it.
JSON_BODY: Final = ("invalid_request", "invalid_json", "body_too_large", "too_slow")


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


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that can answer with these codes, with an example of each."""
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for code in ("internal_error", *codes):
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
        code = error.code if error.code in CODES else _fallback(error)
        return answer(request, code, error.detail, field=error.field, headers=headers)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if isinstance(error, ApiProblem):
            return answer(request, error.code, error.detail, field=error.field, headers=headers)
        code = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}.get(
            error.status_code, "invalid_json" if error.status_code == 400 else "invalid_request"
        )
        return answer(request, code, f"{CODES[code].title}.", headers=headers)

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()
        if found and found[0]["type"] == "json_invalid":
            return answer(request, "invalid_json", "The body is not JSON.")
        errors = [
            {"field": _path(item["loc"]), "message": item["msg"], "type": item["type"]}
            for item in found[:20]
        ]
        first = errors[0] if errors else {"field": "body", "message": "invalid"}
        return answer(
            request,
            "invalid_request",
            f"{first['field']}: {first['message']}",
            field=first["field"],
            errors=errors,
        )


def _fallback(error: EngineError) -> str:
    _log.error("undocumented_code", code=error.code)
    return "invalid_request" if isinstance(error, InvalidInput) else "internal_error"


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location if part != "body") or "body"
