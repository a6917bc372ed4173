"""What a token can be good for, and how a tenant may be named. A leaf, for routes, engine and commands."""

from __future__ import annotations

from typing import Final, Literal, get_args

Scope = Literal["lookup", "record", "admin:read", "admin:write", "forensics"]
SCOPES: Final[tuple[str, ...]] = get_args(Scope)

# "" is the default tenant, which people call "default".
TENANT_PATTERN: Final = r"^[A-Za-z0-9._-]{0,64}$"


def tenant_named(name: str) -> str:
    """The tenant that people mean by a name."""
    return "" if name == "default" else name
