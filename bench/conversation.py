"""A conversation of ten turns, recorded whole after each: what does every turn add on disk?

Each state is a row-wise prefix of the next. Whoever stores states whole pays for the conversation so far
with every turn; what a turn needs is the bytes of its own rows.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.payloads import Conversation, Shape
from bench.peers import Subject, check, started

FIRST_TOKENS = 2_000
TURN_TOKENS = 300
TURNS = 10


def run(subjects: Sequence[Subject], shape: Shape) -> dict[str, Any]:
    """What each subject that stores took for the states, one subject after the other.

    Sizes are what the disk has allocated. Whole states would take `whole_bytes` together, a turn
    brings `turn_row_bytes` of new rows.
    """
    counts = [FIRST_TOKENS + TURN_TOKENS * turn for turn in range(TURNS + 1)]
    conversation = Conversation(shape, counts[-1], seed=1)
    # A block stream has heads besides.
    target = memoryview(bytearray(counts[-1] * shape.token_bytes + (1 << 20)))
    return {
        "tokens": counts,
        "token_bytes": shape.token_bytes,
        "turn_row_bytes": TURN_TOKENS * shape.token_bytes,
        "whole_bytes": sum(counts) * shape.token_bytes,
        "subjects": [
            _recorded(subject, conversation, counts, target)
            for subject in subjects
            if subject.stores
        ],
    }


def _recorded(
    subject: Subject, conversation: Conversation, counts: Sequence[int], target: memoryview
) -> dict[str, Any]:
    sizes: list[int] = []
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as scratch, started(subject, Path(scratch), len(target)):
        empty = subject.stored_bytes()
        for count in counts:
            state = conversation.state(count)
            begun = time.perf_counter()
            subject.put(str(count), state)
            seconds.append(time.perf_counter() - begun)
            sizes.append(subject.stored_bytes() - empty)
        check(subject, subject.plain(subject.get(str(counts[-1]), target)), state)
        facts = subject.facts()
    return {
        "name": subject.name,
        "stored_bytes": sizes[-1],
        "turn_stored_bytes": [after - before for before, after in itertools.pairwise(sizes)],
        "put_seconds": seconds,
        **facts,
    }
