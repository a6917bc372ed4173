"""`statehold token`: made, listed and revoked on the data folder itself.

So the first token can be made before the service is reachable by others, and one can be made after all
were revoked. It works beside a running server, which takes notice within a second.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.commands.arguments import config
from app.commands.showing import moment, say, table
from app.commands.showing import tenant as whose
from app.scopes import SCOPES, TENANT_PATTERN, tenant_named
from app.settings import Settings
from storage.clock import wall_ms
from storage.errors import NotHeld, StoreUnusable
from storage.rows import TokenRow

NAME = "token"
HELP = "make, list and revoke access tokens"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True)
    create = actions.add_parser(
        "create", help="make a token; its secret is printed once", allow_abbrev=False
    )
    create.add_argument("--label", required=True, help="what it is for")
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        choices=SCOPES,
        help="what it is good for; may be given several times",
    )
    create.add_argument("--tenant", type=_tenant, help="whose it is; without one the whole store's")
    create.add_argument(
        "--namespace",
        action="append",
        metavar="PATTERN",
        help="shell pattern of the namespaces it may use; may be given several times",
    )
    create.add_argument("--expires-in-days", type=_days, metavar="N")
    actions.add_parser("list", help="list all tokens, without their secrets")
    revoke = actions.add_parser("revoke", help="make a token good for nothing")
    revoke.add_argument("token_id")
    for action in actions.choices.values():
        # As of the other commands, and good in either place.
        action.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON"
        )
        config(action)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; returns the exit code."""
    return {"create": _create, "list": _list, "revoke": _revoke}[options.action](settings, options)


def _create(settings: Settings, options: argparse.Namespace) -> int:
    from app.engine.access import new_token
    from storage.ledger import Ledger

    days = options.expires_in_days
    row, secret = new_token(
        options.label,
        options.scope,
        options.tenant,
        options.namespace,
        None if days is None else days * 86_400,
    )
    with _database(settings, make=True) as database:
        Ledger(database).add_token(row)
        Ledger(database).audit(_entry("token create", row.token_id))
    if options.json:
        print(json.dumps({**_facts(row), "secret": secret}))
    else:
        print(secret)
        say(f"token {row.token_id} ({row.label})")
        print("This is shown once. Send it as `Authorization: Bearer …`.", file=sys.stderr)
    return 0


def _list(settings: Settings, options: argparse.Namespace) -> int:
    from storage.catalog import Catalog

    with _database(settings) as database:
        rows: list[TokenRow] = []
        while page := Catalog(database).tokens(rows[-1].token_id if rows else None, 1000):
            rows += page
    if options.json:
        print(json.dumps([_facts(row) for row in rows]))
        return 0
    table(
        ("TOKEN", "STANDING", "TENANT", "SCOPES", "NAMESPACES", "ENDS", "LABEL"),
        [
            (
                row.token_id,
                _standing(row),
                whose(row.tenant),
                ",".join(row.scopes),
                "all" if row.namespaces is None else " ".join(row.namespaces),
                "-" if row.expires_at_ms is None else moment(row.expires_at_ms),
                row.label,
            )
            for row in rows
        ],
    )
    return 0


def _revoke(settings: Settings, options: argparse.Namespace) -> int:
    from storage.ledger import Ledger

    with _database(settings) as database:
        try:
            Ledger(database).revoke_token(options.token_id)
        except NotHeld:
            print("statehold: there is no such token", file=sys.stderr)
            return 1
        Ledger(database).audit(_entry("token revoke", options.token_id))
    print(json.dumps({"revoked": options.token_id}) if options.json else "revoked")
    return 0


@contextmanager
def _database(settings: Settings, *, make: bool = False) -> Iterator[Any]:
    """The metadata of the data folder.

    Args:
        make: whether a folder that is not there is made, as the first token comes before the first start.

    Raises:
        StoreUnusable: there is none, or it is of another version.
    """
    from migrations import require_current, upgrade
    from storage.layout import DataFolder
    from storage.metadata.database import Database

    folder = DataFolder(settings.data_dir)
    if not folder.database.exists():
        if not make:
            raise StoreUnusable(f"there is no data in {folder.path}")
        folder.prepare()
        with folder.starting():
            upgrade(folder.database)
        say(f"there was no data in {folder.path}: a new data folder was made there")
    require_current(folder.database)
    database = Database(folder.database)
    try:
        yield database
    finally:
        database.close()


def _facts(row: TokenRow) -> dict[str, Any]:
    return {
        "token_id": row.token_id,
        "label": row.label,
        "scopes": list(row.scopes),
        "tenant": row.tenant,
        "namespaces": None if row.namespaces is None else list(row.namespaces),
        "standing": _standing(row),
        "created_at_ms": row.created_at_ms,
        "expires_at_ms": row.expires_at_ms,
        "revoked_at_ms": row.revoked_at_ms,
        "used_at_ms": row.used_at_ms,
    }


def _standing(row: TokenRow) -> str:
    if row.revoked_at_ms is not None:
        return "revoked"
    return "expired" if row.expires_at_ms and row.expires_at_ms <= wall_ms() else "good"


def _entry(action: str, token_id: str) -> dict[str, object]:
    return {
        "actor": "command line",
        "action": action,
        "target": token_id,
        "outcome": "done",
        "details": "{}",
    }


def _tenant(text: str) -> str:
    if not text or not re.fullmatch(TENANT_PATTERN, text):
        raise argparse.ArgumentTypeError("a tenant is named with up to 64 of A-Z a-z 0-9 . _ -")
    return tenant_named(text)


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 3660:
        raise argparse.ArgumentTypeError("from 1 to 3660 days")
    return days
