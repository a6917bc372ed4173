"""Tenants as operators see them: limits and usage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Executor

from app.engine.errors import InvalidInput
from app.engine.threads import in_thread
from app.scopes import TENANT_PATTERN
from storage.rows import TenantLimits, TenantUsage
from storage.store import Store


def check_tenant(name: str, field: str = "tenant") -> None:
    """Refuse a name that could be mistaken for another. The default tenant is "".

    Raises:
        InvalidInput: it has other characters than letters, digits, ".", "_" and "-", or over 64.
    """
    if not re.fullmatch(TENANT_PATTERN, name):
        raise InvalidInput(
            "invalid_tenant", 'a tenant is named with up to 64 of A-Z a-z 0-9 ".", "_", "-"', field
        )


class Tenants:
    """What tenants may hold, and do hold."""

    def __init__(self, store: Store, small: Executor) -> None:
        self._store = store
        self._small = small

    async def listing(self) -> list[tuple[str, TenantLimits, TenantUsage]]:
        """Every tenant that has limits or a namespace."""

        def read() -> list[tuple[str, TenantLimits, TenantUsage]]:
            catalog = self._store.catalog
            return [(name, *catalog.tenant(name)) for name in catalog.tenants()]

        return await in_thread(self._small, read)

    async def change(
        self, name: str, values: Mapping[str, int | None]
    ) -> tuple[TenantLimits, TenantUsage]:
        """Set limits; None takes one away. In force for all workers within a second.

        Raises:
            InvalidInput: no name for a tenant.
        """
        check_tenant(name, "name")
        await in_thread(self._small, self._store.ledger.set_tenant_limits, name, values)
        return await in_thread(self._small, self._store.catalog.tenant, name)
