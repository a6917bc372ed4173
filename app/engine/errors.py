"""What the engine answers when it cannot do what was asked: one family, each with a stable code.

EngineError
├── InvalidInput          the request itself is wrong; `field` names where
│   ├── InvalidNamespace
│   ├── InvalidTokens
│   ├── InvalidPayload    kind, components or KV descriptor do not fit together
│   └── InvalidIdentity
├── Unauthorized          who asks has not said who they are
├── Forbidden             who asks may not
├── NotFound              no such state, record, lease, component or namespace
├── Gone                  it was there and its time is over
├── Conflicting           it is not in the state of its life that the request needs
├── Refused               admission said no; `code` is one of DESIGN section 2, rule 7
├── Unavailable           cannot be done now, may be later; `retry_after_s` says when
└── Damaged               a stored state failed its proof and could not be replaced by a shorter one

`code` is stable and documented; `detail` is for people and never holds token ids or payload bytes.
A leaf: imports nothing of the project.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of the family.

    Attributes:
        code: stable, lower_snake_case.
        detail: a sentence for people.
        field: the offending field of the request, where there is one.
        retry_after_s: seconds after which trying again makes sense, where it does.
    """

    retry_after_s: int | None = None

    def __init__(self, code: str, detail: str, field: str | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.field = field


class InvalidInput(EngineError):
    """The request can never succeed as it is."""


class InvalidNamespace(InvalidInput):
    """A namespace name outside 1 to 256 clean characters."""


class InvalidTokens(InvalidInput):
    """Token ids that are not a non-empty sequence of int32."""


class InvalidPayload(InvalidInput):
    """Kind, components and descriptor contradict each other."""


class InvalidIdentity(InvalidInput):
    """An identity document that cannot be registered."""


class Unauthorized(EngineError):
    """No token where one is needed, or none that is good."""


class Forbidden(EngineError):
    """The token is good, but not for this."""


class NotFound(EngineError):
    """Nothing of that name is here."""


class Gone(EngineError):
    """It was here; its time is over."""


class Conflicting(EngineError):
    """The thing is in another state of its life than the request needs."""


class Refused(EngineError):
    """Admission said no: recording is optional work, so the answer is immediate and final for now."""

    def __init__(
        self, code: str, detail: str, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(code, detail, field)
        self.retry_after_s = retry_after_s


class Unavailable(EngineError):
    """Cannot be done at this moment."""

    def __init__(self, code: str, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class Damaged(EngineError):
    """A stored state failed its proof; it has been taken out of service where that was possible."""
