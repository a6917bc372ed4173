"""The OpenAPI document: a newcomer can work from it alone, and it says what the service does.

That each status and code that any test meets is documented is checked in `tests/support/client.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.api.problems import CODES
from app.api.schemas.common import IN_WORDS
from tests.support.client import Client, code
from tests.support.documented import document

_APP = Path(__file__).parents[2] / "app"
TAGS = {"cache", "records", "blocks", "leases", "admin", "system"}


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


@pytest.mark.parametrize(("name", "operation"), list(operations()), ids=lambda v: str(v)[:60])
def test_every_route_is_described(name: str, operation: dict[str, Any]) -> None:
    assert operation["summary"], name
    assert len(operation["description"]) > 20, name
    assert set(operation["tags"]) <= TAGS
    assert len(operation["tags"]) == 1
    for parameter in operation.get("parameters", []):
        assert parameter.get("description") or parameter["name"] == "limit", parameter
    for status, answer in operation["responses"].items():
        assert answer["description"], (name, status)
        if int(status) >= 400 and "application/problem+json" in answer.get("content", {}):
            for code, example in answer["content"]["application/problem+json"]["examples"].items():
                assert example["value"]["code"] == code
                assert example["value"]["status"] == int(status) == CODES[code].status


def test_every_pattern_is_said_in_words_where_it_is_not_met(client: Client) -> None:
    found = set(re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(document())))
    assert {json.loads(text) for text in found} == set(IN_WORDS)
    for answer in (
        client.get("/admin/v1/states/xyz"),
        client.post("/admin/v1/jobs", json={"kind": "backup", "name": "../x"}),
        client.post("/admin/v1/evictions", json={"state_ids": ["xyz"]}),
    ):
        assert code(answer) == (422, "invalid_request")
        assert any(words in answer.json()["detail"] for words in IN_WORDS.values()), answer.text
        assert "pattern" not in answer.json()["detail"]


def test_every_tag_is_used_and_described() -> None:
    assert {tag["name"] for tag in document()["tags"]} == TAGS
    assert all(tag["description"] for tag in document()["tags"])
    assert {tag for _, operation in operations() for tag in operation["tags"]} == TAGS


def test_every_code_that_the_service_can_answer_is_in_the_table_and_on_a_route() -> None:
    """Codes are written where errors are raised; none may be missing from the table."""
    raised = set()
    for path in _APP.rglob("*.py"):
        source = path.read_text()
        raised |= set(
            re.findall(
                r"(?:Invalid\w+|NotFound|Gone|Conflicting|Refused|Unavailable|Damaged|ApiProblem)"
                r"\(\s*\"(\w+)\"",
                source,
            )
        )
    from app.engine.admission import Admission

    raised |= {verdict.value for verdict in Admission} - {"admitted", "already_recorded"}
    assert raised <= set(CODES), raised - set(CODES)
    everywhere = {"not_found", "method_not_allowed"}
    documented = {
        code
        for _, operation in operations()
        for answer in operation["responses"].values()
        for code in answer.get("content", {})
        .get("application/problem+json", {})
        .get("examples", {})
    }
    assert set(CODES) - everywhere == documented


def test_every_answer_that_names_something_says_where_that_leads() -> None:
    known = {operation["operationId"]: operation for _, operation in operations()}
    links = [
        (name, target)
        for name, operation in operations()
        for answer in operation["responses"].values()
        for target in answer.get("links", {}).values()
    ]
    assert len(links) > 50
    for name, target in links:
        taken = {parameter["name"] for parameter in known[target["operationId"]]["parameters"]}
        assert target["parameters"].keys() <= taken, name


def test_request_bodies_have_examples_or_described_fields() -> None:
    for name, shape in document()["components"]["schemas"].items():
        assert shape.get("description"), name
    for _, operation in operations():
        assert "HTTPValidationError" not in str(operation)


def test_the_docs_are_served(client: Client) -> None:
    assert client.get("/openapi.json").json()["info"]["title"] == "Statehold"
    assert client.get("/docs").status_code == 200
