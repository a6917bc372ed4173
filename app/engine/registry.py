"""Namespaces: registered with an identity document, limited, listed with their warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Final

from app.engine.errors import Conflicting, InvalidIdentity, NotFound
from app.engine.identity import (
    canonical_json,
    identity_digest,
    lacks_weights_digest,
    model_of,
)
from app.engine.threads import in_thread
from storage.documents import document
from storage.errors import NotHeld
from storage.rows import NamespaceRow
from storage.store import Store

WARNING_NO_WEIGHTS_DIGEST = "identity_without_weights_digest"
WARNING_UNREGISTERED = "no_identity_registered"
# A document may have 64 KiB, and a page a thousand of them.
_IDENTITIES_IN_A_PAGE: Final = 1 << 20


class Registry:
    """What is known about namespaces besides their states."""

    def __init__(self, store: Store, small: Executor) -> None:
        self._store = store
        self._small = small

    async def register(
        self, name: str, identity: Mapping[str, Any], *, allow_missing_weights_digest: bool
    ) -> NamespaceRow:
        """Attach an identity document to a namespace; the same document again changes nothing.

        Raises:
            InvalidIdentity: no weights digest, and that was not allowed explicitly.
            Conflicting: another identity is registered, or states were recorded under none.
        """
        if lacks_weights_digest(identity) and not allow_missing_weights_digest:
            raise InvalidIdentity(
                "weights_digest_missing",
                "an identity without a weights digest cannot tell two models of one name apart; "
                "set allow_missing_weights_digest to accept that",
                "identity.weights_digest",
            )
        text, digest = canonical_json(identity), identity_digest(identity)

        def attach(row: NamespaceRow) -> Mapping[str, object]:
            if row.identity_digest == digest:
                return {}
            if row.identity_digest is not None:
                raise Conflicting(
                    "identity_conflict", "the namespace is registered with another identity"
                )
            if row.entries:
                raise Conflicting(
                    "namespace_in_use",
                    "states were recorded under this name before it had an identity",
                )
            return {"identity": text, "identity_digest": digest, "model": model_of(identity)}

        return await in_thread(
            self._small, self._store.ledger.change_namespace, name, attach, create=True
        )

    async def change(self, name: str, values: Mapping[str, object]) -> NamespaceRow:
        """Set mode, min_tokens or limits of a namespace; None goes back to the store's.

        Raises:
            NotFound: no such namespace.
        """
        try:
            return await in_thread(
                self._small,
                self._store.ledger.change_namespace,
                name,
                lambda _row: values,
                create=False,
            )
        except NotHeld as error:
            raise NotFound("namespace_not_found", "no such namespace") from error

    def find(self, name: str) -> NamespaceRow:
        """The namespace of that name. Fit for the event loop.

        Raises:
            NotFound: no such namespace.
        """
        row = self._store.catalog.namespace(name)
        if row is None:
            raise NotFound("namespace_not_found", "no such namespace")
        return row

    async def listing(
        self, after: str | None, limit: int, tenant: str | None, sees: Callable[[str], bool]
    ) -> tuple[list[NamespaceRow], str | None]:
        """As `page`."""
        return await in_thread(self._small, self.page, after, limit, tenant, sees)

    def page(
        self,
        after: str | None,
        limit: int,
        tenant: str | None,
        sees: Callable[[str], bool],
        model: str | None = None,
    ) -> tuple[list[NamespaceRow], str | None]:
        """Namespaces of a tenant (None: of all) by the name they are held under, behind `after`.

        Those that are not seen do not count, and are told neither by the page's length nor by where
        the next one begins: the name of the last seen one, None at the end. A page of long identity
        documents ends early. For a thread.
        """
        found: list[NamespaceRow] = []
        identity_characters = 0
        while True:
            rows = self._store.catalog.namespaces(after, limit + 1, tenant, model)
            for row in rows:
                if not sees(row.name):
                    continue
                if len(found) == limit or identity_characters > _IDENTITIES_IN_A_PAGE:
                    return found, found[-1].name
                found.append(row)
                identity_characters += len(row.identity or "")
            if len(rows) <= limit:
                return found, None
            after = rows[-1].name


def warnings(row: NamespaceRow) -> list[str]:
    """What an operator should know about a namespace's identity."""
    if row.identity is None:
        return [WARNING_UNREGISTERED]
    return [WARNING_NO_WEIGHTS_DIGEST] if lacks_weights_digest(document(row.identity)) else []
