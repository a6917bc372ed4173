"""The codec alone: ratio and GB/s of one core, on real floats and on noise, beside a plain copy."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from blake3 import blake3

from app.engine.geometry import Layout, given
from storage.blocks.codec import HEADER_BYTES, codec_of, copy, decode, encode_in_place

_BESIDE = Path(__file__).parents[2] / "shared"
_STATES = Path(os.environ.get("STATEHOLD_SHARED", _BESIDE)) / "data" / "states"
_ROUNDS = 30


def windows(name: str, component: str) -> list[bytes]:
    """The blocks of a sample with geometry, as they are recorded."""
    raw = (_STATES / f"{name}.{component}.bin").read_bytes()
    document = json.loads((_STATES / f"{name}.json").read_text())
    layout = Layout(given(document["geometry"][component], len(raw)), len(raw))
    blocks = [bytearray(length) for length in layout.lengths]
    for seq, block in enumerate(blocks):
        layout.gather(seq, raw, block)
    return [bytes(block) for block in blocks]


def pieces(raw: bytes, length: int) -> list[bytes]:
    """Blocks of one length, the last one shorter."""
    return [raw[at : at + length] for at in range(0, len(raw), length)]


def samples() -> Iterator[tuple[str, list[bytes]]]:
    """What is measured, by name."""
    f16 = (_STATES / "smollm2.256.full.bin").read_bytes()
    yield "f16, token windows", windows("smollm2.256", "full")
    yield "f16, 256 KiB", pieces(f16, 256 << 10)
    yield "f16, 1 MiB", pieces(f16, 1 << 20)
    recurrent = [(_STATES / f"hybrid.{n}.recurrent.bin").read_bytes() for n in (128, 192, 256)]
    yield "f32, recurrent", recurrent
    yield "random, 184 KiB", pieces(os.urandom(16 * 184_448), 184_448)


def gb_per_s(blocks: Sequence[bytes], runs: Sequence[Callable[[], object]]) -> float:
    """Raw bytes by CPU seconds of this thread: the best of some rounds for every block, summed up."""
    took = sum(min(_timed(run) for _ in range(_ROUNDS)) for run in runs)
    return sum(map(len, blocks)) / took / 1e9


def _timed(run: Callable[[], object]) -> float:
    started = time.thread_time()
    run()
    return time.thread_time() - started


def measure(blocks: Sequence[bytes]) -> dict[str, float]:
    """Ratio raw to stored, and GB/s of every step; encoding does not count the digest."""
    digests = [blake3(raw).digest() for raw in blocks]
    buffers = [memoryview(bytearray(HEADER_BYTES) + raw) for raw in blocks]
    values = [
        encode_in_place(buffer, digest, generation=0).value
        for buffer, digest in zip(buffers, digests, strict=True)
    ]
    stored = list(zip(values, digests, map(len, blocks), strict=True))
    for raw, (value, digest, length) in zip(blocks, stored, strict=True):
        assert decode(value, digest, length) == raw, "not the bytes that were encoded"
    return {
        "ratio": sum(map(len, blocks)) / sum(map(len, values)),
        "encode": gb_per_s(
            blocks,
            [
                lambda b=buffer, d=digest: encode_in_place(b, d, generation=0)  # type: ignore[misc]
                for buffer, digest in zip(buffers, digests, strict=True)
            ],
        ),
        "decode": gb_per_s(blocks, [lambda s=s: copy(*s) for s in stored]),  # type: ignore[misc]
        "decode_proof": gb_per_s(blocks, [lambda s=s: decode(*s) for s in stored]),  # type: ignore[misc]
        "memcpy": gb_per_s(blocks, [lambda raw=raw: bytearray(raw) for raw in blocks]),  # type: ignore[misc]
        "codecs": float("".join(map(str, sorted({codec_of(value) for value in values})))),
    }


def main() -> None:
    """Measure every sample and print it."""
    print(
        f"Codec, GB/s of raw bytes by CPU time of one core, best of {_ROUNDS}; targets for f16: "
        "ratio 1.14, encode 1.0, decode 2.0"
    )
    for name, blocks in samples():
        found = measure(blocks)
        print(
            f"  {name:20} {len(blocks):3} blocks, codecs {found['codecs']:.0f}: "
            f"ratio {found['ratio']:.4f}  encode {found['encode']:5.2f}  "
            f"decode {found['decode']:5.2f}  with proof {found['decode_proof']:5.2f}  "
            f"memcpy {found['memcpy']:5.2f}"
        )


if __name__ == "__main__":
    main()
