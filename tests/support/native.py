"""The native block form as docs/native.md and docs/format.md specify it, written anew from those pages.

Shares no code with the service, and takes the slow and plain way everywhere.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zstandard
from blake3 import blake3
from xxhash import xxh3_64

MEDIA_TYPE = "application/vnd.statehold.blocks"
FIXED_BYTES = (1 << 20) - 80


def digest(raw: bytes) -> bytes:
    return blake3(raw).digest()


def value(raw: bytes, codec: int = 0, payload: bytes | None = None) -> bytes:
    """A stored value; raw unless a codec and its payload are given."""
    payload = raw if payload is None else payload
    head = struct.pack("<4sBBHQQ32s", b"SHBK", 1, codec, 0, len(raw), 0, digest(raw))
    return head + struct.pack("<Q", xxh3_64(head + payload).intdigest()) + payload


def planes(raw: bytes, width: int, packed: Iterable[int] = ()) -> bytes:
    """The payload of codec 2 or 3; planes in `packed` as zstd frames."""
    whole = len(raw) // width * width
    parts = [raw[index:whole:width] for index in range(width)]
    for index in packed:
        parts[index] = zstandard.ZstdCompressor(level=1).compress(parts[index])
    lengths = struct.pack(f"<{width}I", *map(len, parts))
    return lengths + b"".join(parts) + raw[whole:]


def decode(stored: bytes) -> bytes:
    """The raw bytes of a stored value, proven."""
    magic, version, codec, zero, length, _, key = struct.unpack_from("<4sBBHQQ32s", stored)
    assert (magic, version, zero) == (b"SHBK", 1, 0)
    payload = stored[64:]
    assert struct.unpack_from("<Q", stored, 56)[0] == xxh3_64(stored[:56] + payload).intdigest()
    if codec == 0:
        raw = payload
    elif codec == 1:
        raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=length)
    elif codec == 4:
        raw = _nibbles(payload, length)
    else:
        width = {2: 2, 3: 4}[codec]
        count = length // width
        sizes = struct.unpack_from(f"<{width}I", payload)
        at = 4 * width
        out = bytearray(length)
        for index, size in enumerate(sizes):
            part = payload[at : at + size]
            if size != count:
                part = zstandard.ZstdDecompressor().decompress(part, max_output_size=count)
            out[index : width * count : width] = part
            at += size
        out[width * count :] = payload[at:]
        raw = bytes(out)
    assert len(raw) == length
    assert digest(raw) == key
    return raw


def _nibbles(payload: bytes, length: int) -> bytes:
    """Codec 4: the upper exponent bits of 16-bit words, two words' to a byte, apart from the rest."""
    r, rest = length // 8, length % 8
    words = struct.unpack_from(f"<{3 * r}H", payload)
    left_over = payload[6 * r : 6 * r + rest]
    plane = payload[6 * r + rest :]
    if len(plane) != 2 * r:
        plane = zstandard.ZstdDecompressor().decompress(plane, max_output_size=2 * r)
    out = [0] * (4 * r)
    for k in range(3 * r):
        nib = plane[k] & 15 if k < 2 * r else plane[k - 2 * r] >> 4
        out[k] = (words[k] & 0x87FF) | nib << 11
    for k in range(r):
        a, b, c = ((words[k + part * r] >> 11) & 15 for part in range(3))
        nib = plane[k + r] >> 4
        q = a << 7 | b << 3 | c >> 1 | (c & 1) << 15
        out[3 * r + k] = q | nib << 11
    return struct.pack(f"<{4 * r}H", *out) + left_over


def frame(kind: int, component: int, seq: int, payload: bytes) -> bytes:
    return struct.pack("<BBHIQ", kind, component, 0, seq, len(payload)) + payload


def stream(blocks: Mapping[int, bytes], frames: int | None = None) -> bytes:
    """An upload: stored values by seq."""
    count = len(blocks) + 1 if frames is None else frames
    body = [struct.pack("<4sB3sII", b"SHBF", 1, bytes(3), count, 0)]
    body += [frame(2, 0, seq, blocks[seq]) for seq in sorted(blocks)]
    body.append(frame(3, 0, 0, b""))
    return b"".join(body)


@dataclass(frozen=True)
class Answer:
    """A block stream that came back: manifest, and stored values by (component, seq)."""

    manifest: dict[str, Any]
    blocks: dict[tuple[int, int], bytes]


def frames(body: bytes) -> list[tuple[int, int, int, bytes]]:
    """(kind, component, seq, payload) of each frame."""
    magic, version, zero, count, zero_too = struct.unpack_from("<4sB3sII", body)
    assert (magic, version, zero, zero_too) == (b"SHBF", 1, bytes(3), 0)
    at = 16
    found: list[tuple[int, int, int, bytes]] = []
    for _ in range(count):
        kind, component, nothing, seq, size = struct.unpack_from("<BBHIQ", body, at)
        assert nothing == 0
        payload = body[at + 16 : at + 16 + size]
        assert len(payload) == size
        found.append((kind, component, seq, payload))
        at += 16 + size
    assert at == len(body)
    return found


def parse(body: bytes) -> Answer:
    found = frames(body)
    assert found[0][:3] == (1, 0, 0)
    assert found[-1] == (3, 0, 0, b"")
    assert all(kind == 2 for kind, *_ in found[1:-1])
    places = [(component, seq) for _, component, seq, _ in found[1:-1]]
    assert places == sorted(set(places))
    blocks = {(component, seq): payload for _, component, seq, payload in found[1:-1]}
    return Answer(json.loads(found[0][3]), blocks)


def single_runs(groups: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Groups of a manifest as single runs."""
    return [
        {
            **group,
            "offset": group["offset"] + index * group["spacing"],
            "count": 1,
            "spacing": 0,
        }
        for group in groups
        for index in range(group["count"])
    ]


def window_rows(runs: Sequence[Mapping[str, int]]) -> int:
    row_bytes = sum(run["stride"] for run in runs)
    rows = 64
    while rows > 1 and rows * row_bytes > 256 << 10:
        rows //= 2
    while rows * row_bytes < 16 << 10:
        rows *= 2
    return rows


def _pieces(
    runs: Sequence[Mapping[str, int]], rows: int, window: int, width: int
) -> list[tuple[int, int, int]]:
    """(start in the component, length, run) of what a window holds, in order."""
    found = []
    for index, run in enumerate(runs):
        first = run.get("first_row", 0)
        low = max(window * width, first)
        high = min((window + 1) * width, first + run.get("rows", rows - first))
        if low < high:
            size = (high - low) * run["stride"]
            found.append((run["offset"] + (low - first) * run["stride"], size, index))
    return found


def cut(data: bytes, geometry: Mapping[str, Any] | None) -> list[bytes]:
    """The blocks of a component."""
    if geometry is None:
        return [data[at : at + FIXED_BYTES] for at in range(0, len(data), FIXED_BYTES)]
    runs, rows = geometry["runs"], geometry["rows"]
    width = window_rows(runs)
    blocks = []
    for window in range(-(-rows // width)):
        pieces = _pieces(runs, rows, window, width)
        blocks.append(b"".join(data[start : start + size] for start, size, _ in pieces))
    covered = sorted(
        (run["offset"], run["offset"] + run["stride"] * run.get("rows", rows)) for run in runs
    )
    frame_bytes, at = b"", 0
    for start, end in covered:
        frame_bytes += data[at:start]
        at = end
    frame_bytes += data[at:]
    return blocks + [
        frame_bytes[at : at + FIXED_BYTES] for at in range(0, len(frame_bytes), FIXED_BYTES)
    ]


def assemble(answer: Answer, held: Mapping[bytes, bytes] | None = None) -> dict[str, bytes]:
    """Put the components of an answer together; `held` are raw blocks that the client has."""
    held = held or {}
    found = {}
    for place, component in enumerate(answer.manifest["components"]):
        blocks = []
        for seq, (name, raw_bytes) in enumerate(component["blocks"]):
            key = bytes.fromhex(name)
            stored = answer.blocks.get((place, seq))
            raw = decode(stored) if stored is not None else held.get(key)
            if raw is not None:
                assert (digest(raw), len(raw)) == (key, raw_bytes)
            blocks.append(raw)
        data = _place(component, blocks)
        if component["digest"] is not None:
            assert digest(data).hex() == component["digest"]
        found[component["name"]] = data
    return found


def _place(component: Mapping[str, Any], blocks: Sequence[bytes | None]) -> bytes:
    if component["runs"] is None:
        assert all(block is not None for block in blocks)
        return b"".join(block for block in blocks if block is not None)
    runs = single_runs(component["runs"])
    targets = single_runs(component["target_runs"] or component["runs"])
    width = component["window_rows"]
    rows = max(run["first_row"] + run["rows"] for run in runs)
    most = max(run["first_row"] + run["rows"] for run in targets)
    data = bytearray(component["bytes"])
    windows = -(-rows // width)
    for window in range(-(-most // width)):
        block, at = blocks[window], 0
        assert block is not None
        for start, size, index in _pieces(runs, rows, window, width):
            run, target = runs[index], targets[index]
            row = (start - run["offset"]) // run["stride"] + run["first_row"]
            kept = min(size, (target["first_row"] + target["rows"] - row) * run["stride"])
            into = target["offset"] + (row - target["first_row"]) * run["stride"]
            data[into : into + kept] = block[at : at + kept]
            at += size
    frame_parts = blocks[windows:]
    if frame_parts:
        rest = b"".join(part for part in frame_parts if part is not None)
        covered = sorted((r["offset"], r["offset"] + r["stride"] * r["rows"]) for r in runs)
        at = used = 0
        for start, end in [*covered, (len(data), len(data))]:
            data[at:start] = rest[used : used + start - at]
            used += start - at
            at = end
    return bytes(data)
