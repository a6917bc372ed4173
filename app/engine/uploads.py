"""What every upload of a component begins with, whichever form its bytes come in."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

from uuid_utils import uuid7

from app.engine.errors import Conflicting, EngineError, InvalidInput, NotFound, Unavailable
from app.engine.policy import Policy
from app.engine.threads import in_thread
from app.engine.writer import BlockWriter
from storage.errors import Conflict, NotHeld, StorageError
from storage.rows import ComponentRow, Limits, RecordingRow, StateRow
from storage.store import Store


class Uploads:
    """Opens and gives up the uploads of one process."""

    def __init__(self, store: Store, writer: BlockWriter, policy: Policy, small: Executor) -> None:
        self._store = store
        self._writer = writer
        self._policy = policy
        self._small = small

    async def begin(
        self, state_id: str, name: str, *, length: int | None = None, keep: bool = False
    ) -> tuple[RecordingRow, ComponentRow]:
        """Reserve a component of a recording for one upload.

        Args:
            length: what the sender says it will send, if it says so.
            keep: go on with the blocks that it has already.

        Raises:
            NotFound: no such recording, or it did not announce the component.
            Conflicting: the component has arrived, or is being uploaded.
            InvalidInput: another length was announced.
            Unavailable: the writer has stopped.
        """
        recording = await in_thread(self._small, self._store.catalog.recording, state_id)
        if recording is None:
            if self._store.catalog.state(state_id) is not None:
                raise Conflicting("record_committed", "the recording has been committed")
            raise NotFound("record_not_found", "no such recording is under way")
        component = next((c for c in recording.components if c.name == name), None)
        if component is None:
            raise NotFound("component_not_announced", "admission did not name this component")
        if length is not None and length != component.raw_bytes:
            raise InvalidInput(
                "length_mismatch",
                f"{component.raw_bytes} bytes were announced and {length} are being sent",
                "Content-Length",
            )
        if component.digest is not None:
            raise Conflicting("component_complete", "the component has arrived already")
        if self._writer.stopped:
            raise Unavailable("stopped", "the writer has stopped", 30)
        reserve = partial(self._store.begin_component, state_id, name, str(uuid7()), keep=keep)
        try:
            await in_thread(self._small, reserve)
        except NotHeld as error:
            raise NotFound("record_not_found", "no such recording is under way") from error
        except Conflict as error:
            raise Conflicting("upload_in_progress", "the component is being uploaded") from error
        return recording, component

    async def limits(self, state: StateRow) -> Limits:
        """What the store, the state's namespace and its tenant may hold."""
        namespace, tenant = await in_thread(
            self._small, self._store.catalog.with_tenant, state.namespace_id
        )
        return self._policy.limits(namespace, tenant)

    def foreign(self, limits: Limits, digests: Collection[bytes]) -> set[bytes]:
        """Blocks that are new to the uploader's dedupe scope, whether the store holds them or not.

        They are encoded and written in any case: the time that takes must not tell one tenant what
        another has recorded. For a thread.
        """
        catalog = self._store.catalog
        if self._policy.settings.dedupe_scope == "store" or not catalog.several_tenants():
            return set()
        return set(digests) - catalog.shown(limits.tenant, list(digests))

    async def forget(self, state: StateRow, ordinal: int, error: BaseException) -> None:
        """Give up what an upload had brought, in order behind its writes.

        Who is told of the error may try again at once, so it waits; who has gone does not.
        """
        done = self._writer.call(lambda: self._store.forget_component(state, ordinal))
        if isinstance(error, Exception):
            with suppress(EngineError, StorageError):
                await asyncio.shield(asyncio.wrap_future(done))
