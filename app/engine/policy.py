"""What holds where: the settings of the process, changed for the store or a namespace at run time."""

from __future__ import annotations

from app.settings import Settings
from storage.rows import Limits, NamespaceRow

MODES = ("disabled", "record", "lookup", "lookup_record")


class Policy:
    """Derives effective limits and modes; holds nothing that could go stale."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def mode(self, namespace: NamespaceRow | None, store_mode: str | None = None) -> str:
        """The namespace's mode over the store's over the process's."""
        own = namespace.effective_mode if namespace is not None else store_mode
        return own or self.settings.mode

    def may_look_up(self, namespace: NamespaceRow) -> bool:
        """Whether lookups are answered from this namespace."""
        return self.mode(namespace) in ("lookup", "lookup_record")

    def min_tokens(self, namespace: NamespaceRow | None) -> int:
        """The shortest prefix worth recording."""
        if namespace is not None and namespace.min_tokens is not None:
            return namespace.min_tokens
        return self.settings.min_tokens

    def limits(self, namespace: NamespaceRow | None) -> Limits:
        """Hard limits for what is recorded into this namespace."""
        return Limits(
            budget_bytes=self.settings.budget_bytes,
            max_entries=self.settings.max_entries,
            namespace_bytes=None if namespace is None else namespace.max_stored_bytes,
            namespace_entries=None if namespace is None else namespace.max_entries,
        )
