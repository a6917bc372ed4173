"""Looking at states byte by byte: proving all of one, and giving raw bytes as far as they can be read.

Blocks are read in steps of a few megabytes on the pool, one step at a time, so that the largest state leaves
threads to others and a request that is given up ends soon. What a state is good for is not decided here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass

from app.engine.errors import Conflicting, NotFound
from app.engine.faults import StateFault
from app.engine.geometry import MOST_ROW_BYTES
from app.engine.manifest import Manifest, ManifestMismatch, Part, put_together
from app.engine.reader import Opened, Range, Reader
from app.engine.steps import in_steps
from app.engine.threads import in_thread
from storage.blocks.codec import Buffer
from storage.blocks.store import BlockRef
from storage.errors import BlockFault, BlockMissing
from storage.rows import StateRow
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Proof:
    """What proving every byte of a state found: raw bytes that are right, and the first fault if any."""

    proven_bytes: int
    fault: StateFault | None


@dataclass(slots=True)
class Raw:
    """A component opened as it is. Close it, whatever happens.

    `damaged` are places of blocks that cannot be read. `sealed`: its rows are those that were recorded.
    `fault`: the first thing that is wrong with the state.
    """

    state: StateRow
    opened: Opened
    range: Range
    damaged: tuple[int, ...]
    sealed: bool
    fault: StateFault | None

    @property
    def length(self) -> int:
        """Bytes of the component."""
        return self.range[2]


class Forensics:
    """Reads states of one store without trusting them."""

    def __init__(self, store: Store, reader: Reader, pool: Executor) -> None:
        self._store = store
        self._reader = reader
        self._pool = pool

    async def prove(self, state: StateRow) -> Proof:
        """Read and prove every byte up to the first that fails.

        Raises:
            NotFound: the state has gone meanwhile.
        """
        try:
            manifest = await in_thread(self._pool, self._reader.load, state)
        except StateFault as error:
            return Proof(0, error)
        proven = 0
        for part in manifest.parts:
            async with aclosing(self._faults(state, part)) as steps:
                async for good_bytes, faults in steps:
                    proven += good_bytes
                    if faults:
                        return Proof(proven, faults[0])
        return Proof(proven, None)

    async def open(self, state: StateRow, component: str) -> Raw:
        """A component as far as it can be read. Reads all of it once, to tell what is damaged.

        Raises:
            NotFound: the state has no such component, or has gone meanwhile.
            Conflicting: `component_unreadable`; nobody can tell where its blocks belong.
        """
        manifest, first = await in_thread(self._pool, self._load, state)
        part = manifest.part(component)
        if part is None:
            raise NotFound("component_not_found", "the state has no such component")
        sealed = first is None or first.evidence.failure_class != "manifest_mismatch"
        damaged: list[int] = []
        async with aclosing(self._faults(state, part)) as steps:
            async for _, faults in steps:
                damaged += [
                    fault.evidence.seq for fault in faults if fault.evidence.seq is not None
                ]
                first = first or next(iter(faults), None)
        range_ = (component, 0, part.raw_bytes)
        try:
            opened = await self._reader.open_as_it_is(manifest, range_)
        except BlockMissing as error:
            raise _gone() from error
        return Raw(state, opened, range_, tuple(damaged), sealed, first)

    async def stream(self, raw: Raw) -> AsyncIterator[Buffer]:
        """The component's bytes in wire order; zeros where a block cannot be read.

        Raises:
            NotFound: the state has gone meanwhile, so that what is missing says nothing.
        """
        try:
            async for chunk in self._reader.stream(raw.opened, [raw.range]):
                yield chunk
        except BlockMissing as error:
            raise _gone() from error

    async def close(self, raw: Raw) -> None:
        """Give back what `open` holds."""
        self._reader.close(raw.opened)

    async def _faults(
        self, state: StateRow, part: Part
    ) -> AsyncGenerator[tuple[int, list[StateFault]]]:
        """Proven bytes and faults of each step of a component's blocks."""

        def look(step: Sequence[tuple[int, BlockRef]]) -> tuple[int, list[StateFault]]:
            good_bytes, faults = 0, []
            for seq, ref in step:
                try:
                    self._store.blocks.read([ref])
                except BlockFault as error:
                    faults.append(self._fault(state, part.name, seq, error))
                else:
                    good_bytes += ref.raw_bytes
            return good_bytes, faults

        for step in in_steps(enumerate(part.blocks), lambda block: block[1].raw_bytes):
            yield await in_thread(self._pool, look, step)

    def _fault(self, state: StateRow, component: str, seq: int, error: BlockFault) -> StateFault:
        found = self._reader.fault(state, component, seq, error)
        if not isinstance(found, StateFault):
            raise _gone() from error
        return found

    def _load(self, state: StateRow) -> tuple[Manifest, StateFault | None]:
        """The manifest, proven or else as the rows have it with what is wrong."""
        try:
            return self._reader.load(state), None
        except StateFault as error:
            fault = error
        if self._store.catalog.state(state.state_id) is None:
            raise _gone() from fault
        try:
            manifest = put_together(state, *self._store.catalog.contents(state.id))
        except ManifestMismatch as error:
            raise _unreadable() from error
        # The longest block is a row; a length that is damaged must not be filled up with zeros.
        if any(
            not 0 < ref.raw_bytes <= MOST_ROW_BYTES
            for part in manifest.parts
            for ref in part.blocks
        ):
            raise _unreadable() from fault
        return manifest, fault


def _gone() -> NotFound:
    return NotFound("state_not_found", "the state has gone")


def _unreadable() -> Conflicting:
    return Conflicting(
        "component_unreadable", "the rows that say where its blocks belong contradict each other"
    )
