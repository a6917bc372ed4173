"""What holds where: the settings of the process, changed for the store or a namespace at run time."""

from __future__ import annotations

from collections.abc import Callable

from app.engine.limits import Effective
from app.settings import Settings
from storage.rows import Limits, NamespaceRow, TenantLimits

MODES = ("disabled", "record", "lookup", "lookup_record")


class Policy:
    """Derives effective limits and modes; holds nothing that could go stale."""

    def __init__(self, settings: Settings, stored_limits: Callable[[], str | None]) -> None:
        """
        Args:
            stored_limits: reads what was changed at run time (`app.engine.limits`).
        """
        self.settings = settings
        self._stored_limits = stored_limits
        self._effective = Effective(settings)

    def now(self) -> Settings:
        """The settings with the limits that are in force at this moment. Fit for the event loop."""
        return self._effective.of(self._stored_limits())

    def mode(self, namespace: NamespaceRow | None, store_mode: str | None = None) -> str:
        """The namespace's mode over the store's over the process's."""
        own = namespace.effective_mode if namespace is not None else store_mode
        return own or self.settings.mode

    def may_look_up(self, namespace: NamespaceRow) -> bool:
        """Whether lookups are answered from this namespace."""
        return self.mode(namespace) in ("lookup", "lookup_record")

    def min_tokens(self, namespace: NamespaceRow | None, now: Settings) -> int:
        """The shortest prefix worth recording, by the settings in force."""
        if namespace is not None and namespace.min_tokens is not None:
            return namespace.min_tokens
        return now.min_tokens

    @property
    def pin_budget_bytes(self) -> int:
        """Logical bytes that pinned states may have together; never more than the budget."""
        now = self.now()
        return min(now.pin_budget_bytes, now.budget_bytes)

    def limits(
        self, namespace: NamespaceRow | None, tenant: TenantLimits, now: Settings | None = None
    ) -> Limits:
        """Hard limits for what is recorded into this namespace of a tenant with these limits.

        Args:
            now: the settings in force, where they have been read already.
        """
        now = now or self.now()
        return Limits(
            budget_bytes=now.budget_bytes,
            max_entries=now.max_entries,
            namespace_bytes=None if namespace is None else namespace.max_stored_bytes,
            namespace_entries=None if namespace is None else namespace.max_entries,
            tenant="" if namespace is None else namespace.tenant,
            tenant_bytes=tenant.max_stored_bytes,
            tenant_logical_bytes=tenant.max_logical_bytes,
            tenant_entries=tenant.max_entries,
        )
