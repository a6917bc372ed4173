"""Namespaces, identities and tokens: one text for one thing, and a proof for every prefix."""

from __future__ import annotations

import base64
import struct

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from app.engine import identity
from app.engine.errors import InvalidIdentity, InvalidNamespace, InvalidTokens

tokens_lists = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50)


@given(tokens_lists)
def test_both_forms_of_tokens_are_the_same_bytes(tokens: list[int]) -> None:
    packed = struct.pack(f"<{len(tokens)}i", *tokens)
    assert identity.pack_tokens(tokens, 100) == packed
    text = base64.b64encode(packed).decode()
    assert identity.decode_tokens_b64(text, 100) == packed


@given(tokens_lists, st.text(min_size=1, max_size=20))
def test_prefix_digests_are_the_digests_of_the_prefixes(tokens: list[int], namespace: str) -> None:
    namespace = namespace.encode("utf-8", "ignore").decode() or "n"
    packed = identity.pack_tokens(tokens, 100)
    counts = list(range(1, len(tokens) + 1))
    assert identity.prefix_digests(namespace, packed, counts) == [
        identity.token_digest(namespace, packed[: 4 * count]) for count in counts
    ]


def test_the_proof_is_the_documented_one() -> None:
    image = b"statehold:prefix:1\0" + struct.pack("<I", 2) + "é".encode() + struct.pack("<i", 7)
    assert identity.token_digest("é", struct.pack("<i", 7)) == blake3(image).digest()


def test_a_namespace_cannot_be_moved_into_the_tokens() -> None:
    assert identity.token_digest("a", b"bcde") != identity.token_digest("ab", b"cde\0")


@pytest.mark.parametrize("tokens", [[], [2**31], [-(2**31) - 1], [10**20]])
def test_tokens_that_are_no_int32_are_refused(tokens: list[int]) -> None:
    with pytest.raises(InvalidTokens):
        identity.pack_tokens(tokens, 100)


@pytest.mark.parametrize("bad", [True, 1.0, "1", None])
def test_only_integers_are_tokens(bad: object) -> None:
    with pytest.raises(InvalidTokens):
        identity.pack_tokens([1, bad], 100)  # type: ignore[list-item]


@pytest.mark.parametrize("text", ["", "AAA=", "AAAAA", "AAAA*AAA", "AAAA\n", "____", "AAAAAAA="])
def test_base64_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidTokens):
        identity.decode_tokens_b64(text, 100)


def test_longer_than_the_longest_prefix_is_refused() -> None:
    assert len(identity.pack_tokens([1] * 100, 100)) == 400
    with pytest.raises(InvalidTokens):
        identity.pack_tokens([1] * 101, 100)


@pytest.mark.parametrize("name", ["a", "x" * 256, "модель/é", "a b", "日本", "a\u00a0b"])
def test_clean_names_are_taken(name: str) -> None:
    identity.check_namespace(name)


@pytest.mark.parametrize(
    "name", ["", "x" * 257, "a\n", "\x7f", "e\u0301", "\ud800", "a\u2029b", "\x85"]
)
def test_names_that_could_be_mistaken_are_refused(name: str) -> None:
    with pytest.raises(InvalidNamespace):
        identity.check_namespace(name)


def test_one_document_has_one_text() -> None:
    a = {"b": 1, "a": {"y": [1, 2.5, None], "x": "é"}}
    b = {"a": {"x": "é", "y": [1, 2.5, None]}, "b": 1}
    assert identity.canonical_json(a) == '{"a":{"x":"é","y":[1,2.5,null]},"b":1}'
    assert identity.identity_digest(a) == identity.identity_digest(b)
    assert identity.identity_digest(a) != identity.identity_digest({**a, "c": None})


@pytest.mark.parametrize(
    "document",
    [{"a": float("nan")}, {"a": float("inf")}, {"a": "\ud800"}, {"a": "x" * 70_000}, {"a": b"x"}],
)
def test_what_is_no_plain_json_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidIdentity):
        identity.canonical_json(document)


def test_deep_nesting_is_refused() -> None:
    document: dict[str, object] = {}
    for _ in range(100):
        document = {"a": document}
    with pytest.raises(InvalidIdentity):
        identity.canonical_json(document)


@pytest.mark.parametrize(
    ("document", "lacks"),
    [
        ({"weights_digest": "sha256:1"}, False),
        ({"weights_digest": ""}, True),
        ({"weights_digest": " "}, True),
        ({"weights_digest": None}, True),
        ({}, True),
    ],
)
def test_a_weights_digest_is_a_text_that_says_something(
    document: dict[str, object], lacks: bool
) -> None:
    assert identity.lacks_weights_digest(document) is lacks


def test_differing_fields_are_dotted_paths_and_absent_is_no_default() -> None:
    a = {"model_id": "m", "kv": {"k": "f16", "v": "f16"}, "ctx": None, "l": [1, 2]}
    b = {"model_id": "m", "kv": {"k": "q8_0", "v": "f16"}, "l": [1, 3], "fa": False}
    assert identity.differing_fields(a, b) == ["ctx", "fa", "kv.k", "l"]
    assert identity.differing_fields(a, a) == []
    assert identity.differing_fields({"x": "absent"}, {}) == ["x"]
    assert identity.differing_fields({"x": 1}, {"x": True}) == ["x"]
