"""JSON at a bounded cost: what a body is made of is counted before it is parsed.

A parse holds the interpreter lock from its first byte to its last, on whatever thread it runs, and so
does pydantic while it puts together what it found wrong. In 8 MiB there is room for 2.6 million empty
lists (1.2 s) and for as many wrong values, each with an error of its own (16 s); the event loop stood
still for that long. Counted (1 ms a MiB), such a body is refused by its shape, a list is wrong with
its first wrong item, and of more than a few errors only their number is told.

Large bodies are parsed and validated in two calls, each of which holds the lock for half as long as
the one that does both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

_COUNTED_BYTES: Final = 16 << 10
_LARGE_BYTES: Final = 512 << 10
_LARGE_VALUES: Final = 20_000
_ERRORS_TOLD: Final = 100

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Shape:
    """How much a body may consist of: lists and objects, keys, and values between commas.

    Characters are counted, those in strings too.
    """

    containers: int
    keys: int
    values: int

    def check(self, raw: bytes) -> None:
        """Refuse a body that consists of more.

        Raises:
            RequestValidationError: it does.
        """
        if len(raw) <= _COUNTED_BYTES:
            return
        if (
            raw.count(b"{") + raw.count(b"[") > self.containers
            or raw.count(b":") > self.keys
            or raw.count(b",") > self.values
        ):
            raise _refused("too_complex", "The body consists of too many parts.")


# What is neither tokens nor digests nor a geometry: identities, limits, lists of states.
SMALL: Final = Shape(4096, 8192, 16_384)
# Tokens and digests, by the million.
LISTS: Final = Shape(4096, 8192, 1 << 23)
# The same, and a geometry of 262,144 runs.
LAYOUTS: Final = Shape((1 << 18) + 4096, 600_000, 1 << 23)


def is_large(raw: bytes) -> bool:
    """Whether a body takes too long for the event loop, be it only to count it."""
    return len(raw) > _LARGE_BYTES or (
        len(raw) > _COUNTED_BYTES and raw.count(b",") > _LARGE_VALUES
    )


def values(raw: bytes, shape: Shape) -> Any:
    """What a body says.

    Raises:
        RequestValidationError: it is no JSON, or consists of more than it may.
    """
    shape.check(raw)
    try:
        return from_json(raw, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        raise _refused("json_invalid", "The body is not JSON.") from None


def validated(model: type[M], raw: bytes, shape: Shape) -> M:
    """A body as `model`.

    Raises:
        RequestValidationError: it is no JSON, not of the model, or consists of more than it may.
    """
    try:
        if is_large(raw):
            return model.model_validate(values(raw, shape))
        shape.check(raw)
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _told(error) from None


def _told(error: ValidationError) -> RequestValidationError:
    if error.error_count() > _ERRORS_TOLD:
        return _refused("too_many_errors", f"{error.error_count()} fields are not as documented.")
    found = error.errors(include_url=False, include_input=False)
    return RequestValidationError([_kept(dict(item)) for item in found])


def _kept(item: dict[str, Any]) -> dict[str, Any]:
    """What may be told of an error: of its context only a pattern, as the rest may hold what was sent."""
    kept = {"type": item["type"], "loc": ("body", *item["loc"]), "msg": item["msg"]}
    pattern = item.get("ctx", {}).get("pattern")
    return kept if pattern is None else {**kept, "ctx": {"pattern": pattern}}


def _refused(kind: str, message: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body",), "msg": message}])
