"""KV states made from a real one: the rows of a sample state, no two alike, in the shape of a given model.

Rows are put together from heads of the sample's rows of the same layer and side (K or V), and all ten
mantissa bits are drawn anew: with fewer, zstd finds the heads that come again (1.75 with the low eight).
Signs, exponents and the channels' scales stay those of the sample, so the bytes compress as the sample's
do: 1.162 in 256 KiB blocks, where the sample's own rows give 1.160
(`storage.blocks.codec.encode`). The generator is seeded: the same call gives the same bytes.

Order of a state is that of a KV page (app/engine/derived.py): K rows of each layer, then V rows of each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_SAMPLES = Path(__file__).parents[1] / "tests" / "data" / "states"
_SAMPLE = "smollm2.128"
_SAMPLE_HEAD = 64
_MANTISSA_BITS = 0x03FF

Halves = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Shape:
    """What of a model decides the size of its KV, in 16-bit floats."""

    layers: int
    heads: int
    head_width: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one K or V row of one layer."""
        return 2 * self.heads * self.head_width

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all layers."""
        return 2 * self.layers * self.row_bytes


EIGHT_BILLION = Shape(layers=32, heads=8, head_width=128)
SMALL = Shape(layers=4, heads=8, head_width=128)


@dataclass(frozen=True)
class Payload:
    """A state: its bytes, its tokens (int32) and what the service is told of its layout."""

    shape: Shape
    tokens: npt.NDArray[np.int32]
    data: bytes

    @property
    def descriptor(self) -> dict[str, Any]:
        """The KV descriptor of the state (checks in app/engine/payload.py)."""
        return {
            "version": 1,
            "layer_start": 0,
            "layer_end": self.shape.layers,
            "layer_count": self.shape.layers,
            "token_start": 0,
            "token_count": len(self.tokens),
            "k_type": "f16",
            "v_type": "f16",
            "k_row_bytes": self.shape.row_bytes,
            "v_row_bytes": self.shape.row_bytes,
            "v_element_bytes": 2,
            "k_idx_row_bytes": 0,
            "payload_bytes": len(self.data),
            "flags": 0,
            "codec": "single",
            "component_count": 0,
        }


class Conversation:
    """All rows of a long state, made once; each of its prefixes is a state.

    The rows lie as (2 x layers, tokens, elements of a row): a prefix is then one long run a layer and
    side, and is put together with one copy.
    """

    def __init__(self, shape: Shape, tokens: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._shape = shape
        self._tokens = rng.integers(1, 32_000, tokens, dtype=np.int32)
        self._rows = np.empty((2 * shape.layers, tokens, shape.row_bytes // 2), np.uint16)
        for index, rows in enumerate(self._rows):
            side, layer = divmod(index, shape.layers)
            _draw(_heads(side, layer), rows, rng)

    def state(self, tokens: int) -> Payload:
        """The state after the first `tokens` tokens; its bytes are a copy."""
        return Payload(self._shape, self._tokens[:tokens], self._rows[:, :tokens].tobytes())


def payload(shape: Shape, size: int, seed: int) -> Payload:
    """A state of `size` bytes, which must be whole tokens."""
    tokens, rest = divmod(size, shape.token_bytes)
    assert not rest, f"{size} bytes are not whole tokens of {shape.token_bytes} bytes"
    return Conversation(shape, tokens, seed).state(tokens)


def _draw(heads: Halves, rows: Halves, rng: np.random.Generator) -> None:
    """Fill `rows` with runs of neighbouring heads, each from a place of its own, and draw the mantissas."""
    width = rows.shape[1]
    starts = np.lib.stride_tricks.sliding_window_view(heads, width)[::_SAMPLE_HEAD]
    np.take(starts, rng.integers(0, len(starts), len(rows)), axis=0, out=rows, mode="clip")
    noise = rng.integers(0, 1 << 64, -(-rows.size // 4), dtype=np.uint64).view(np.uint16)
    noise &= _MANTISSA_BITS
    rows ^= noise[: rows.size].reshape(rows.shape)


@cache
def _sample() -> tuple[tuple[Halves, ...], tuple[Halves, ...]]:
    """The sample's rows, K and V of each layer, one row after the other."""
    facts = json.loads((_SAMPLES / f"{_SAMPLE}.json").read_text())
    data = (_SAMPLES / f"{_SAMPLE}.full.bin").read_bytes()
    layout = facts["geometry"]["full"]
    sides: dict[str, list[Halves]] = {"k": [], "v": []}
    for run in layout["runs"]:
        side = run["label"][0]
        if side in sides and run["label"][1:].isdigit():
            count = layout["rows"] * run["stride"] // 2
            sides[side].append(np.frombuffer(data, np.uint16, count, run["offset"]))
    return tuple(sides["k"]), tuple(sides["v"])


def _heads(side: int, layer: int) -> Halves:
    runs = _sample()[side]
    return runs[layer % len(runs)]
