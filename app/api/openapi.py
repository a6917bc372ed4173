"""The OpenAPI document: tags, an introduction, and our problem shape instead of FastAPI's own."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api.access import RIGHTS
from app.api.links import link
from app.api.schemas.blocks import BlocksWanted, NeedRequest
from app.api.schemas.cache import LookupRequest, RestoreRequest
from app.api.schemas.common import Problem
from app.api.schemas.explain import ExplainRequest
from app.api.schemas.records import RecordRequest

TAGS: Final = [
    {"name": "cache", "description": "Find and give back states; describe namespaces."},
    {"name": "records", "description": "Record states: ask, send, commit."},
    {
        "name": "blocks",
        "description": "Both ways in blocks: send and get only what the other side does not have.",
    },
    {"name": "leases", "description": "Hold a state while reading it; say how the import went."},
    {"name": "admin", "description": "For operators: see, quarantine, evict, limit."},
    {"name": "system", "description": "Health."},
]

_INTRODUCTION: Final = """
Ask before prefill: *for this model identity and these token ids, what is the longest prefix whose
runtime state you hold?* Get that state back bit for bit, import it, compute only the tail. After
prefill, record the new state.

**Restore** is one round trip: `POST /v1/restore`. Or in steps: `POST /v1/lookup` with `acquire`,
`GET /v1/states/{id}/components/{name}`, `POST /v1/leases/{id}/release` with the outcome.

**Blocks**: `blocks` in a restore, and `need` with `PUT …/blocks` in a recording, move only what the
other side does not have (docs/native.md).

**Record**: `POST /v1/records` asks whether it is worth exporting, `PUT` each component, then
`POST …/commit`. Small clients send one multipart `POST /v1/states`.

Errors are `application/problem+json` (RFC 9457) with a stable `code`. Every answer has an
`X-Request-Id`. Token ids and payload bytes never appear in errors or logs.
"""


def install_schema(app: FastAPI) -> None:
    """Have the app describe itself."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=_INTRODUCTION,
                routes=app.routes,
                tags=TAGS,
            )
            shapes = document["components"]["schemas"]
            for model in (
                Problem,
                RecordRequest,
                LookupRequest,
                RestoreRequest,
                ExplainRequest,
                NeedRequest,
                BlocksWanted,
            ):
                shape = model.model_json_schema(ref_template="#/components/schemas/{model}")
                shapes |= shape.pop("$defs", {})
                shapes[model.__name__] = shape
            _drop_default_validation(document)
            _secure(document)
            link(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]


def _secure(document: dict[str, Any]) -> None:
    """Say of every operation which scope its token needs."""
    document["components"]["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "Needed from the first token on (docs/security.md).",
        }
    }
    for (method, path), right in RIGHTS.items():
        operation = document["paths"][path][method.lower()]
        if right is None:
            operation["security"] = []
            continue
        operation["security"] = [{"token": []}]
        needs = f"scope `{right.scope}`" if right.scope else "any good token"
        if right.operator:
            needs += ", and neither tenant nor namespaces"
        operation["description"] = f"{operation.get('description', '')}\n\nNeeds {needs}."


def _drop_default_validation(document: dict[str, Any]) -> None:
    """FastAPI documents a 422 of its own where a route names none; ours are problems."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for path in document["paths"].values():
        for operation in path.values():
            answer = operation["responses"].get("422", {})
            if "application/json" in answer.get("content", {}):
                del operation["responses"]["422"]
