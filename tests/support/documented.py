"""Holds every answer that a test gets against what OpenAPI says the route may answer."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any

import httpx
import jsonschema_rs


@cache
def document() -> dict[str, Any]:
    """The service's own OpenAPI document."""
    from app.main import build
    from app.settings import Settings

    kept = {name: os.environ.pop(name) for name in list(os.environ) if name == "STATEHOLD_SHARED"}
    try:
        return build(Settings()).openapi()
    finally:
        os.environ.update(kept)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile("^" + re.sub(r"\{\w+\}", "[^/]+", path) + "$"), path)
        for path in document()["paths"]
    ]


def check(answer: httpx.Response) -> None:
    """Status, code of a problem, and shape of a body must be documented for this route."""
    path = answer.request.url.raw_path.decode().partition("?")[0]
    method = answer.request.method.lower()
    for pattern, template in _patterns():
        operation = document()["paths"][template].get(method)
        if operation is None or not pattern.match(path):
            continue
        bodiless = method == "head"
        if answer.status_code == 404 and not bodiless and answer.json().get("code") == "not_found":
            return  # no route took it
        documented = operation["responses"].get(str(answer.status_code))
        where = f"{method} {template} -> {answer.status_code}"
        assert documented is not None, f"{where} is not documented"
        if answer.headers.get("content-type") == "application/problem+json" and not bodiless:
            code = answer.json()["code"]
            examples = documented["content"]["application/problem+json"]["examples"]
            assert code in examples, f"{where} with {code} is not documented"
        if answer.headers.get("content-type") == "application/json" and not bodiless:
            _validator(template, method, str(answer.status_code)).validate(answer.json())
        return


@cache
def _validator(template: str, method: str, status: str) -> jsonschema_rs.Draft202012Validator:
    """Of the body that OpenAPI (3.1) promises."""
    answer = document()["paths"][template][method]["responses"][status]
    schema = answer["content"]["application/json"]["schema"]
    return jsonschema_rs.Draft202012Validator(
        {**schema, "components": document()["components"]}, validate_formats=True
    )
