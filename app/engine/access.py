"""Who is asking, and what they may do.

A caller belongs to a tenant, and every name it gives is held under that tenant (`storage.scoped`): what
another tenant holds cannot even be named. A caller without a tenant operates the whole store; what it
records belongs to the default tenant. Patterns narrow a caller to some namespaces of its tenant.

Access is open until the first token is made (on loopback only, see `app.server`), or for ever where the
setting says so; from the first token on every request needs one, also after all were revoked.

A token is `sth_`, its id, `_` and 32 random bytes in base64url. Kept is the BLAKE3 digest of all of it: a
fast hash is enough for a secret of 256 bits. The row is found by the id, and the digests are compared
in constant time.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from fnmatch import translate
from threading import Lock
from typing import Final

from blake3 import blake3
from uuid_utils import uuid7

from app.engine.errors import Forbidden, NotFound, Unauthorized
from app.engine.identity import check_namespace
from app.engine.threads import in_thread
from app.scopes import SCOPES, tenant_named
from app.settings import Settings
from storage.clock import wall_ms
from storage.errors import NotHeld
from storage.rows import TokenRow
from storage.scoped import DEFAULT_TENANT, is_held_form, scoped, split
from storage.store import Store

_PREFIX: Final = "sth_"
_MOST_SECRET_CHARACTERS: Final = 128
# A token that was revoked at another worker is taken for so long at most.
_TRUSTED_S: Final = 1.0
_MOST_TRUSTED: Final = 1024
# A held name that no tenant can have.
_NOBODYS: Final = scoped("\0", "")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request.

    Attributes:
        actor: the token's id, or "open".
        tenant: None for an operator of the whole store; with patterns as for the default tenant.
        patterns: of the namespaces it may use; None for all of its tenant's.
    """

    actor: str
    tenant: str | None
    scopes: frozenset[str]
    patterns: tuple[re.Pattern[str], ...] | None = None
    expires_at_ms: int | None = None

    @property
    def home(self) -> str:
        """The tenant whose namespaces its names mean."""
        return DEFAULT_TENANT if self.tenant is None else self.tenant

    @property
    def token_id(self) -> str | None:
        """The token's id, None where none was needed."""
        return None if self.actor == EVERYONE.actor else self.actor

    @property
    def unbounded(self) -> bool:
        """Whether it may use every namespace there is."""
        return self.tenant is None and self.patterns is None

    def held(self, name: str, tenant: str | None = None) -> str:
        """The name under which what it calls `name` is held.

        Args:
            tenant: whose namespace, where an operator means another tenant's.

        Raises:
            InvalidNamespace: nothing can have that name; one with the separator would be another tenant's.
            Forbidden: its patterns do not allow the name, or it is bound to another tenant; whether
                anything of that name exists plays no part.
        """
        check_namespace(name)
        if not self._may_use(name):
            raise Forbidden("forbidden", "the token is not good for this namespace", "namespace")
        return scoped(self.meant(tenant), name)

    def whole(self, tenant: str | None = None) -> str | None:
        """The tenant of whose namespaces a listing is that names none; None: of all tenants.

        Raises:
            Forbidden: it is bound to another tenant, whether there is that one or not.
        """
        if tenant is None:
            return None if self.unbounded else self.home
        return self.meant(tenant)

    def meant(self, tenant: str | None) -> str:
        """The tenant that it means by a name, its own without one.

        Raises:
            Forbidden: it is bound to another one.
        """
        wanted = self.home if tenant is None else tenant_named(tenant)
        if wanted != self.home and not self.unbounded:
            raise Forbidden("forbidden", "the token is bound to another tenant", "tenant")
        return wanted

    def sees(self, held: str | None) -> bool:
        """Whether what lies in that held namespace is there for this caller."""
        if self.unbounded:
            return held is not None
        # As much is done about what is not there as about what is another tenant's.
        tenant, name = split(_NOBODYS if held is None else held)
        return tenant == self.home and self._may_use(name)

    def _may_use(self, name: str) -> bool:
        # What holds the separator would be read as another tenant's namespace.
        if is_held_form(name):
            return False
        return self.patterns is None or any(p.match(name) for p in self.patterns)


EVERYONE: Final = Caller("open", None, frozenset(SCOPES))


def new_token(
    label: str,
    scopes: Sequence[str],
    tenant: str | None,
    namespaces: Sequence[str] | None,
    expires_in_s: int | None,
) -> tuple[TokenRow, str]:
    """A token that is not kept yet, and its secret."""
    token_id = str(uuid7())
    secret = f"{_PREFIX}{token_id}_{secrets.token_urlsafe(32)}"
    now = wall_ms()
    row = TokenRow(
        token_id,
        _digest(secret),
        label,
        tenant,
        tuple(scope for scope in SCOPES if scope in scopes),
        None if namespaces is None else tuple(namespaces),
        now,
        None if expires_in_s is None else now + 1000 * expires_in_s,
    )
    return row, secret


class Gate:
    """Tells callers by their tokens. `caller` is fit for the event loop."""

    def __init__(self, store: Store, settings: Settings, small: Executor) -> None:
        self._store = store
        self._mode = settings.access
        self._small = small
        self._lock = Lock()
        self._trusted: dict[bytes, tuple[Caller, float]] = {}
        self._uses: dict[str, int] = {}
        self._closed = settings.access == "tokens"
        self._open_until = 0.0

    @property
    def open(self) -> bool:
        """Whether requests are served without a token."""
        if self._closed:
            return False
        if self._mode == "open" or time.monotonic() < self._open_until:
            return True
        self._closed = self._store.catalog.any_token()
        self._open_until = time.monotonic() + _TRUSTED_S
        return not self._closed

    def caller(self, authorization: str | None) -> Caller:
        """Whose request carries this `Authorization` field.

        Raises:
            Unauthorized: tokens are needed and this is no good one.
        """
        if authorization is None:
            if self.open:
                return EVERYONE
            raise Unauthorized("unauthorized", "send Authorization: Bearer and a token")
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or len(secret) > _MOST_SECRET_CHARACTERS:
            raise _not_good()
        return self._known(secret.strip(" \t"))

    async def make(
        self,
        label: str,
        scopes: Sequence[str],
        *,
        tenant: str | None,
        namespaces: Sequence[str] | None,
        expires_in_s: int | None,
    ) -> tuple[TokenRow, str]:
        """A new token and its secret, which nobody can find out again."""
        row, secret = new_token(label, scopes, tenant, namespaces, expires_in_s)
        await in_thread(self._small, self._store.ledger.add_token, row)
        self._open_until = 0.0
        return row, secret

    async def revoke(self, token_id: str) -> TokenRow:
        """Good for nothing any more: at once here, within a second at other workers.

        Raises:
            NotFound: no such token.
        """
        try:
            await in_thread(self._small, self._store.ledger.revoke_token, token_id)
        except NotHeld as error:
            raise NotFound("token_not_found", "no such token") from error
        self._trusted.clear()
        return self.token(token_id)

    def token(self, token_id: str) -> TokenRow:
        """A token by its id. Fit for the event loop.

        Raises:
            NotFound: no such token.
        """
        row = self._store.catalog.token(token_id)
        if row is None:
            raise NotFound("token_not_found", "no such token")
        return row

    async def tokens(self, after: str | None, limit: int) -> list[TokenRow]:
        """Tokens in order of making, also those that are no longer good."""

        def read() -> list[TokenRow]:
            self.flush()
            return self._store.catalog.tokens(after, limit)

        return await in_thread(self._small, read)

    def flush(self) -> None:
        """Write when tokens were last used."""
        with self._lock:
            uses, self._uses = self._uses, {}
        if uses:
            self._store.ledger.tokens_used(uses)

    def _known(self, secret: str) -> Caller:
        digest = _digest(secret)
        now = time.monotonic()
        caller, until = self._trusted.get(digest, (None, 0.0))
        if caller is None or now >= until:
            caller = self._look_up(secret, digest)
            if len(self._trusted) >= _MOST_TRUSTED:
                self._trusted.clear()
            self._trusted[digest] = (caller, now + _TRUSTED_S)
        at = wall_ms()
        if caller.expires_at_ms is not None and at >= caller.expires_at_ms:
            raise _not_good()
        with self._lock:
            self._uses[caller.actor] = at
        return caller

    def _look_up(self, secret: str, digest: bytes) -> Caller:
        token_id, _, rest = secret.removeprefix(_PREFIX).partition("_")
        row = self._store.catalog.token(token_id) if rest else None
        # One comparison whether there is such an id or not.
        right = hmac.compare_digest(digest, bytes(32) if row is None else row.secret_digest)
        if row is None or not right or row.revoked_at_ms is not None:
            raise _not_good()
        return Caller(
            row.token_id,
            row.tenant,
            frozenset(row.scopes),
            None
            if row.namespaces is None
            else tuple(re.compile(translate(pattern)) for pattern in row.namespaces),
            row.expires_at_ms,
        )


def _digest(secret: str) -> bytes:
    return blake3(secret.encode("utf-8", "surrogateescape")).digest()


def _not_good() -> Unauthorized:
    return Unauthorized("unauthorized", "the token is not good (any more)")
