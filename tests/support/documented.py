"""Holds every answer that a test gets against what OpenAPI says the route may answer."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any

import httpx


@cache
def document() -> dict[str, Any]:
    """The service's own OpenAPI document."""
    import logging

    from app.main import create_app

    kept = {name: os.environ.pop(name) for name in list(os.environ) if name == "STATEHOLD_SHARED"}
    try:
        found: dict[str, Any] = create_app().openapi()
        logging.getLogger("httpx").setLevel(logging.WARNING)
        return found
    finally:
        os.environ.update(kept)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile("^" + re.sub(r"\{\w+\}", "[^/]+", path) + "$"), path)
        for path in document()["paths"]
    ]


def check(answer: httpx.Response) -> None:
    """The status, and of a problem the code, must be documented for this route."""
    path = answer.request.url.raw_path.decode().partition("?")[0]
    method = answer.request.method.lower()
    for pattern, template in _patterns():
        operation = document()["paths"][template].get(method)
        if operation is None or not pattern.match(path):
            continue
        if answer.status_code == 404 and answer.json().get("code") == "not_found":
            return  # no route took it
        documented = operation["responses"].get(str(answer.status_code))
        where = f"{method} {template} -> {answer.status_code}"
        assert documented is not None, f"{where} is not documented"
        if answer.headers.get("content-type") == "application/problem+json":
            code = answer.json()["code"]
            examples = documented["content"]["application/problem+json"]["examples"]
            assert code in examples, f"{where} with {code} is not documented"
        return
