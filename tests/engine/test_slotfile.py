"""Slot files: what is understood gives the rows where they lie, everything else gives nothing, quickly."""

from __future__ import annotations

import json
import mmap
import random
import struct
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine import geometry
from app.engine.geometry import Layout, Runs
from app.engine.slotfile import HEAD_BYTES, Parsed, SlotStatus, is_slot_file, of_slot_file
from tests.conftest import Sample, shared_states

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
ABSURD = (0, 1, (1 << 31) - 1, (1 << 32) - 1, 1 << 63)
SLOTS = Path(__file__).parents[1] / "data" / "slots"


# ---- a writer of the format --------------------------------------------------------------------


class Slot:
    """A slot file in the making, every header field marked with its place and size."""

    def __init__(self, seed: int = 1) -> None:
        self.data = bytearray()
        self.fields: list[tuple[int, int]] = []
        self.boundaries: list[int] = []  # behind a section, or where V could be absent
        self._random = random.Random(seed)

    def number(self, *values: int, size: int = 4) -> Slot:
        for value in values:
            self.fields.append((len(self.data), size))
            self.data += (value % (1 << 8 * size)).to_bytes(size, "little")
        return self

    def noise(self, size: int) -> Slot:
        self.data += self._random.randbytes(size)
        return self

    def plain(self, tokens: Sequence[int], version: int = 3) -> Slot:
        self.number(0x67677371, version, len(tokens))
        self.data += struct.pack(f"<{len(tokens)}i", *tokens)
        return self

    def packed(
        self, tokens: Sequence[int], media: Sequence[tuple[int, bytes]] = (), version: int = 1
    ) -> Slot:
        size = 4 + len(tokens) + len(media)
        chunks = b"".join(struct.pack("<I", len(chunk)) + chunk for _, chunk in media)
        self.number(0x67677371, 3, size - (-len(chunks) // 4), -1, version, len(tokens))
        self.data += struct.pack(f"<{len(tokens)}i", *tokens)
        self.number(len(media), *(start for start, _ in media))
        for _, chunk in media:
            self.number(len(chunk))
            self.data += chunk
        self.data += bytes(-len(chunks) % 4)
        return self

    def cache(self, *streams: Stream) -> Slot:
        self.number(len(streams))
        for stream in streams:
            stream.write(self)
        self.boundaries.append(len(self.data))
        return self

    def recurrent(
        self, layers: int = 2, r_bytes: int = 96, s_bytes: int = 256, history: int = 0
    ) -> Slot:
        self.number(1, 9, 0, 0, layers + 3)
        for row_bytes, extra in ((r_bytes, history), (s_bytes, 0)):
            for _ in range(layers):
                self.number(F32).number(row_bytes, size=8).noise(row_bytes)
                if extra:
                    self.number(extra, size=8).noise(extra)
        self.boundaries.append(len(self.data))
        return self

    def parsed(self) -> Parsed:
        return of_slot_file(bytes(self.data))


@dataclass(frozen=True)
class Stream:
    """The cells of one stream; `ids` gives the number of sequences of each."""

    positions: Sequence[int] = ()
    layers: int = 2
    kind: int = F16
    k_bytes: int = 8
    v_bytes: int = 4
    transposed: bool = False
    values: bool = True
    extra: bool = False
    ids: Sequence[int] | None = None

    def write(self, slot: Slot) -> None:
        cells = len(self.positions)
        slot.number(cells)
        if not cells:
            return
        for index, position in enumerate(self.positions):
            ids = 1 if self.ids is None else self.ids[index]
            slot.data += struct.pack("<2I", position, ids)
            slot.data += struct.pack("<3i", 5, 6, 70000) * self.extra
            slot.data += struct.pack(f"<{ids}i", *range(ids))
        slot.number(int(self.transposed), self.layers)
        for _ in range(self.layers):
            slot.number(self.kind).number(self.k_bytes, size=8).noise(cells * self.k_bytes)
        if not self.values:
            return
        slot.boundaries.append(len(slot.data))
        for _ in range(self.layers):
            slot.number(self.kind)
            if self.transposed:
                slot.number(2, self.v_bytes // 2)
            else:
                slot.number(self.v_bytes, size=8)
            slot.noise(cells * self.v_bytes)


def _dense(tokens: int = 10) -> Slot:
    return Slot().packed(range(tokens)).cache(Stream(range(tokens)), Stream())


def _files() -> dict[str, Slot]:
    """One of each kind of memory."""
    ten = range(10)
    return {
        "plain": Slot().plain(ten).cache(Stream(ten)),
        "dense": _dense(),
        "transposed": Slot().packed(ten).cache(Stream(ten, transposed=True, v_bytes=8)),
        "q8_0": Slot().packed(ten).cache(Stream(ten, kind=Q8_0, k_bytes=68, v_bytes=34)),
        "no values": Slot().packed(ten).cache(Stream(ten, values=False)),
        "streams": Slot().packed(ten).cache(Stream(), Stream(ten), Stream(range(4))),
        "window": Slot().packed(ten).cache(Stream(ten)).cache(Stream(range(6, 10), layers=3)),
        "two dimensions": Slot().packed(ten).cache(Stream(ten, extra=True)),
        "several ids": Slot().packed(ten).cache(Stream(ten, ids=[1, 2] * 5)),
        "recurrent": Slot().packed(ten).recurrent(),
        "no s rows": Slot().packed(ten).cache(Stream(ten)).recurrent(s_bytes=0),
        "hybrid": Slot().packed(ten).cache(Stream(ten)).recurrent(),
        "hybrid window": (
            Slot().packed(ten).cache(Stream(ten)).cache(Stream(range(7, 10))).recurrent()
        ),
        "hybrid index": (
            Slot()
            .packed(ten)
            .cache(Stream(ten, extra=True))
            .recurrent(history=1024)
            .cache(Stream(ten, values=False, extra=True))
        ),
        "media": (
            Slot().packed([1, -1, -1, 4], [(1, b"image of 7 bytes")]).cache(Stream(range(4)))
        ),
    }


KINDS = _files()


# ---- files as they should be -------------------------------------------------------------------


def test_real_slot_files_have_the_geometry_that_was_measured(smollm2: list[Sample]) -> None:
    for sample in smollm2:
        data = sample.components["full"]
        found = of_slot_file(data)
        assert found.status is SlotStatus.PARSED
        assert found.geometry == geometry.given(sample.geometry["full"], len(data))


def test_the_larger_real_files_are_looked_at_where_they_are(smollm2: list[Sample]) -> None:
    if shared_states() is None:
        pytest.skip("only the smallest sample lies in a checkout")
    assert [of_slot_file(s.components["full"]).geometry for s in smollm2].count(None) == 0


def test_a_file_is_read_where_it_is_mapped_and_let_go(
    smollm2: list[Sample], tmp_path: Path
) -> None:
    path = tmp_path / "slot"
    path.write_bytes(smollm2[0].components["full"])
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(mapped)
    assert of_slot_file(view).status is SlotStatus.PARSED
    assert of_slot_file(view[:-1]).status is SlotStatus.NOT_UNDERSTOOD
    view.release()
    mapped.close()  # raises BufferError while a view is held


def test_a_committed_file_of_every_kind_is_still_understood() -> None:
    """Keeps what this reader understood once; `SLOTS` was written by `_files` of the day."""
    expected = json.loads((SLOTS / "kinds.json").read_text())
    data = (SLOTS / "kinds.bin").read_bytes()
    for name, (start, end, packed) in expected.items():
        found = of_slot_file(data[start:end]).geometry
        assert found is not None, name
        assert found.pack().hex() == packed, name


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_memory_is_understood_and_can_be_cut(name: str) -> None:
    data = bytes(KINDS[name].data)
    found = of_slot_file(data)
    assert found.status is SlotStatus.PARSED
    assert found.geometry is not None
    layout = Layout(found.geometry, len(data))
    back = np.zeros(len(data), np.uint8)
    for seq, length in enumerate(layout.lengths):
        block = bytearray(length)
        layout.gather(seq, data, block)
        layout.scatter(seq, block, back)
    assert back.tobytes() == data


def _groups(slot: Slot) -> tuple[Runs, ...]:
    found = slot.parsed()
    assert found.status is SlotStatus.PARSED
    assert found.geometry is not None
    return found.geometry.groups


def test_rows_of_a_dense_model() -> None:
    # pack at 12: -1, 1, n, tokens at 24, media at 64; streams at 68, cells at 72, metadata at 76
    k = 76 + 10 * 12 + 8 + 12
    v = k + 2 * (10 * 8 + 12)
    assert _groups(_dense()) == (
        Runs(24, 4, 10),
        Runs(76, 12, 10),
        Runs(k, 8, 10, count=2, spacing=92),
        Runs(v, 4, 10, count=2, spacing=52),
    )


def test_a_transposed_v_has_a_run_for_each_column() -> None:
    groups = _groups(KINDS["transposed"])
    k = 76 + 10 * 12 + 8 + 12
    v = k + 2 * (10 * 8 + 12)
    assert groups[3:] == (
        Runs(v, 2, 10, count=4, spacing=20),
        Runs(v + 80 + 12, 2, 10, count=4, spacing=20),
    )


def test_each_stream_has_its_own_number_of_rows() -> None:
    assert [(g.rows, g.first_row) for g in _groups(KINDS["streams"])] == (
        [(10, 0)] * 4 + [(4, 0)] * 3
    )


def test_a_sliding_window_holds_the_rows_of_its_positions() -> None:
    groups = _groups(KINDS["window"])
    assert [(g.rows, g.first_row) for g in groups] == [(10, 0)] * 4 + [(4, 6)] * 3


def test_a_window_that_wraps_around_is_taken_in_stretches() -> None:
    ring = [8, 9, 4, 5, 6, 7]
    slot = Slot().packed(range(10)).cache(Stream(range(10))).cache(Stream(ring, layers=1))
    window = _groups(slot)[4:]
    assert [(g.stride, g.rows, g.first_row) for g in window] == [
        (12, 2, 8),
        (8, 2, 8),
        (4, 2, 8),
        (12, 4, 4),
        (8, 4, 4),
        (4, 4, 4),
    ]
    assert window[3].offset - window[0].offset == 2 * 12
    assert window[4].offset - window[1].offset == 2 * 8


@pytest.mark.parametrize(
    "positions",
    [
        [5, 5, 5, 5, 5],
        [0, 2, 4, 6, 8],
        [4, 3, 2, 1, 0],
        [10, 11, 12, 13, 14],
        [(1 << 31) - 1] * 5,
    ],
)
def test_cells_at_other_positions_are_rows_in_their_order(positions: list[int]) -> None:
    slot = Slot().packed(range(10)).cache(Stream(range(10))).cache(Stream(positions, layers=1))
    assert [(g.rows, g.first_row) for g in _groups(slot)[4:]] == [(5, 0)] * 3


@pytest.mark.parametrize("turn", [1, 5460, 5461, 5462, 10922, 10923, 19_999])
def test_a_ring_may_turn_at_any_cell(turn: int) -> None:
    """Cells are looked at in pieces of 5461 of 12 bytes."""
    cells = 20_000
    ring = [*range(cells - turn, cells), *range(cells - turn)]
    slot = Slot().packed(range(cells)).cache(Stream(ring, layers=1))
    assert [(g.rows, g.first_row) for g in _groups(slot)[1:]] == (
        [(turn, cells - turn)] * 3 + [(cells - turn, 0)] * 3
    )


@pytest.mark.parametrize("odd", [0, 5460, 5461, 11_999])
def test_one_cell_of_another_size_keeps_all_in_the_frame(odd: int) -> None:
    ids = [1] * 12_000
    ids[odd] = 2
    slot = Slot().packed(range(12_000)).cache(Stream(range(12_000), ids=ids))
    assert [g.stride for g in _groups(slot)] == [4, 8, 4]


def test_a_cache_with_more_cells_than_tokens_gives_the_number_of_rows() -> None:
    slot = Slot().packed(range(3)).cache(Stream([7, 8, 9, 3, 4], layers=1))
    assert [(g.rows, g.first_row) for g in _groups(slot)] == [(3, 0)] + [(5, 0)] * 3


def test_cells_of_several_sizes_stay_in_the_frame() -> None:
    assert [g.stride for g in _groups(KINDS["several ids"])] == [4, 8, 4]


def test_cells_of_several_sequences_of_one_size_are_rows() -> None:
    slot = Slot().packed(range(6)).cache(Stream(range(6), ids=[3] * 6))
    assert [g.stride for g in _groups(slot)] == [4, 20, 8, 4]


def test_cells_with_two_dimensions_are_rows_too() -> None:
    assert [g.stride for g in _groups(KINDS["two dimensions"])] == [4, 24, 8, 4]


def test_nothing_of_a_recurrent_part_is_a_row() -> None:
    slot = KINDS["hybrid"]
    ends = [g.offset + (g.count - 1) * g.spacing + g.rows * g.stride for g in _groups(slot)]
    assert max(ends) == slot.boundaries[-2]
    assert [g.stride for g in _groups(KINDS["recurrent"])] == [4]


def test_a_real_recurrent_part_is_understood(hybrid: list[Sample]) -> None:
    """A sample's recurrent component is the bytes of that part behind four others."""
    for sample in hybrid:
        part = sample.components["recurrent"][4:]
        slot = Slot().packed(sample.tokens).cache(Stream(range(len(sample.tokens))))
        slot.data += part
        assert len(_groups(slot)) == 4
        slot.data = slot.data[:-1]
        assert slot.parsed().status is SlotStatus.NOT_UNDERSTOOD


def test_media_behind_the_tokens_stay_in_the_frame() -> None:
    groups = _groups(KINDS["media"])
    assert groups[0] == Runs(24, 4, 4)
    assert groups[1].offset == 24 + 16 + 4 + 4 + 4 + 16 + 4 + 4


@pytest.mark.parametrize("version", [0, 2, 1 << 31])
def test_a_pack_of_another_version_stays_in_the_frame(version: int) -> None:
    slot = Slot().packed(range(10), version=version).cache(Stream(range(10)))
    assert [g.stride for g in _groups(slot)] == [12, 8, 4]


@pytest.mark.parametrize(
    ("kind", "row_bytes", "element"),
    [(F32, 8, "f32"), (F16, 8, "f16"), (BF16, 8, "bf16"), (Q8_0, 34, "q8_0"), (2, 18, "opaque")],
)
def test_the_type_of_the_rows_names_the_element(kind: int, row_bytes: int, element: str) -> None:
    slot = Slot().packed([1]).cache(Stream([0], kind=kind, k_bytes=row_bytes, v_bytes=row_bytes))
    found = slot.parsed().geometry
    assert found is not None
    assert found.element == element


def test_rows_of_different_types_are_opaque() -> None:
    slot = Slot().packed([1]).cache(Stream([0])).cache(Stream([0], kind=F32))
    found = slot.parsed().geometry
    assert found is not None
    assert found.element == "opaque"


# ---- and as they should not --------------------------------------------------------------------


@pytest.mark.parametrize("head", [b"", b"q", b"qsg", b"ggsq\3\0\0\0", b"nsgg\3\0\0\0", b"\0" * 64])
def test_other_bytes_are_no_slot_file(head: bytes) -> None:
    assert not is_slot_file(head)
    assert of_slot_file(head) == Parsed(None, SlotStatus.NOT_A_SLOT_FILE)


@pytest.mark.parametrize("version", [0, 1, 2, 4, 1 << 31, (1 << 32) - 1])
def test_an_unknown_version_says_so(version: int) -> None:
    slot = Slot().plain([1, 2], version).cache(Stream([0, 1]))
    assert is_slot_file(slot.data[:HEAD_BYTES])
    assert slot.parsed() == Parsed(None, SlotStatus.UNKNOWN_VERSION)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_cut_anywhere_is_not_understood(name: str) -> None:
    """But where what is left is a whole file of another model: between caches, before the last V."""
    slot = KINDS[name]
    for size in range(4, len(slot.data)):
        found = of_slot_file(bytes(slot.data[:size]))
        if size in slot.boundaries:
            continue
        assert found == Parsed(None, SlotStatus.NOT_UNDERSTOOD), size


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("filler", [b"\0", b"\1", b"\xff", b"x"])
def test_a_file_with_something_behind_it_is_not_understood(name: str, filler: bytes) -> None:
    data = bytes(KINDS[name].data)
    for size in (*range(1, 33), 64, 4096):
        assert of_slot_file(data + filler * size).status is SlotStatus.NOT_UNDERSTOOD, size


@pytest.mark.parametrize("name", KINDS)
def test_absurd_numbers_never_do_harm(name: str) -> None:
    slot = KINDS[name]
    whole = slot.parsed()
    for at, size in slot.fields[2:]:
        for value in ABSURD:
            data = bytearray(slot.data)
            data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
            found = _checked(bytes(data))
            if value > 1 and data != slot.data:
                # numbers that only the frame holds may be anything: where media begin, positions
                assert found.geometry is None or found == whole or _same_rows(found, whole), at


def _same_rows(one: Parsed, other: Parsed) -> bool:
    """Alike but for the tokens: a damaged pack is a plain list, or stays in the frame."""
    assert one.geometry is not None
    assert other.geometry is not None
    return _without_tokens(one.geometry) == _without_tokens(other.geometry)


def _without_tokens(found: geometry.Geometry) -> list[Runs]:
    return [group for group in found.groups if group.offset > 24]


def _checked(data: bytes) -> Parsed:
    """A reading that is quick, and whose geometry fits whatever the bytes were."""
    begun = time.thread_time()
    found = of_slot_file(data)
    assert time.thread_time() - begun < 5
    assert (found.status is SlotStatus.PARSED) == (found.geometry is not None)
    if found.geometry is not None:
        layout = Layout(found.geometry, len(data))
        assert sum(layout.lengths) == len(data)
    return found


_NUMBERS = st.sampled_from([*ABSURD, 2, 3, 8, 255, 256, 257, 1 << 16, (1 << 31), (1 << 62)])


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_damaged_files_never_do_harm(name: str, data: st.DataObject) -> None:
    damaged = bytearray(KINDS[name].data)
    for _ in range(data.draw(st.integers(1, 4))):
        size = data.draw(st.sampled_from([1, 4, 8]))
        at = data.draw(st.integers(8, len(damaged) - 1))
        value = data.draw(_NUMBERS | st.integers(0, (1 << 64) - 1))
        damaged[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
        if data.draw(st.booleans()):
            del damaged[data.draw(st.integers(8, len(damaged))) :]
            break
    _checked(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(st.lists(_NUMBERS | st.integers(0, 40), max_size=200), st.binary(max_size=300))
def test_any_numbers_behind_the_head_never_do_harm(words: list[int], rest: bytes) -> None:
    numbers = b"".join((word % (1 << 32)).to_bytes(4, "little") for word in words)
    _checked(b"qsgg\3\0\0\0" + numbers + rest)


@settings(max_examples=150, deadline=None)
@given(
    caches=st.lists(
        st.lists(
            st.builds(
                Stream,
                positions=st.lists(st.integers(0, 40), max_size=12),
                layers=st.integers(0, 4),
                kind=st.sampled_from([F32, F16, 2, 41]),
                k_bytes=st.sampled_from([4, 8, 40]),
                v_bytes=st.sampled_from([4, 8, 44]),
                extra=st.booleans(),
            ),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=3,
    ),
    tokens=st.integers(1, 20),
    recurrent=st.booleans(),
)
def test_what_can_be_written_is_understood(
    caches: list[list[Stream]], tokens: int, recurrent: bool
) -> None:
    slot = Slot().packed(range(tokens))
    for streams in caches:
        slot.cache(*streams)
    if recurrent:
        slot.recurrent()
    found = _checked(bytes(slot.data))
    assert found.geometry is not None
    held = sum(
        len(s.positions) * ((24 if s.extra else 12) + s.layers * (s.k_bytes + s.v_bytes))
        for streams in caches
        for s in streams
    )
    runs = found.geometry.groups
    assert sum(g.count * g.rows * g.stride for g in runs) == held + 4 * tokens


def test_readings_that_multiply_are_given_up() -> None:
    """Streams that can be read in two ways each, again and again, cost no more than the bound."""
    one = struct.pack("<4I", 1, 0, 1, 0) + struct.pack("<2IIQ4x", 0, 1, F16, 4)
    for body in (one * 20000, struct.pack("<I", 1) * 2_000_000, bytes(8_000_000)):
        data = b"qsgg\3\0\0\0" + struct.pack("<I", 0) + struct.pack("<I", 256) + body
        assert _checked(data).geometry is None


def test_many_cells_are_read_quickly() -> None:
    cells = 200_000
    slot = Slot().packed(range(cells)).cache(Stream(range(cells), layers=1))
    begun = time.thread_time()
    found = of_slot_file(bytes(slot.data))
    assert time.thread_time() - begun < 5
    assert found.geometry is not None
    assert found.geometry.rows == cells


@pytest.mark.parametrize(("cells", "ids"), [(80_000, 256), (1_000_000, 1)])
def test_what_is_allocated_does_not_grow_with_the_cells(cells: int, ids: int) -> None:
    """A file may be gigabytes of cells, and is looked at outside the memory budget."""
    meta = np.zeros((cells, 2 + ids), "<u4")
    meta[:, 0] = np.arange(cells)
    meta[:, 1] = ids
    slot = Slot().packed(range(3)).number(1, cells)
    slot.data += meta.tobytes()
    slot.number(0, 1, F32).number(4, size=8).noise(4 * cells)
    slot.number(F32).number(4, size=8).noise(4 * cells)
    data = bytes(slot.data)
    tracemalloc.start()
    found = of_slot_file(data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.status is SlotStatus.PARSED
    assert found.geometry is not None
    assert found.geometry.rows == cells
    assert peak_bytes < 2 << 20
