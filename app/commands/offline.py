"""Reading a data folder that nobody uses, with the answers that a server would give.

The answers are made by the very code that makes the server's, so that what is printed is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from app.commands.errors import Failed
from app.engine.errors import EngineError
from app.settings import Settings
from storage.errors import StoreUnusable
from storage.layout import DataFolder
from storage.store import Store


@contextmanager
def alone(settings: Settings, otherwise: str) -> Iterator[DataFolder]:
    """The folder, which nobody else uses meanwhile; its schema is that of this code.

    Args:
        otherwise: what to do where a server is using it.

    Raises:
        StoreUnusable: somebody does, there is none, or it is of another version.
    """
    from migrations import require_current
    from storage.layout import in_use

    folder = DataFolder(settings.data_dir)
    if not folder.database.exists():
        raise StoreUnusable(f"there is no data in {folder.path}")
    sentence = f"a server is using it: {otherwise}"
    with folder.alone(sentence):
        if in_use(folder):
            raise StoreUnusable(f"the data folder {folder.path}: {sentence}")
        require_current(folder.database)
        yield folder


@contextmanager
def stopped(settings: Settings) -> Iterator[Store]:
    """The store of a stopped folder, to be read. Raises as `alone`."""
    with alone(settings, "stop it, or ask it by leaving out --offline") as folder:
        store = Store(folder)
        try:
            yield store
        finally:
            store.close()


Pages = Callable[[int, str | None], dict[str, Any]]


def stats(store: Store, settings: Settings) -> dict[str, Any]:
    """As GET /admin/v1/stats."""
    from app.api import views
    from app.engine.desk import figures
    from app.engine.limits import KEY, Effective

    limits = Effective(settings).of(store.catalog.setting(KEY))
    return views.stats(figures(store, limits)).model_dump(mode="json")


def state(store: Store, state_id: str) -> dict[str, Any]:
    """As GET /admin/v1/states/{state_id}.

    Raises:
        Failed: there is none.
    """
    from app.api import views
    from app.engine.desk import detail

    try:
        found = detail(store.catalog, state_id)
    except EngineError as error:
        raise _failed(error) from error
    return views.state_detail(*found).model_dump(mode="json")


@contextmanager
def states(store: Store, settings: Settings, query: Mapping[str, Any]) -> Iterator[Pages]:
    """As GET /admin/v1/states with that query.

    Raises:
        Failed: the query, or a cursor, is refused.
    """
    from app.api import views
    from app.engine.access import EVERYONE
    from app.engine.identity import decode_tokens_b64url
    from app.engine.limits import KEY
    from app.engine.listing import Listing, StatesWanted
    from app.engine.policy import Policy
    from app.engine.registry import Registry
    from storage.metadata.listing import Sort

    small = ThreadPoolExecutor(1)
    policy = Policy(settings, partial(store.catalog.setting, KEY))
    listing = Listing(store, policy, Registry(store, small))
    try:
        given = dict(query)
        under, name = given.pop("under_b64"), given["namespace"]
        sort, order = given.pop("sort") or Sort.CREATED, given.pop("order")
        if name is not None:
            given["namespace"] = EVERYONE.held(name, given["tenant"])
        if under is not None:
            given["under"] = decode_tokens_b64url(under, settings.max_tokens, "query.under_b64")
        wanted = StatesWanted(**given, sort=Sort(sort), descending=order == "desc")

        def page(limit: int, after: str | None) -> dict[str, Any]:
            found = asyncio.run(listing.states(EVERYONE, wanted, after, limit))
            rows = (views.state_info(one.state, one.namespace, one.pin) for one in found.states)
            return {"states": [row.model_dump(mode="json") for row in rows], "next": found.after}

        yield page
    except EngineError as error:
        raise _failed(error) from error
    finally:
        listing.close()
        small.shutdown()


def has_namespace(store: Store, name: str, tenant: str | None) -> bool:
    """Whether there is a namespace of that name."""
    from app.engine.access import EVERYONE

    return store.catalog.namespace(EVERYONE.held(name, tenant)) is not None


@contextmanager
def quarantined(store: Store, query: Mapping[str, Any]) -> Iterator[Pages]:
    """As GET /admin/v1/quarantine with that query.

    Raises:
        Failed: the query, or a cursor, is refused.
    """
    from app.api.admin.quarantine import listed, place, wanted
    from app.api.problems import ApiProblem
    from app.engine.access import EVERYONE
    from app.engine.quarantine import Held

    def page(limit: int, after: str | None) -> dict[str, Any]:
        rows = store.catalog.quarantined(
            limit=limit,
            after=None if after is None else place(after),
            sees=wanted(EVERYONE, query["namespace"], query["tenant"]),
            failure_class=query["class"],
        )
        return listed([Held(*row) for row in rows], limit).model_dump(mode="json")

    try:
        yield page
    except EngineError as error:
        raise _failed(error) from error
    except ApiProblem as error:
        raise Failed(f"{error.detail} ({error.code})") from error


def _failed(error: EngineError) -> Failed:
    return Failed(f"{error.detail} ({error.code})")
