"""Two lives of the service on a damaged folder, and whether every answer was one that may be given.

May be given: the exact bytes that were recorded for the prefix asked for, or for a shorter one of it in the
same namespace; a miss; 410, or an answer broken off before its announced length; 503 and 507 with a code.
May never: other bytes, another namespace's or another prompt's state, any other 5xx, silence. The service may
end by a signal (LMDB trusts its pages) or refuse to start with a sentence; then the next start must refuse or
serve, and whoever reads the folder beside it (`statehold salvage`) must live.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pysqlite3 import dbapi2

from app.settings_file import UnusableSettings
from storage.errors import StoreUnusable
from tests.corruption.inside import Answer, Death, Refused, Service, forked
from tests.corruption.places import Damage, apply
from tests.corruption.world import FRESH, World, fresh
from tests.support.client import prefix

_LIMIT_S = 40
_LIVES = 3
_WAYS = ("statehold restore", "statehold salvage")


@dataclass
class Verdict:
    """What came of one damage. `wrong`: sentences, each of which is a fault of ours."""

    outcome: str
    wrong: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)


def tried(world: World, base: Path, damages: list[Damage], into: Path, seed: int) -> Verdict:
    """Copy, damage, serve, serve again."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(base, into)
    for damage in damages:
        apply(damage, into, world.older)
    verdict = Verdict("exact")
    outcomes = []
    for life in range(_LIVES):
        found = forked(partial(_life, world, into, seed, life), _LIMIT_S)
        if isinstance(found, Death):
            if found.signal is None:
                verdict.wrong.append(f"hangs in life {life}: {found.said[-3000:]}")
                break
            outcomes.append("died")
            if life == _LIVES - 1:
                verdict.wrong.append(
                    f"dies again and again (signal {found.signal}): {found.said[-1500:]}"
                )
            continue
        if isinstance(found, str):
            verdict.wrong.append(f"life {life}: {found[-4000:]}")
            break
        outcome, wrong, answers = found
        outcomes.append(outcome)
        verdict.wrong += [f"life {life}: {sentence}" for sentence in wrong]
        verdict.answers += answers
        if outcome == "refused" or (life and outcome != "died"):
            break
    for outcome in ("died", "refused", "damage told", "missed"):
        if outcome in outcomes:
            verdict.outcome = outcome
            break
    return verdict


def _life(world: World, folder: Path, seed: int, life: int) -> tuple[str, list[str], Counter[str]]:
    chance = random.Random(seed * 10 + life)
    asked = _Asked(world, Service(folder))
    try:
        asked.service.start()
    except (StoreUnusable, UnusableSettings) as error:
        wrong = [] if all(way in str(error) for way in _WAYS) else [f"no way back named: {error}"]
        return "refused", wrong, Counter()
    asked.everything(chance, life, _tree(folder))
    asked.service.stop()
    return asked.outcome, asked.wrong, asked.answers


class _Asked:
    """Questions and what is wrong about their answers."""

    def __init__(self, world: World, service: Service) -> None:
        self.service = service
        self.wrong: list[str] = []
        self.answers: Counter[str] = Counter()
        self._world = world
        self._missed = False

    @property
    def outcome(self) -> str:
        if any(name.endswith("store_damaged") for name in self.answers):
            return "damage told"
        return "missed" if self._missed else "exact"

    def everything(
        self, chance: random.Random, life: int, tree: list[tuple[str, tuple[int, ...]]]
    ) -> None:
        for known in self._world.questions(chance):
            self.restored(known.namespace, known.tokens)
        strange = [
            (namespace, tokens)
            for namespace, tokens in tree
            if not any(
                known.tokens == tokens and known.namespace == namespace
                for known in self._world.known
            )
        ]
        for namespace, tokens in strange[:10]:
            self.restored(namespace, tokens)
        self.restored("chat", (1, 2, 3, 5, 6, 7, 8))
        for namespace, wanted in (("chat", tuple(range(1, 9))), ("tiny", (7, 1, 15, 3))):
            found = self._ask("POST", "/v1/lookup", self._acquiring(namespace, wanted))
            if found.status == 200 and (lease := json.loads(found.body).get("lease")):
                path = f"/v1/leases/{lease['lease_id']}/release"
                self._ask("POST", path, {"outcome": "restored"})
        self._recorded(life)
        if life:
            return
        for path in ("states?limit=5", "stats", "tree?namespace=chat", "audit", "jobs"):
            self._ask("GET", f"/admin/v1/{path}")
        self._ask("GET", "/readyz")
        self._ask("GET", "/metrics")
        self._ask("POST", "/v1/explain", prefix("chat", range(1, 12)))
        page = self._ask("GET", "/admin/v1/states?limit=40")
        if page.status == 200:
            states = json.loads(page.body)["states"]
            some = [state["state_id"] for state in chance.sample(states, min(3, len(states)))]
            self._ask("POST", "/admin/v1/evictions", {"state_ids": some})
        self._ask("POST", "/admin/v1/evictions", {"namespace": "large"})

    def restored(self, namespace: str, tokens: tuple[int, ...] | list[int] | range) -> None:
        answer = self.service.restore(namespace, tokens)
        self._note(answer)
        if answer.status == 204:
            self._missed = True
            return
        if answer.status != 200:
            return
        announced = int(answer.headers["content-length"])
        if not answer.whole or len(answer.body) != announced:
            self.answers["broken off"] += 1
            self._missed = True
            if len(answer.body) >= announced:
                self.wrong.append(f"broken off only after the whole length: {namespace}")
            return
        if not self._world.may_answer(namespace, tuple(tokens), answer.body):
            self.wrong.append(f"WRONG BYTES: {namespace} {list(tokens)[:9]} {answer.headers}")

    def _acquiring(self, namespace: str, tokens: tuple[int, ...]) -> dict[str, object]:
        return {"candidates": [prefix(namespace, list(tokens))], "acquire": True}

    def _recorded(self, life: int) -> None:
        data = fresh(life)
        try:
            self.service.record(FRESH, (life, 1), "full_state", {"full": data})
        except Refused as refused:
            self._note(refused.answer)
            if refused.answer.status not in (409, 503, 507):
                self.wrong.append(f"recording: {refused}")
            return
        answer = self.service.restore(FRESH, (life, 1))
        if answer.status == 200 and answer.whole and answer.body != data:
            self.wrong.append("WRONG BYTES of what was recorded just now")
        # A broken list of free pages may have made room for it where something lay, which is noticed.
        noticed = "quarantined" in answer.headers.get("statehold-miss", "")
        if answer.status not in (200, 503) and not noticed:
            self.wrong.append(f"acknowledged and gone: {answer.status} {answer.headers}")

    def _ask(self, method: str, path: str, body: object = None) -> Answer:
        answer = self.service.ask(method, path, body)
        self._note(answer, f"{method} {path}")
        return answer

    def _note(self, answer: Answer, what: str = "POST /v1/restore") -> None:
        if answer.status >= 400:
            self.answers[f"{answer.status} {answer.code}"] += 1
        if answer.status >= 500 and answer.status not in (503, 507):
            size = os.fstat(2).st_size
            said = os.pread(2, 3000, max(0, size - 3000)).decode(errors="replace")
            self.wrong.append(f"{what}: {answer.status} {answer.code} {said}")


def _tree(folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Every prefix that the damaged tree spells, as far as it can be read: foreign ones, it may be."""
    found = []
    with suppress(dbapi2.Error, ValueError, TypeError, OverflowError):
        connection = dbapi2.connect(f"file:{folder / 'metadata.db'}?mode=ro", uri=True)
        names = dict(connection.execute("SELECT id, name FROM namespace"))
        nodes = {
            row[0]: row[1:]
            for row in connection.execute(
                "SELECT id, namespace_id, parent_id, edge FROM radix_node"
            )
        }
        connection.close()
        for node, (namespace, _, _) in nodes.items():
            edges: list[bytes] = []
            at = node
            while at in nodes and len(edges) < 50:
                edges.append(nodes[at][2])
                at = nodes[at][1]
            raw = b"".join(reversed(edges))
            tokens = memoryview(raw[: len(raw) // 4 * 4]).cast("i").tolist()
            if tokens and namespace in names and min(tokens) >= 0:
                found.append((str(names[namespace]), tuple(tokens)))
    return found
