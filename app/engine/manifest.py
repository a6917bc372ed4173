"""The manifest: what a state is made of, sealed by its own digest (DESIGN section 2, rule 1).

Its rows lie in SQLite, which does not notice a flipped bit, so the digest over all that a restore
relies on is computed at commit and compared whenever the rows are loaded.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from blake3 import blake3

from app.engine.derived import shorter_descriptor
from app.engine.errors import InvalidPayload
from app.engine.geometry import Geometry, Layout
from app.engine.payload import PayloadKind
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
    """One component.

    Without a layout its blocks follow one another from offset 0 to `raw_bytes`. With one they are
    token windows, and `onto` is the layout that `raw_bytes` belongs to: its own, or that of a shorter
    prefix of it. `by_blocks`: the digest is that of the list of its blocks.
    """

    name: str
    raw_bytes: int
    digest: bytes
    blocks: tuple[BlockRef, ...]
    ends: tuple[int, ...]
    by_blocks: bool = False
    layout: Layout | None = None
    onto: Layout | None = None

    @property
    def bytes_digest(self) -> bytes | None:
        """BLAKE3-256 of the bytes on the wire, where it is known."""
        return None if self.by_blocks or self.onto is not self.layout else self.digest

    def needed(self, start: int, end: int) -> list[int]:
        """Which blocks hold bytes [start, end)."""
        if self.layout is None:
            return [piece.seq for piece in self.slices(start, end)]
        if self.onto is not self.layout:
            assert self.onto is not None
            return self.layout.of_rows(0, self.onto.geometry.rows)
        if (start, end) == (0, self.raw_bytes):
            return list(range(len(self.blocks)))
        return self.layout.needed(start, end)

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


def shortened(manifest: Manifest, prefix_tokens: int) -> Manifest:
    """The manifest of a shorter prefix of a dense `kv` state, its descriptor adjusted.

    The next-token logits belong to the last token alone and are left out.

    Raises:
        ValueError: it has no such prefix (`can_shorten` says so before).
    """
    state, part = manifest.state, manifest.part("kv")
    onto = None if part is None or part.layout is None else part.layout.prefix(prefix_tokens)
    if part is None or onto is None or state.kind != PayloadKind.KV:
        raise ValueError("the state has no such prefix")
    descriptor = json.loads(state.kv_descriptor or "null")
    shorter = dataclasses.replace(part, raw_bytes=onto.raw_bytes, onto=onto)
    return Manifest(
        dataclasses.replace(
            state,
            token_count=prefix_tokens,
            logical_bytes=onto.raw_bytes,
            kv_descriptor=json.dumps(
                shorter_descriptor(descriptor, prefix_tokens, onto.raw_bytes),
                separators=(",", ":"),
            ),
        ),
        (shorter,),
    )


def can_shorten(manifest: Manifest, prefix_tokens: int) -> bool:
    """Whether attention state of `prefix_tokens` tokens lies in this state, complete.

    Attention KV of a causal prefix does not depend on what follows; a recurrent state does, and a
    sliding window that no longer has the first rows cannot be rolled back.
    """
    try:
        shortened(manifest, prefix_tokens)
    except ValueError:
        return False
    return True


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
    # What revision 0001 knew nothing of comes last, and only where there is any: what was sealed
    # then still has its digest.
    extras = [
        struct.pack("<IBI", c.ordinal, c.by_blocks, len(c.geometry or b"")) + (c.geometry or b"")
        for c in components
        if c.by_blocks or c.geometry is not None
    ]
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
    return blake3(b"".join(image + extras)).digest()


def blocks_digest(refs: Sequence[BlockRef]) -> bytes:
    """What a component is known by that arrived as blocks: BLAKE3-256 over their keys and lengths."""
    image = [b"statehold:blocks:1\0"]
    for ref in refs:
        image += (ref.digest, struct.pack("<Q", ref.raw_bytes))
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
    except (struct.error, TypeError, AttributeError) as error:
        raise ManifestMismatch("a row holds what never was put there") from error
    if sealed != state.manifest_digest:
        raise ManifestMismatch("the manifest is not the one that was recorded")
    return put_together(state, components, blocks)


def put_together(
    state: StateRow, components: Sequence[ComponentRow], blocks: Sequence[OwnedBlock]
) -> Manifest:
    """The manifest that the rows say, whether or not they are those that were recorded.

    Raises:
        ManifestMismatch: they contradict each other.
    """
    parts = []
    for component in components:
        refs = tuple(
            BlockRef(b.digest, b.raw_bytes) for b in blocks if b.ordinal == component.ordinal
        )
        ends = tuple(accumulate(ref.raw_bytes for ref in refs))
        if component.digest is None or (ends[-1] if ends else 0) != component.raw_bytes:
            raise ManifestMismatch("the blocks do not add up to the component")
        layout = _layout(component, refs)
        parts.append(
            Part(
                component.name,
                component.raw_bytes,
                component.digest,
                refs,
                ends,
                bool(component.by_blocks),
                layout,
                layout,
            )
        )
    return Manifest(state, tuple(parts))


def _layout(component: ComponentRow, refs: Sequence[BlockRef]) -> Layout | None:
    if component.geometry is None:
        return None
    try:
        layout = Layout(Geometry.unpack(component.geometry), component.raw_bytes)
    except (ValueError, InvalidPayload) as error:
        raise ManifestMismatch("the geometry does not fit its component") from error
    if layout.lengths != tuple(ref.raw_bytes for ref in refs):
        raise ManifestMismatch("the blocks are not those of the geometry")
    return layout
