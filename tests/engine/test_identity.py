"""Namespaces, identities and tokens: one text for one thing, and a proof for every prefix."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

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


# ---- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "AA==",
        "AAAAAA",
        "AAAAAA=",
        "AAAAAA==\n",
        " AAAAAA==",
        "AAAA AA==",
        "AAAAAA===",
        "=AAAAAA=",
        "AAAAAA==AAAAAA==",
        "_____w==",
        "-----w==",
        "AAAAA\u00e9==",
        "\ud800AAAAA==",
        "AAAAAA\0=",
    ],
)
def test_base64_is_standard_padded_and_nothing_else(text: str) -> None:
    with pytest.raises(InvalidTokens) as caught:
        identity.decode_tokens_b64(text, 100)
    assert (caught.value.code, caught.value.field) == ("invalid_tokens", "tokens_b64")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 399, 401])
def test_base64_of_a_part_of_a_token_is_refused(size: int) -> None:
    with pytest.raises(InvalidTokens, match="whole int32"):
        identity.decode_tokens_b64(base64.b64encode(bytes(size)).decode(), 1000)


def test_both_forms_keep_the_bound_exactly() -> None:
    at_most = base64.b64encode(bytes(400)).decode()
    assert identity.decode_tokens_b64(at_most, 100) == bytes(400)
    assert identity.pack_tokens([0] * 100, 100) == bytes(400)
    with pytest.raises(InvalidTokens, match="at most 99"):
        identity.decode_tokens_b64(at_most, 99)
    with pytest.raises(InvalidTokens, match="at most 99"):
        identity.pack_tokens([0] * 100, 99)


def test_the_borders_of_int32_are_tokens() -> None:
    packed = identity.pack_tokens([-(2**31), -1, 0, 1, 2**31 - 1], 5)
    assert packed.hex() == "00000080ffffffff0000000001000000ffffff7f"


def test_a_refusal_names_the_field_it_was_told_and_no_token() -> None:
    with pytest.raises(InvalidTokens) as caught:
        identity.pack_tokens([123456789, 2**40], 5, "queries.3.tokens")
    assert (caught.value.code, caught.value.field) == ("invalid_tokens", "queries.3.tokens")
    assert "123456789" not in str(caught.value)
    assert str(2**40) not in str(caught.value)
    with pytest.raises(InvalidTokens) as caught:
        identity.decode_tokens_b64("!", 5, "queries.4.tokens_b64")
    assert caught.value.field == "queries.4.tokens_b64"
    with pytest.raises(InvalidTokens) as caught:
        identity.pack_tokens([], 5)
    assert caught.value.field == "tokens"


@pytest.mark.parametrize("bad", [False, 0.0, "7", b"7", [1], float("nan"), 1j])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_wrong_value_anywhere_is_enough(bad: object, at: int) -> None:
    tokens: list[Any] = [1, 2, 3]
    tokens[at] = bad
    with pytest.raises(InvalidTokens, match="integers"):
        identity.pack_tokens(tokens, 100)


# ---- proofs ----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 60), unique=True).map(sorted), st.binary(min_size=240, max_size=240))
def test_any_ascending_counts_give_the_digests_of_their_prefixes(
    counts: list[int], tokens: bytes
) -> None:
    assert identity.prefix_digests("ns", tokens, counts) == [
        identity.token_digest("ns", tokens[: 4 * count]) for count in counts
    ]


def test_no_counts_give_no_digests_and_a_repeated_one_the_same_twice() -> None:
    tokens = identity.pack_tokens([1, 2, 3], 5)
    assert identity.prefix_digests("ns", tokens, []) == []
    one, two = identity.prefix_digests("ns", tokens, [2, 2])
    assert one == two == identity.token_digest("ns", memoryview(tokens)[:8])


@given(st.text(max_size=8), st.binary(max_size=12), st.text(max_size=8), st.binary(max_size=12))
def test_different_prefixes_or_namespaces_have_different_proofs(
    one: str, tokens: bytes, other: str, more: bytes
) -> None:
    same = (one, tokens) == (other, more)
    assert (identity.token_digest(one, tokens) == identity.token_digest(other, more)) is same


# ---- namespaces ------------------------------------------------------------------------------


def test_a_refused_name_names_its_field() -> None:
    with pytest.raises(InvalidNamespace) as caught:
        identity.check_namespace("")
    assert (caught.value.code, caught.value.field) == ("invalid_namespace", "namespace")
    with pytest.raises(InvalidNamespace) as caught:
        identity.check_namespace("a\0b", "queries.0.namespace")
    assert caught.value.field == "queries.0.namespace"


@given(st.text(max_size=300))
def test_whatever_is_taken_is_clean_and_encodes(name: str) -> None:
    try:
        identity.check_namespace(name)
    except InvalidNamespace:
        return
    assert 1 <= len(name) <= 256
    assert len(name.splitlines()) == 1
    assert name.encode().decode() == name


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029, 0xDFFF])
def test_every_control_character_and_line_break_is_refused(code: int) -> None:
    for name in (chr(code), f"a{chr(code)}b", f"é{chr(code)}"):
        with pytest.raises(InvalidNamespace):
            identity.check_namespace(name)


# ---- identity documents ----------------------------------------------------------------------

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3
        )
    ),
    max_leaves=10,
)
_DOCUMENTS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs", "Po"]), max_size=4), _JSON, max_size=5
)


def _reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reordered(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [_reordered(inner) for inner in value]
    return value


@given(_DOCUMENTS)
def test_the_order_of_keys_changes_neither_text_nor_digest(document: dict[str, Any]) -> None:
    text = identity.canonical_json(document)
    other = _reordered(document)
    assert identity.canonical_json(other) == text
    assert identity.identity_digest(other) == identity.identity_digest(document)
    assert identity.identity_digest(document) == blake3(text.encode()).digest()
    assert json.loads(text) == document
    assert identity.canonical_json(json.loads(text)) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": True}),
        ({"a": 0}, {"a": False}),
        ({"a": 1}, {"a": "1"}),
        ({"a": None}, {}),
        ({"a": None}, {"a": "null"}),
        ({"a": []}, {"a": {}}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "x"}, {"a": "x "}),
        ({"a": 0.0}, {"a": -0.0}),
    ],
)
def test_values_that_differ_at_all_are_different_documents(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert identity.identity_digest(one) != identity.identity_digest(other)
    assert identity.differing_fields(one, other) == ["a"]
    assert identity.differing_fields(other, one) == ["a"]


def test_an_identity_of_exactly_the_bound_is_taken_and_one_byte_more_is_not() -> None:
    room = identity.MOST_IDENTITY_BYTES - len('{"a":""}')
    assert len(identity.canonical_json({"a": "x" * room})) == identity.MOST_IDENTITY_BYTES
    identity.canonical_json({"a": "é" * (room // 2)})
    for text in ("x" * (room + 1), "é" * (room // 2 + 1)):
        with pytest.raises(InvalidIdentity, match="64 KiB"):
            identity.canonical_json({"a": text})


def _nested(depth: int, wrap: type) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth - 1):
        value = {"a": value} if wrap is dict else [value]
    return {"a": value}


@pytest.mark.parametrize("wrap", [dict, list])
def test_nesting_ends_at_32(wrap: type) -> None:
    identity.canonical_json(_nested(32, wrap))
    for depth in (33, 1000):
        with pytest.raises(InvalidIdentity, match="deeply") as caught:
            identity.canonical_json(_nested(depth, wrap))
        assert (caught.value.code, caught.value.field) == ("invalid_identity", "identity")


@pytest.mark.parametrize(
    "document",
    [
        {"a": float("-inf")},
        {"a": [float("nan")]},
        {"\ud800": 1},
        {"a": ["\udfff"]},
        {"a": {1, 2}},
        {"a": object()},
        {(1, 2): 1},
        {"a": 1, None: 2},
    ],
)
def test_a_document_that_is_no_json_is_refused_with_its_code(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidIdentity) as caught:
        identity.canonical_json(document)
    assert (caught.value.code, caught.value.field) == ("invalid_identity", "identity")


@pytest.mark.parametrize(
    ("document", "model"),
    [({"model_id": "m"}, "m"), ({"model_id": ""}, None), ({"model_id": 7}, None), ({}, None)],
)
def test_a_model_is_known_by_a_name_that_says_something(
    document: dict[str, Any], model: str | None
) -> None:
    assert identity.model_of(document) == model


@pytest.mark.parametrize("digest", [7, True, [], ["sha256:1"], {"sha256": "1"}, "\t\n"])
def test_anything_but_a_text_is_no_weights_digest(digest: object) -> None:
    assert identity.lacks_weights_digest({"weights_digest": digest})


@pytest.mark.parametrize(
    ("one", "other", "fields"),
    [
        ({}, {}, []),
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 1, "d": 3}}}, ["a.b.d"]),
        ({"a": {"b": 1}}, {"a": {}}, ["a", "a.b"]),
        ({"a": {"b": 1}}, {}, ["a.b"]),
        ({"a": {}}, {}, ["a"]),
        ({"a": {}}, {"a": None}, ["a"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, ["a"]),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, ["a", "b"]),
        ({"a": "x"}, {"a": {"b": "x"}}, ["a", "a.b"]),
        ({"a": None}, {"b": None}, ["a", "b"]),
    ],
)
def test_the_paths_at_which_documents_differ_are_known(
    one: dict[str, Any], other: dict[str, Any], fields: list[str]
) -> None:
    assert identity.differing_fields(one, other) == fields
    assert identity.differing_fields(other, one) == fields


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.integers(0, 2) | st.dictionaries(st.sampled_from("xy"), st.integers(0, 2) | st.none()),
    ),
    st.dictionaries(
        st.sampled_from("abc"),
        st.integers(0, 2) | st.dictionaries(st.sampled_from("xy"), st.integers(0, 2) | st.none()),
    ),
)
def test_documents_differ_somewhere_exactly_if_their_digests_do(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = identity.identity_digest(one) == identity.identity_digest(other)
    assert (identity.differing_fields(one, other) == []) is same


def test_differing_fields_tell_a_dotted_key_from_two_keys_and_ignore_key_order() -> None:
    assert identity.differing_fields({"a.b": 1}, {"a": {"b": 1}}) == ['"a.b"', "a.b"]
    assert identity.differing_fields({"l": [{"x": 1, "y": 2}]}, {"l": [{"y": 2, "x": 1}]}) == []


_AWKWARD = st.recursive(
    st.integers(0, 1),
    lambda inner: st.dictionaries(st.text('a."\\', max_size=3), inner, max_size=2),
    max_leaves=4,
).filter(lambda value: isinstance(value, dict))


def test_a_key_with_quotes_is_not_read_as_a_quoted_key() -> None:
    two_keys, one_key = {'"a': {'b"': 1}}, {"a.b": 1}
    assert len(identity.differing_fields(two_keys, one_key)) == 2


@given(_AWKWARD, _AWKWARD)
def test_no_spelling_of_keys_hides_a_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = identity.identity_digest(one) == identity.identity_digest(other)
    assert (identity.differing_fields(one, other) == []) is same
