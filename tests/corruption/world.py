"""A small data folder with one of everything, and what each question about it may be answered with.

It is written by the service itself, in a process that ends without closing anything, so that the folder
has a write-ahead log of some length beside a database that is older.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import load_sample
from tests.corruption.inside import Service, forked
from tests.support.client import prefix

_STATES = Path(__file__).parents[1] / "data" / "states"
# What is recorded after the damage goes in here.
FRESH = "fresh"
_TINY = 48
_LARGE = 64


def noise(name: object, size: int) -> bytes:
    return hashlib.shake_128(str(name).encode()).digest(size)


def fresh(life: int) -> bytes:
    """What is recorded into `FRESH` as tokens [life, 1]."""
    return noise(("new", life), 70_000)


@dataclass(frozen=True)
class Known:
    """Something that was recorded. `tokens` are ids; `payload` its components, one behind another."""

    namespace: str
    tokens: tuple[int, ...]
    payload: bytes


class World:
    """What was recorded, and three folders: of a clean stop, of a killed server, and an older one."""

    def __init__(self, folder: Path) -> None:
        self.clean, self.killed, self.older = (
            folder / name for name in ("clean", "killed", "older")
        )
        self.known: list[Known] = []
        self.chosen: list[Known] = []
        plan = _Plan()
        self.known = plan.known
        assert forked(lambda: plan.live(self.killed, self.older), 120) == "well"
        shutil.copytree(self.killed, self.clean)
        assert forked(lambda: _stopped(self.clean), 60) == "well"
        for path in (self.clean, self.killed, self.older):
            for lock in path.glob("instances/*"):
                lock.unlink()
        self._by_namespace: dict[str, list[Known]] = {}
        for known in self.known:
            self._by_namespace.setdefault(known.namespace, []).append(known)

    def questions(self, chance: random.Random) -> list[Known]:
        """What is asked after a damage: everything of the small namespaces and a few of the large."""
        few = [k for k in self.known if k.namespace not in ("tiny", "large")]
        for name, count in (("tiny", 12), ("large", 5)):
            few += chance.sample(self._by_namespace[name], count)
        return few

    def may_answer(self, namespace: str, tokens: tuple[int, ...], payload: bytes) -> bool:
        """Whether these are the exact bytes recorded for a prefix of these tokens in that namespace."""
        if namespace == FRESH:
            return payload == fresh(tokens[0])
        return any(
            known.payload == payload and tokens[: len(known.tokens)] == known.tokens
            for known in self._by_namespace.get(namespace, ())
        )


class _Plan:
    """The life of the folder."""

    def __init__(self) -> None:
        self.samples = [load_sample(_STATES, f"hybrid.{count}") for count in (128, 192)]
        self.known: list[Known] = []
        self.full: list[tuple[str, tuple[int, ...], bytes, bool]] = []
        for namespace in ("chat", "other"):
            for length in (4, 8, 9):
                tokens = tuple(range(1, length + 1))
                self._add(namespace, tokens, noise((namespace, length), 90_000 * length // 4))
        self._add("chat", (1, 2, 3, 4, 70, 71), noise("branch", 3_000))
        self._add("chat", tuple(range(1, 9)), noise("replaced", 120_000), replace=True)
        self._add("chat", (50, 51), noise(("chat", 4), 90_000))  # shares its blocks
        for number in range(_TINY):
            tokens = (7, number // 10, number, 3)
            self._add("tiny", tokens, noise(("tiny", number), 40 + number * 7))
        for number in range(_LARGE):
            self._add("large", (number, 5), noise(("large", number), 66_000))
        for sample in self.samples:
            self.known.append(Known("hybrid", tuple(sample.tokens), sample.payload))

    def _add(
        self, namespace: str, tokens: tuple[int, ...], data: bytes, *, replace: bool = False
    ) -> None:
        self.known.append(Known(namespace, tokens, data))
        self.full.append((namespace, tokens, data, replace))

    def live(self, killed: Path, older: Path) -> str:
        service = Service(killed)
        service.start()
        identity = {"model_id": "m", "weights_digest": "w"}
        named = service.ask("POST", "/v1/namespaces", {"namespace": "chat", "identity": identity})
        assert named.status in (200, 201), named
        third = len(self.full) // 3
        for sample in self.samples:
            service.record(
                "hybrid",
                sample.tokens,
                sample.kind,
                sample.components,
                kv_descriptor=sample.kv_descriptor,
            )
        for namespace, tokens, data, replace in self.full[:third]:
            service.record(namespace, tokens, "full_state", {"full": data}, replace=replace)
        service.stop()
        shutil.copytree(killed, older)
        service = Service(killed)
        service.start()
        gone = [
            service.record("gone", (number,), "full_state", {"full": noise(number, 70_000)})
            for number in range(12)
        ]
        states = [
            service.record(namespace, tokens, "full_state", {"full": data}, replace=replace)
            for namespace, tokens, data, replace in self.full[third:]
        ]
        service.ask("POST", "/admin/v1/evictions", {"state_ids": gone})
        for state in (states[-1], states[0]):
            service.ask("POST", f"/admin/v1/states/{state}/quarantine", {"reason": "test"})
        service.ask("POST", "/v1/lookup", {"candidates": [prefix("chat", (1, 2, 3, 4))]})
        # As kill -9 would: nothing is closed, nothing is flushed.
        os._exit(0)


def _stopped(folder: Path) -> str:
    service = Service(folder)
    service.start()
    service.stop()
    return "well"
