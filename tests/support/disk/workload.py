"""Records, shares, replaces, evicts and quarantines, and remembers where in the log each began and ended."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from tests.support.client import Client
from tests.support.disk.shim import Shim


@dataclass
class Event:
    """A state is to appear (`appears`) or to go; positions are of the log. `ended` None: no answer."""

    began: int
    appears: bool
    ended: int | None = None


@dataclass
class History:
    """What the client did with one state: whose digest, and the events in order."""

    digests: dict[str, bytes]
    events: list[Event] = field(default_factory=list)

    def expected(self, position: int) -> bool | None:
        """Whether a crash at this position must leave it in service; None: either."""
        held: bool | None = False
        for event in self.events:
            if event.began >= position:
                break
            done = event.ended is not None and event.ended <= position
            held = event.appears if done else None
        return held


class Workload:
    """One client's life with a server behind a shim."""

    def __init__(self, client: Client, shim: Shim, seed: int) -> None:
        self.states: dict[str, History] = {}
        self._client = client
        self._shim = shim
        self._seed = seed

    def run(self, rounds: int) -> None:
        """A number of rounds of one of everything."""
        for number in range(rounds):
            self._round(number)

    def _round(self, number: int) -> None:
        own = self._noise(number, 90_000)
        shared = self._noise("shared", 200_000)
        first = self._record([number, 1], own)
        second = self._record([number, 2], shared + own)  # begins as those of other rounds do
        rows = self._noise(number, 96 * 2048)
        third = self._record([number, 3], rows, geometry=_geometry(rows))
        longer = rows + self._noise((number, "more"), 32 * 2048)
        self._record([number, 3, 4], longer, geometry=_geometry(longer))
        self._abort([number, 5])
        self._remove(first)
        self._record([number, 1], own)  # the blocks of what has just been reclaimed
        self._replace([number, 2], second, self._noise((number, "new"), 150_000))
        self._quarantine_and_release(third)
        if number % 2:
            self._remove(third)

    def _record(self, tokens: list[int], data: bytes, **more: Any) -> str:
        began = self._shim.position()
        client = self._client
        admitted = client.admit("ns", tokens, "full_state", {"full": len(data)}, **more)
        assert admitted.status_code == 201, admitted.text
        state_id: str = admitted.json()["state_id"]
        event = Event(began, appears=True)
        self.states[state_id] = History({"full": blake3(data).digest()}, [event])
        assert client.upload(state_id, "full", data).status_code == 200
        committed = client.commit(state_id)
        assert committed.status_code == 200, committed.text
        event.ended = self._shim.position()
        return state_id

    def _replace(self, tokens: list[int], old: str, data: bytes) -> None:
        going = Event(self._shim.position(), appears=False)
        self.states[old].events.append(going)
        self._record(tokens, data, replace=True)
        going.ended = self._shim.position()

    def _abort(self, tokens: list[int]) -> None:
        admitted = self._client.admit("ns", tokens, "full_state", {"full": 150_000})
        state_id: str = admitted.json()["state_id"]
        self.states[state_id] = History({})
        self._client.upload(state_id, "full", self._noise(tokens, 150_000))
        self._client.delete(f"/v1/records/{state_id}")

    def _remove(self, state_id: str) -> None:
        event = Event(self._shim.position(), appears=False)
        self.states[state_id].events.append(event)
        gone = self._client.post("/admin/v1/evictions", json={"state_ids": [state_id]})
        assert gone.json()["evicted"] == [state_id]
        event.ended = self._shim.position()

    def _quarantine_and_release(self, state_id: str) -> None:
        for verb, body in (("quarantine", {"reason": "test"}), ("release", None)):
            event = Event(self._shim.position(), appears=verb == "release")
            self.states[state_id].events.append(event)
            done = self._client.post(f"/admin/v1/states/{state_id}/{verb}", json=body)
            assert done.status_code == 200, done.text
            event.ended = self._shim.position()

    def _noise(self, name: object, size: int) -> bytes:
        return hashlib.shake_128(f"{self._seed} {name}".encode()).digest(size)


def _geometry(data: bytes) -> dict[str, Any]:
    return {"full": {"rows": len(data) // 2048, "runs": [{"offset": 0, "stride": 2048}]}}
