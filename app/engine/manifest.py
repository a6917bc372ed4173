"""The manifest: what a state is made of, sealed by its own digest (DESIGN section 2, rule 1).

Its rows lie in SQLite, which does not notice a flipped bit, so the digest over all that a restore
relies on is computed at commit and compared whenever the rows are loaded.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from blake3 import blake3

from storage.blocks.store import BlockRef
from storage.rows import ComponentRow, OwnedBlock, StateRow


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes [start, end) of one block; `seq` is its place in the component."""

    seq: int
    ref: BlockRef
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Part:
    """One component: its blocks follow one another from offset 0 to `raw_bytes`."""

    name: str
    raw_bytes: int
    digest: bytes
    blocks: tuple[BlockRef, ...]
    ends: tuple[int, ...]

    def slices(self, start: int, end: int) -> Iterator[Slice]:
        """The blocks that hold bytes [start, end), each cut to that range."""
        position = bisect_right(self.ends, start)
        while start < end:
            ref = self.blocks[position]
            block_start = self.ends[position] - ref.raw_bytes
            stop = min(end, self.ends[position])
            yield Slice(position, ref, start - block_start, stop - block_start)
            start = stop
            position += 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """A state with its components in wire order."""

    state: StateRow
    parts: tuple[Part, ...]

    @property
    def block_count(self) -> int:
        """Blocks of all components."""
        return sum(len(part.blocks) for part in self.parts)

    def part(self, name: str) -> Part | None:
        """The component of that name."""
        return next((part for part in self.parts if part.name == name), None)


class ManifestMismatch(Exception):
    """The rows are not those that were sealed."""


def seal(
    state: StateRow, components: Sequence[ComponentRow], blocks: Sequence[OwnedBlock]
) -> bytes:
    """BLAKE3-256 over everything that a restore of `state` relies on.

    Every string is preceded by its length and every list by its count, so that no two manifests
    have the same image.
    """
    by_component: dict[int, list[OwnedBlock]] = {c.ordinal: [] for c in components}
    for block in blocks:
        by_component[block.ordinal].append(block)
    image = [b"statehold:manifest:1\0"]
    for text in (state.state_id, state.page_id, state.kind, state.kv_descriptor or ""):
        encoded = text.encode()
        image += (struct.pack("<I", len(encoded)), encoded)
    image.append(struct.pack("<Q", state.token_count))
    image.append(state.token_digest)
    image.append(struct.pack("<I", len(components)))
    for component in components:
        name = component.name.encode()
        owned = by_component[component.ordinal]
        image += (struct.pack("<I", len(name)), name, component.digest or b"")
        image.append(struct.pack("<QI", component.raw_bytes, len(owned)))
        for block in owned:
            image += (block.digest, struct.pack("<Q", block.raw_bytes))
    return blake3(b"".join(image)).digest()


def load(
    state: StateRow, components: Sequence[ComponentRow], blocks: Sequence[OwnedBlock]
) -> Manifest:
    """Put the rows together and prove that they are those that were recorded.

    Raises:
        ManifestMismatch: something in the rows is not as it was sealed.
    """
    try:
        sealed = seal(state, components, blocks)
    except KeyError:
        raise ManifestMismatch("a block belongs to no component") from None
    if sealed != state.manifest_digest:
        raise ManifestMismatch("the manifest is not the one that was recorded")
    parts = []
    for component in components:
        refs = tuple(
            BlockRef(b.digest, b.raw_bytes) for b in blocks if b.ordinal == component.ordinal
        )
        ends = tuple(accumulate(ref.raw_bytes for ref in refs))
        if component.digest is None or (ends[-1] if ends else 0) != component.raw_bytes:
            raise ManifestMismatch("the blocks do not add up to the component")
        parts.append(Part(component.name, component.raw_bytes, component.digest, refs, ends))
    return Manifest(state, tuple(parts))
