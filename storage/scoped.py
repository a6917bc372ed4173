"""Names of namespaces over all tenants. A leaf.

A namespace of a tenant is held under the tenant's name, U+001F and its own name. No name that a client may
give holds that character, so two tenants never meet in one namespace, and since a prefix's proof is
computed over the held name, not even a damaged tree leads from one to the other. The default tenant is
"": its namespaces are held under their own names.
"""

from __future__ import annotations

from typing import Final

DEFAULT_TENANT: Final = ""
_SEPARATOR: Final = "\x1f"


def scoped(tenant: str, name: str) -> str:
    """The name under which a tenant's namespace is held."""
    return f"{tenant}{_SEPARATOR}{name}" if tenant else name


def is_held_form(name: str) -> bool:
    """Whether a name is that of a tenant and a namespace, and so none that a client may give."""
    return _SEPARATOR in name


def split(held: str) -> tuple[str, str]:
    """(tenant, name) of a held name."""
    tenant, separator, name = held.partition(_SEPARATOR)
    return (tenant, name) if separator else (DEFAULT_TENANT, held)
