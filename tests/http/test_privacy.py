"""Token ids, payload bytes and secrets go nowhere but into the store: not into logs, metrics or refusals.

Every operation of the OpenAPI document is asked, well and wrong: its example with marked token ids in it, and
the same with a marked value in the place of each of its values. A new route or field is taken in by itself.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.http.test_access import make, with_token
from tests.support.client import Client, b64
from tests.support.documented import document

# Two ids whose digits, and whose bytes as base64, are found nowhere by chance.
_IDS = [1_987_654_321, 1_876_543_219]
_B64 = b64(_IDS)
_PAYLOAD = b"payload-that-is-nobodys-business" * 8
_MARKS = (*map(str, _IDS), _B64, _B64.rstrip("=")[4:], _PAYLOAD[:16].decode())
_SCOPES = ["lookup", "record", "admin:read", "admin:write", "forensics"]
# These end what the others need.
_ENDS = ("/admin/v1/mode", "/admin/v1/limits", "/admin/v1/tenants/{name}", "/admin/v1/jobs")


def _example(schema: dict[str, Any]) -> Any:
    """A value that a schema allows, with marked ids where it wants token ids."""
    if "$ref" in schema:
        return _example(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _example(next(one for one in schema[key] if one.get("type") != "null"))
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object":
        return {
            name: _IDS if name == "tokens" else _B64 if "b64" in name else _example(part)
            for name, part in schema.get("properties", {}).items()
            # One form of the ids, and not both, is what a prefix has.
            if name != "tokens" or "tokens_b64" not in schema["properties"]
        }
    if schema.get("type") == "array":
        return [_example(schema.get("items", {}))]
    if schema.get("examples"):
        return schema["examples"][0]
    return {"integer": schema.get("minimum", 1), "number": 1.5, "boolean": True}.get(
        schema.get("type", ""), "text"
    )


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside of one."""
    if way:
        yield way
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(part, (*way, key))


def _with(body: Any, way: tuple[Any, ...], mark: Any) -> Any:
    changed = copy.deepcopy(body)
    inside = changed
    for key in way[:-1]:
        inside = inside[key]
    inside[way[-1]] = mark
    return changed


def _bodies(operation: dict[str, Any]) -> Iterator[Any]:
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is None:
        yield None
        return
    good = _example(schema)
    yield good
    for way in _places(good):
        for mark in (_IDS[0], float(_IDS[1]), [_IDS], {str(_IDS[0]): _IDS}):
            yield _with(good, way, mark)
    yield from (_IDS, {**good, "no_such_field": _IDS} if isinstance(good, dict) else _IDS)


def _targets(path: str, operation: dict[str, Any], state_id: str) -> Iterator[str]:
    """The path with a state's id, and with a mark in each parameter of its query."""
    names = {"state_id": state_id, "name": "full"}
    for part in operation.get("parameters", []):
        if part["in"] == "path":
            path = path.replace(f"{{{part['name']}}}", names.get(part["name"], state_id))
    yield path
    for part in operation.get("parameters", []):
        if part["in"] == "query":
            yield f"{path}?{part['name']}={_IDS[0]}"
            yield f"{path}?{part['name']}={quote(_B64)}"


def _asked(client: Client, state_id: str) -> Iterator[httpx.Response]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            if method == "delete" or path in _ENDS:
                continue
            for target in _targets(path, operation, state_id):
                for body in _bodies(operation):
                    more = {"content": _PAYLOAD} if body is None else {"json": body}
                    yield client.request(method, target, **(more if method != "get" else {}))


@pytest.mark.timeout(300)
def test_no_token_id_payload_byte_or_secret_is_told(start: ServerFactory) -> None:
    server = start(log_level="debug")
    with Client(server.url) as everyone:
        secret = make(everyone, *_SCOPES)["secret"]
    asked = 0
    with with_token(server, secret) as client:
        state_id = client.record_full("ns", _IDS, _PAYLOAD)
        for answer in _asked(client, state_id):
            asked += 1
            if answer.status_code < 400:
                continue
            said = answer.text + json.dumps(dict(answer.headers))
            assert not [mark for mark in _MARKS if mark in said], (
                f"{answer.request.url} {answer.request.content!r} {said}"
            )
            assert secret not in said
        for path in ("/metrics", "/admin/v1/jobs", "/admin/v1/stats", "/readyz"):
            said = client.get(path).text
            assert not [mark for mark in (*_MARKS, secret) if mark in said], path
        # It says what operators asked for: a size that they gave is told, however it looks.
        said = client.get("/admin/v1/audit").text
        assert not [mark for mark in (*_MARKS[2:], secret) if mark in said]
    assert asked > 400
    server.stop()
    for mark in (*_MARKS, secret):
        assert mark not in server.logged()
