"""Token ids as base64, namespaces, and identity documents."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from pydantic_core import from_json

from app.engine.errors import InvalidIdentity, InvalidNamespace, InvalidTokens
from app.engine.identity import (
    canonical_json,
    check_namespace,
    decode_tokens_b64,
    differing_fields,
    identity_digest,
    lacks_weights_digest,
    model_of,
    pack_tokens,
    prefix_digests,
    token_digest,
)
from tests.support.client import b64

_TOKENS, _IDENTITY = range(2)
_MOST: Final = 1000


def seeds() -> Iterator[bytes]:
    for tokens in ([1], [0, -1, 2**31 - 1], list(range(1001))):
        yield bytes([_TOKENS]) + b64(tokens).encode()
    for text in (
        "AAA",
        "AAAA====",
        "AA==AAAA",
        "A\nAAA",
        "é" * 8,
        "AAECAw==\n",
        "____",
        "AQAAAB==",
    ):
        yield bytes([_TOKENS]) + text.encode()
    yield (
        bytes([_IDENTITY]) + b'{"model_id":"m","weights_digest":"d","kv_types":{"k":"f16","v.":1}}'
    )
    yield bytes([_IDENTITY]) + b'{"":{"":{"a.b":[1,2,{"\\"":null}]}},"a":1e300,"b":-0.0}'
    yield bytes([_IDENTITY]) + b'{"a":' * 40 + b"1" + b"}" * 40


def target(data: bytes) -> None:
    if not data:
        return
    if data[0] % 2 == _TOKENS:
        # As JSON gives it: any text, lone surrogates too.
        _text(data[1:].decode("utf-8", "surrogateescape" if data[0] & 2 else "replace"))
        return
    try:
        document = from_json(data[1:], allow_inf_nan=False)
    except ValueError:
        return
    if isinstance(document, dict):
        _identity(document)


def _text(text: str) -> None:
    try:
        packed = decode_tokens_b64(text, _MOST)
    except InvalidTokens:
        pass
    else:
        assert base64.b64encode(packed).decode() == text
        assert 0 < len(packed) // 4 <= _MOST
        numbers = list(memoryview(packed).cast("i"))
        assert pack_tokens(numbers, _MOST) == packed
        assert prefix_digests("n", packed, [len(numbers)]) == [token_digest("n", packed)]
    try:
        check_namespace(text)
    except InvalidNamespace:
        return
    assert text.encode().decode() == text
    assert "\n" not in text


def _identity(document: dict[str, object]) -> None:
    try:
        text = canonical_json(document)
    except InvalidIdentity:
        return
    again = from_json(text)
    assert canonical_json(again) == text
    assert identity_digest(again) == identity_digest(document)
    assert differing_fields(document, again) == []
    assert differing_fields(document, {**document, "one more": 1}) in (["one more"], [])
    assert lacks_weights_digest(document) in (True, False)
    assert model_of(document) is None or isinstance(model_of(document), str)
