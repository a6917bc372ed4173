"""Places in a listing, as text that callers hand back and need not understand.

A cursor holds where its page ended, and a digest of what was asked and by whom: it continues that one
listing and no other, so that nobody who changes a filter on the way is answered with a part of something
else. It is no secret and no right: it says nothing that its page has not said, and is checked like any input.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, Final

from blake3 import blake3

from app.engine.errors import InvalidInput

_DIGEST_CHARACTERS: Final = 16
_MOST_CHARACTERS: Final = 4096
_MOST_INTEGER: Final = 1 << 62


def written(question: Sequence[Any], place: Sequence[int | str]) -> str:
    """A cursor that continues `question` (plain JSON values) behind `place`."""
    text = json.dumps([_digest(question), *place], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def read(cursor: str, question: Sequence[Any], *types: type[int] | type[str]) -> list[Any]:
    """The place that a cursor of the same question names.

    Args:
        types: what the place consists of.

    Raises:
        InvalidInput: it is no cursor, or that of another question.
    """
    try:
        if len(cursor) > _MOST_CHARACTERS:
            raise ValueError
        place: list[Any]
        digest, *place = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if [type(part) for part in place] != list(types):
            raise ValueError
        for part in place:
            if isinstance(part, int):
                if abs(part) > _MOST_INTEGER:
                    raise ValueError
            else:
                part.encode()  # JSON can say half a character
        known = digest == _digest(question)
        # One text for one place: what a decoder lets pass beside it is none of ours.
        if known and written(question, place) != cursor:
            raise ValueError
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _refused("after is no cursor of this listing") from None
    if not known:
        raise _refused(
            "after is the cursor of another listing: sort, order and filters stay as they were"
        )
    return place


def _digest(question: Sequence[Any]) -> str:
    text = json.dumps(question, separators=(",", ":"), ensure_ascii=False)
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]


def _refused(detail: str) -> InvalidInput:
    return InvalidInput("invalid_request", detail, "query.after")
