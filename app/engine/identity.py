"""What a state belongs to: namespaces, identity documents and token prefixes, as bytes and digests.

A prefix digest is BLAKE3-256 over `statehold:prefix:1` NUL, the length of the namespace's UTF-8 (u32
little-endian), the namespace, and the tokens (int32 little-endian): the proof that is stored with every
state and computed anew from the query on every hit.
"""

from __future__ import annotations

import binascii
import copy
import json
import struct
import sys
import unicodedata
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pybase64
from blake3 import blake3

from app.engine.errors import InvalidIdentity, InvalidNamespace, InvalidTokens

MOST_NAMESPACE_CHARACTERS: Final = 256
MOST_IDENTITY_BYTES: Final = 64 << 10
_TOKEN_BYTES: Final = 4
_DEEPEST: Final = 32


def check_namespace(name: str, field: str = "namespace") -> None:
    """Refuse a name that could be mistaken for another or break a log line.

    Raises:
        InvalidNamespace: not 1 to 256 characters, not NFC, or with control or surrogate characters.
    """
    if not 1 <= len(name) <= MOST_NAMESPACE_CHARACTERS:
        raise _bad_namespace("a namespace has 1 to 256 characters", field)
    if name.isascii() and name.isprintable():
        return
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        raise _bad_namespace("a namespace has no control characters or lone surrogates", field)
    if not unicodedata.is_normalized("NFC", name):
        raise _bad_namespace("a namespace is in Unicode normal form C", field)


def decode_tokens_b64(text: str, most: int, field: str = "tokens_b64") -> bytes:
    """Tokens from standard base64 of little-endian int32.

    Raises:
        InvalidTokens: not base64, not whole int32, none, or more than `most`.
    """
    try:
        tokens = pybase64.b64decode(text, validate=True)
        # Bits that nothing is made of may hide a damaged character in the last place.
        rest = len(tokens) % 3
        if rest and pybase64.b64encode(tokens[-rest:]).decode() != text[-4:]:
            raise ValueError("bits are set behind the last byte")
    except (binascii.Error, ValueError):
        raise InvalidTokens(
            "invalid_tokens", "tokens_b64 is not standard base64 with padding", field
        ) from None
    return _checked_whole(tokens, most, field)


def decode_tokens_b64url(text: str, most: int, field: str) -> bytes:
    """Tokens from base64url of little-endian int32, with or without padding: the form for URLs.

    Raises:
        InvalidTokens: not base64url, not whole int32, none, or more than `most`.
    """
    try:
        tokens = pybase64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidTokens("invalid_tokens", "the tokens are not base64url", field) from None
    return _checked_whole(tokens, most, field)


def pack_tokens(tokens: Sequence[int], most: int, field: str = "tokens") -> bytes:
    """Tokens from numbers.

    Raises:
        InvalidTokens: a value is no int32, none, or more than `most`.
    """
    if any(type(token) is not int for token in tokens):
        raise InvalidTokens("invalid_tokens", "token ids are integers", field)
    try:
        packed = array("i", tokens)
    except OverflowError:
        raise InvalidTokens("invalid_tokens", "token ids are int32 values", field) from None
    if sys.byteorder == "big":
        packed.byteswap()
    return _checked_count(packed.tobytes(), most, field)


def token_digest(namespace: str, tokens: bytes | memoryview) -> bytes:
    """The proof of one prefix."""
    hasher = _prefix_hasher(namespace)
    hasher.update(tokens)
    return hasher.digest()


def prefix_digests(namespace: str, tokens: bytes, counts: Sequence[int]) -> list[bytes]:
    """The proofs of the prefixes of `counts` tokens (ascending), in one pass over the tokens."""
    hasher = _prefix_hasher(namespace)
    view = memoryview(tokens)
    digests, done = [], 0
    for count in counts:
        hasher.update(view[done * _TOKEN_BYTES : count * _TOKEN_BYTES])
        digests.append(hasher.digest())
        done = count
    return digests


class GrowingPrefix:
    """The proofs of prefixes that branch off one another, each token hashed once."""

    def __init__(self, namespace: str) -> None:
        self._hasher = _prefix_hasher(namespace)

    def then(self, tokens: bytes | memoryview) -> GrowingPrefix:
        """The prefix that goes on with these tokens; this one stays as it is."""
        longer = copy.copy(self)
        longer._hasher = self._hasher.copy()
        longer._hasher.update(tokens)
        return longer

    @property
    def digest(self) -> bytes:
        """As `token_digest` of all its tokens."""
        return self._hasher.digest()


def canonical_json(document: Mapping[str, Any]) -> str:
    """One text for one document: keys sorted, no white space, no NaN.

    Raises:
        InvalidIdentity: not JSON, nested too deeply, or longer than 64 KiB.
    """
    _check_depth(document, 0)
    try:
        text = json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        size = len(text.encode())
    except (ValueError, TypeError):
        raise InvalidIdentity(
            "invalid_identity",
            "an identity is plain JSON without NaN or lone surrogates",
            "identity",
        ) from None
    if size > MOST_IDENTITY_BYTES:
        raise InvalidIdentity("invalid_identity", "an identity has at most 64 KiB", "identity")
    return text


def identity_digest(document: Mapping[str, Any]) -> bytes:
    """BLAKE3-256 of the canonical JSON."""
    return blake3(canonical_json(document).encode()).digest()


def lacks_weights_digest(document: Mapping[str, Any]) -> bool:
    """Whether two models of one name could share this identity."""
    digest = document.get("weights_digest")
    return not isinstance(digest, str) or not digest.strip()


def model_of(document: Mapping[str, Any]) -> str | None:
    """The model's name, by which its other namespaces are found."""
    model = document.get("model_id")
    return model if isinstance(model, str) and model else None


def differing_fields(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Dotted paths at which two identities differ; absent differs from every value."""
    left, right = dict(_leaves(a)), dict(_leaves(b))
    return sorted(
        path
        for path in left.keys() | right.keys()
        if path not in left
        or path not in right
        or json.dumps(left[path], sort_keys=True) != json.dumps(right[path], sort_keys=True)
    )


def _prefix_hasher(namespace: str) -> blake3:
    name = namespace.encode()
    return blake3(b"statehold:prefix:1\0" + struct.pack("<I", len(name)) + name)


def _checked_whole(tokens: bytes, most: int, field: str) -> bytes:
    if len(tokens) % _TOKEN_BYTES:
        raise InvalidTokens(
            "invalid_tokens", f"{field.rpartition('.')[2]} does not hold whole int32 values", field
        )
    return _checked_count(tokens, most, field)


def _checked_count(tokens: bytes, most: int, field: str) -> bytes:
    if not tokens:
        raise InvalidTokens("invalid_tokens", "a prefix has at least one token", field)
    if len(tokens) // _TOKEN_BYTES > most:
        raise InvalidTokens("invalid_tokens", f"a prefix has at most {most} tokens", field)
    return tokens


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not path):
        for key, inner in value.items():
            # A key with a dot of its own must not read like two keys, nor one with quotes like that.
            name = json.dumps(key) if "." in key or '"' in key or not key else str(key)
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _check_depth(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidIdentity("invalid_identity", "an identity is nested too deeply", "identity")
    if isinstance(value, Mapping):
        for inner in value.values():
            _check_depth(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_depth(inner, depth + 1)


def _bad_namespace(detail: str, field: str) -> InvalidNamespace:
    return InvalidNamespace("invalid_namespace", detail, field)
