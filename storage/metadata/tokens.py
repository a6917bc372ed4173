"""Access tokens: kept by the digest of their secret, never the secret. Revoked ones stay for the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, exists, insert, select, update

from storage.documents import document
from storage.metadata.schema import access_token as t
from storage.metadata.statements import HotStatement
from storage.rows import TokenRow

_COLUMNS = (
    t.c.token_id,
    t.c.secret_digest,
    t.c.label,
    t.c.tenant,
    t.c.scopes,
    t.c.namespaces,
    t.c.created_at_ms,
    t.c.expires_at_ms,
    t.c.revoked_at_ms,
    t.c.used_at_ms,
)
_FIND = HotStatement(select(*_COLUMNS).where(t.c.token_id == bindparam("token_id")))
_ANY = HotStatement(select(exists().where(t.c.token_id.is_not(None))))


def add(connection: Connection, row: TokenRow) -> None:
    """Keep a new one."""
    connection.execute(
        insert(t).values(
            token_id=row.token_id,
            secret_digest=row.secret_digest,
            label=row.label,
            tenant=row.tenant,
            scopes=json.dumps(row.scopes),
            namespaces=None if row.namespaces is None else json.dumps(row.namespaces),
            created_at_ms=row.created_at_ms,
            expires_at_ms=row.expires_at_ms,
        )
    )


def find(connection: Connection, token_id: str) -> TokenRow | None:
    """The token of that id, good or not."""
    row = _FIND.first(connection, token_id=token_id)
    return None if row is None else _row(row)


def any_made(connection: Connection) -> bool:
    """Whether a token was ever made."""
    return bool(_ANY.scalar(connection))


def page(connection: Connection, after: str | None, limit: int) -> list[TokenRow]:
    """Tokens in order of their id, which is that of their making."""
    statement = select(*_COLUMNS).order_by(t.c.token_id).limit(limit)
    if after is not None:
        statement = statement.where(t.c.token_id > after)
    return [_row(row) for row in connection.execute(statement)]


def revoke(connection: Connection, token_id: str, now_ms: int) -> None:
    """No longer good; the first revocation counts."""
    connection.execute(
        update(t)
        .where(t.c.token_id == token_id, t.c.revoked_at_ms.is_(None))
        .values(revoked_at_ms=now_ms)
    )


def used(connection: Connection, uses: Mapping[str, int]) -> None:
    """Note when tokens were last used (wall clock, ms)."""
    connection.execute(
        update(t).where(t.c.token_id == bindparam("which")).values(used_at_ms=bindparam("at")),
        [{"which": token_id, "at": at_ms} for token_id, at_ms in uses.items()],
    )


def _row(row: Any) -> TokenRow:
    (token_id, digest, label, tenant, scopes, namespaces, *times) = row
    return TokenRow(
        token_id,
        digest,
        label,
        tenant,
        tuple(document(scopes)),
        None if namespaces is None else tuple(document(namespaces)),
        *times,
    )
