"""States to record that share what real ones share: windows of common prefixes, and whole components.

A row of attention state depends on the tokens up to its own alone, as a causal model's does, so a longer
prefix has the rows of a shorter one. Everything else comes from a few contents, so that states of different
prefixes, namespaces and tenants share blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import shake_128
from typing import Any, Final

from blake3 import blake3

from tests.support import native

Tokens = tuple[int, ...]

# Tokens of one step of a conversation: windows have 64 rows, so they begin and end within steps.
STEP_TOKENS: Final = 48
WINDOW_ROWS: Final = 64
_RUNS: Final = 4
_STRIDE: Final = 64
_HEAD_BYTES: Final = 96
SHAPES: Final = ("plain", "small", "windows", "hybrid", "dense", "dense_logits", "diagnostic")
FLAVOURS: Final = 3
_COMPRESSIBLE: Final = 2


def tokens_of(path: tuple[int, ...], cut: int) -> Tokens:
    """The tokens of a conversation's steps, less the last `cut` of them."""
    tokens = tuple(1000 * step + at for step in path for at in range(STEP_TOKENS))
    return tokens[: len(tokens) - cut]


@dataclass(frozen=True)
class Payload:
    """What a recording has. `components` in wire order, `cuts` their geometry (None: in wire order)."""

    kind: str
    components: Mapping[str, bytes]
    cuts: Mapping[str, Mapping[str, Any] | None]
    geometry: Mapping[str, Any] | None = None
    kv_descriptor: Mapping[str, Any] | None = None

    @property
    def body(self) -> bytes:
        """What a restore must give back."""
        return b"".join(self.components.values())

    def blocks(self, name: str) -> list[bytes]:
        """The raw blocks of a component, cut by the second implementation (docs/native.md)."""
        return _cut(self.components[name], _frozen(self.cuts[name]))

    def announced(self) -> dict[str, Any]:
        """What admission is told besides names and sizes."""
        more: dict[str, Any] = {}
        if self.geometry is not None:
            more["geometry"] = self.geometry
        if self.kv_descriptor is not None:
            more["kv_descriptor"] = self.kv_descriptor
        return more


@cache
def make(shape: str, tokens: Tokens, flavour: int) -> Payload:
    """A state of a shape for these tokens; another flavour has other bytes."""
    count = len(tokens)
    if shape in ("plain", "small"):
        data = _content(flavour, 70_000 if shape == "plain" else 3_000)
        return Payload("full_state", {"full": data}, {"full": None})
    if shape == "windows":
        runs = _runs(count, _HEAD_BYTES)
        data = _content(flavour, _HEAD_BYTES) + _page(tokens, flavour)
        geometry = {"full": {"rows": count, "runs": runs, "element": "f16"}}
        return Payload("full_state", {"full": data}, geometry, geometry)
    if shape == "diagnostic":
        data = _content(flavour, 5_000)
        return Payload("recurrent_only", {"recurrent": data}, {"recurrent": None})
    kv = _page(tokens, flavour)
    cut = {"rows": count, "runs": _runs(count, 0)}
    described = _descriptor(count)
    if shape == "hybrid":
        parts = {"kv": kv, "recurrent": _content(flavour, 5_000)}
        cuts = {"kv": cut, "recurrent": None}
        return Payload("kv_recurrent", parts, cuts, kv_descriptor=described)
    parts, kv_cuts = {"kv": kv}, {"kv": cut, "logits": None}
    if shape == "dense_logits":
        parts["logits"] = _content(flavour, 64)
    return Payload("kv", parts, kv_cuts, kv_descriptor=described)


def shortened(payload: Payload, kept: int) -> tuple[bytes, Mapping[str, Any]]:
    """The body and the descriptor of a dense state cut to `kept` tokens."""
    kv = payload.components["kv"]
    run = len(kv) // _RUNS
    body = b"".join(kv[at : at + kept * _STRIDE] for at in range(0, len(kv), run))
    assert payload.kv_descriptor is not None
    return body, {**payload.kv_descriptor, "token_count": kept, "payload_bytes": len(body)}


def pieces(payload: Payload, name: str) -> list[tuple[int, int, int]]:
    """(block, start, end) of every stretch of a component that lies in one block, in order of the blocks."""
    size, cut = len(payload.components[name]), payload.cuts[name]
    if cut is None:
        starts = range(0, size, native.FIXED_BYTES)
        return [(seq, at, min(at + native.FIXED_BYTES, size)) for seq, at in enumerate(starts)]
    rows = cut["rows"]
    windows = -(-rows // WINDOW_ROWS)
    found = [
        (
            window,
            run["offset"] + window * WINDOW_ROWS * run["stride"],
            run["offset"] + min(rows, (window + 1) * WINDOW_ROWS) * run["stride"],
        )
        for window in range(windows)
        for run in cut["runs"]
    ]
    head = cut["runs"][0]["offset"]
    return [*found, (windows, 0, head)] if head else found


def needed_for(payload: Payload, name: str, first: int, last: int) -> set[int]:
    """Which blocks of a component hold its bytes [first, last)."""
    return {seq for seq, start, end in pieces(payload, name) if start < last and first < end}


def without(payload: Payload, name: str, blocks: Collection[int]) -> bytes:
    """A component with zeros in place of some of its blocks."""
    data = bytearray(payload.components[name])
    for seq, start, end in pieces(payload, name):
        if seq in blocks:
            data[start:end] = bytes(end - start)
    return bytes(data)


def _runs(rows: int, offset: int) -> list[dict[str, int]]:
    size = rows * _STRIDE
    return [{"offset": offset + at * size, "stride": _STRIDE} for at in range(_RUNS)]


def _descriptor(count: int) -> dict[str, Any]:
    return {
        "version": 1,
        "layer_start": 0,
        "layer_end": 2,
        "token_start": 0,
        "token_count": count,
        "layer_count": 2,
        "k_type": 1,
        "v_type": 1,
        "k_row_bytes": _STRIDE,
        "v_row_bytes": _STRIDE,
        "v_element_bytes": 2,
        "k_idx_row_bytes": 0,
        "payload_bytes": count * _RUNS * _STRIDE,
        "flags": 0,
        "codec": 0,
        "component_count": 0,
    }


@cache
def _content(flavour: int, size: int) -> bytes:
    if flavour == _COMPRESSIBLE:
        return (b"the same sentence over and over; " * (size // 33 + 1))[:size]
    return shake_128(b"content %d" % flavour).digest(size)


@cache
def _row(tokens: Tokens, flavour: int) -> bytes:
    """The row of the last of these tokens."""
    seed = b"%d:" % flavour + b",".join(b"%d" % token for token in tokens)
    if flavour == _COMPRESSIBLE:
        return blake3(seed).digest(length=8) * (_RUNS * _STRIDE // 8)
    return blake3(seed).digest(length=_RUNS * _STRIDE)


@cache
def _page(tokens: Tokens, flavour: int) -> bytes:
    rows = [_row(tokens[: at + 1], flavour) for at in range(len(tokens))]
    return b"".join(row[at * _STRIDE : (at + 1) * _STRIDE] for at in range(_RUNS) for row in rows)


_Cut = tuple[int, tuple[tuple[int, int], ...]] | None


def _frozen(geometry: Mapping[str, Any] | None) -> _Cut:
    if geometry is None:
        return None
    return geometry["rows"], tuple((run["offset"], run["stride"]) for run in geometry["runs"])


@cache
def _cut(data: bytes, frozen: _Cut) -> list[bytes]:
    if frozen is None:
        return native.cut(data, None)
    rows, runs = frozen
    return native.cut(
        data, {"rows": rows, "runs": [{"offset": at, "stride": size} for at, size in runs]}
    )
