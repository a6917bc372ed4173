"""Walking the tree of a namespace step by step, for operators. Token ids are not shown."""

from __future__ import annotations

from concurrent.futures import Executor

from app.engine.errors import NotFound
from app.engine.threads import in_thread
from storage.metadata.neighbours import Neighbours
from storage.store import Store


class TreeWalk:
    """Nodes with their children, one step at a time."""

    def __init__(self, store: Store, small: Executor) -> None:
        self._store = store
        self._small = small

    async def step(
        self, namespace: str, node_id: int | None, after: int | None, limit: int
    ) -> Neighbours | None:
        """The node (None: the root) and its children behind the child `after`.

        None: nothing was ever recorded into the namespace, so that it has no root.

        Raises:
            NotFound: no such namespace, or no such node in it.
        """
        row = self._store.catalog.namespace(namespace)
        if row is None:
            raise NotFound("namespace_not_found", "no such namespace")
        found = await in_thread(
            self._small, self._store.catalog.neighbours, row.id, node_id, after, limit
        )
        if found is None and node_id is not None:
            raise NotFound("node_not_found", "the namespace's tree has no such node (any more)")
        return found
