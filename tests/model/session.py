"""A real server beside the model of it, and how the two are held against each other.

Every action of `recording`, `reading` and `operating` does one thing to both and compares the answers;
`agree` then compares everything that can be seen, from outside and inside.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from tests.model.inside import Folder, Inside, Row
from tests.model.payloads import Tokens
from tests.model.spec import Found, Held, Place, World, common
from tests.support.client import Client, code, prefix
from tests.support.server import Server

PLACES: Final[tuple[Place, ...]] = (("", "chat"), ("", "code"), ("acme", "chat"))
TENANTS: Final = ("", "acme")
# A lease that is only ended by what the test does to it.
LONG_S: Final = 3000
_SCOPES: Final = ["lookup", "record", "admin:read", "admin:write", "forensics"]
_PATIENCE_S: Final = 20.0
# The service's whole check opens both stores anew; what it asks of the metadata is asked after every step.
_FULL_CHECK_EVERY: Final = 8
_MOST_PEEKS: Final = 12
# Eviction by need goes back to the beginning after ten seconds.
_REMEMBERED_S: Final = 15.0

T = TypeVar("T")
# Where room may be made: in a namespace, or in the whole store.
Scope = Place | str


class Session:
    """One data folder, its server, the callers of it, and the world as it should be.

    Attributes:
        steps: how many times the two were compared.
        thorough: whether every comparison restores every live state.
        budget_is_tight: whether the whole store may have to make room for bytes.
    """

    def __init__(
        self,
        data: Path,
        *,
        max_entries: int = 1000,
        tight: bool = False,
        thorough: bool = False,
        server: Callable[..., Server] = Server,
    ) -> None:
        self.world = World(max_entries)
        self.budget_is_tight = tight
        self.thorough = thorough
        self.steps = 0
        self._evictable: tuple[Scope, ...] = ()
        self._by_need = True
        self._passed_over: dict[str, float] = {}
        self.server = server(
            data,
            touch_flush_s=0.2,
            record_ttl_s=LONG_S,
            max_entries=max_entries,
            budget_bytes="1MiB" if tight else "1GiB",
            log_level="warning",
        )
        self.budget_bytes = (1 if tight else 1024) << 20
        self._secrets: dict[str | None, str] = {}
        self._clients: dict[str | None, Client] = {}
        self.server.start()
        self.folder = Folder(data)
        self._make_tokens()

    @property
    def data(self) -> Path:
        return self.server.data

    @property
    def operator(self) -> Client:
        """Who runs the whole store."""
        return self._client(None)

    def client(self, place: Place) -> Client:
        """A caller that is bound to the place's tenant."""
        return self._client(place[0])

    def caller(self, who: str | None) -> Client:
        """A caller that is bound to a tenant; None: to none."""
        return self._client(who)

    def stranger(self, place: Place) -> Client:
        """A caller of another tenant."""
        return self._client(next(tenant for tenant in TENANTS if tenant != place[0]))

    def _client(self, who: str | None) -> Client:
        if who not in self._clients:
            client = Client(self.server.url)
            client.headers["Authorization"] = f"Bearer {self._secrets[who]}"
            self._clients[who] = client
        return self._clients[who]

    def _make_tokens(self) -> None:
        with Client(self.server.url) as client:
            for who in (None, *TENANTS):
                if self._secrets:
                    client.headers["Authorization"] = f"Bearer {self._secrets[None]}"
                asked = {"label": "test", "scopes": _SCOPES, "tenant": who}
                answer = client.post("/admin/v1/tokens", json=asked)
                assert answer.status_code == 201, answer.text
                self._secrets[who] = answer.json()["secret"]

    # ---- the server's life -------------------------------------------------------------------

    def end(self, *, killed: bool) -> None:
        """Stop the server; the folder at rest is compared with the world."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if killed:
            self.server.kill()
        else:
            self.server.stop()
        self.settle()
        self._agree_inside()
        if not killed:
            self.nothing_is_left_over()
        assert self._findings(allow_unowned=True) == self._expected_findings()
        self.world.stop(killed=killed)

    def begin(self) -> None:
        """Start it again on the same folder."""
        self.server.start()

    def close(self) -> None:
        """The end of a test that may have failed."""
        for client in self._clients.values():
            client.close()
        self.server.kill()
        self.folder.close()

    # ---- room --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def room(self, *scopes: Scope, by_need: bool = True) -> Iterator[None]:
        """What is done within may have to make room, in these scopes.

        Args:
            by_need: looks on behind where it last found something, for some seconds.
        """
        self._evictable, self._by_need = scopes, by_need
        try:
            yield
        finally:
            self._evictable = ()

    def byte_scopes(self, place: Place) -> tuple[Scope, ...]:
        """Where recording into a place may have to make room for bytes."""
        rules = self.world.rules.get(place)
        mine = (place,) if rules is not None and rules.max_stored_bytes is not None else ()
        return (*mine, *(("store",) if self.budget_is_tight else ()))

    def within(self, scope: Scope, state: Held) -> bool:
        return scope in ("store", state.place, ("tenant", state.place[0]))

    def settle(self, replaced: Held | None = None) -> None:
        """Find out which states went by themselves, and whether they were allowed to.

        Args:
            replaced: one that may have gone because its successor went live.
        """
        inside = self.folder.look()
        world = self.world
        went = [
            s for s in world.of_status("live", "quarantined") if s.state_id not in inside.states
        ]
        kept = [s for s in world.of_status("live", "quarantined") if s.state_id in inside.states]
        for state in went:
            # Its successor takes over the pin of one that is replaced.
            pinned = state.pinned and state is not replaced
            assert not (pinned or world.leased(state)), "a leased or pinned state went"
            if state.may_go or state is replaced:
                continue
            assert any(
                self.within(scope, state) and self._is_next(scope, state, kept)
                for scope in self._evictable
            ), f"a {state.status} state of {state.place} went for no reason"
        for state in went:
            if state is not replaced:
                world.drop(state, tombstone=True)

    def _is_next(self, scope: Scope, gone: Held, kept: Sequence[Held]) -> bool:
        """Whether nothing that was kept should have gone before it."""
        others = [
            s
            for s in kept
            if self.within(scope, s) and s.status == "live" and not self.world.kept(s)
            if not self._by_need or not self._was_passed_over(s)
        ]
        if gone.status == "quarantined":
            return not others
        return not any(s.used[1] < gone.used[0] for s in others)

    def _was_passed_over(self, state: Held) -> bool:
        """Whether eviction by need may still look behind it, because it could not go before."""
        at = self._passed_over.get(state.state_id)
        return at is not None and time.monotonic() - at < _REMEMBERED_S

    def _note_what_is_passed_over(self) -> None:
        for state in self.world.states.values():
            if state.status != "live" or self.world.kept(state):
                self._passed_over[state.state_id] = time.monotonic()

    def refused_for_want_of_room(self) -> None:
        """`at_capacity` is right only where nothing is left that might go."""
        self.settle()
        held = self.world.of_status("live", "quarantined")
        assert any(self._is_full(scope, held) for scope in self._evictable), (
            "refused for want of room that could have been made"
        )

    def _is_full(self, scope: Scope, held: Sequence[Held]) -> bool:
        """Whether all that is in there must stay, or as many entries as there may be."""
        inside = [s for s in held if self.within(scope, s)]
        staying = [s for s in inside if self.world.kept(s)]
        most = self.world.max_entries_of(scope)
        entries = sum(s.status == "live" for s in staying)
        return len(staying) == len(inside) or (most is not None and entries >= most)

    # ---- comparison --------------------------------------------------------------------------

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def during(self, run: Callable[[], T]) -> tuple[T, tuple[int, int]]:
        """The result, and the wall clock around it."""
        before = self.now()
        result = run()
        return result, (before, math.ceil(time.time_ns() / 1_000_000))

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for what follows by itself."""
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(0.005)

    def agree(self) -> None:
        """Everything that can be seen is as the world says."""
        self.steps += 1
        self.settle()
        self._note_what_is_passed_over()
        self._agree_inside()
        if self.steps % _FULL_CHECK_EVERY == 0:
            assert self._findings(allow_unowned=True) == self._expected_findings()
        else:
            assert self.folder.findings() == []
        self._agree_listing()
        self._agree_figures()
        for place in PLACES:
            for tokens in self.known(place)[:_MOST_PEEKS]:
                self.peek(place, tokens)
        if self.thorough:
            from tests.model.reading import restore

            for state in self.world.of_status("live"):
                if state.status == "live" and state.attached:
                    restore(self, state.place, state.tokens, (state.kind,), truncate=False)

    def sending(self) -> int:
        """Components that are being uploaded at this moment."""
        return self.folder.look().sending

    def lease_has_ended(self, lease_id: str) -> bool:
        """Whether a lease is not held any more."""
        return not self.folder.look().leases[lease_id].open

    def no_response_is_under_way(self) -> bool:
        """Whether every lease that is held is one of ours."""
        leases = self.folder.look().leases
        return all(id_ in self.world.leases for id_, row in leases.items() if row.open)

    def rows(self) -> dict[str, Row]:
        """The states that the folder has."""
        return self.folder.look().states

    def owned_bytes(self) -> int:
        """Stored bytes of what somebody owns, and of all states' metadata."""
        return self.folder.owned_bytes()

    def stored_bytes(self, place: Place | None) -> int:
        """What the service counts for a namespace, or for the store; its own check proves the figure."""
        if place is None:
            return int(self.operator.stats()["stored_bytes"])
        found = self.client(place).get("/v1/namespaces", params={"namespace": place[1]}).json()
        return int(found["namespaces"][0]["stored_bytes"])

    def held_bytes(self, scope: Scope) -> int:
        """Stored bytes of a namespace, a tenant's namespaces or the store, what nobody owns aside."""
        if scope == "store":
            return self.owned_bytes()
        if scope[0] == "tenant":
            mine = [place for place in self.world.rules if place[0] == scope[1]]
            return sum(self.stored_bytes(place) for place in mine)
        assert isinstance(scope, tuple)
        return self.stored_bytes(scope)

    def nothing_is_left_over(self) -> None:
        """After a reclaim: no block without an owner, no value without a row."""
        inside = self.folder.look()
        assert inside.values.keys() == inside.refs.keys() == self.world.owners().keys()
        assert self._findings(allow_unowned=False) == self._expected_findings()

    def _agree_inside(self) -> None:
        world = self.world

        inside: Inside = self.folder.look()

        def quiet() -> bool:
            nonlocal inside
            inside = self.folder.look()
            return not inside.sending and all(
                id_ in world.leases for id_, row in inside.leases.items() if row.open
            )

        self.until("responses and uploads end", quiet)
        assert {
            state_id: (row.place, row.kind, row.status, row.token_count, row.attached)
            for state_id, row in inside.states.items()
        } == {
            s.state_id: (
                s.place,
                s.kind,
                s.status,
                len(s.tokens),
                s.attached,
            )
            for s in world.states.values()
        }
        assert inside.arrived == {s.state_id: s.whole for s in world.states.values()}
        for lease in world.leases.values():
            row = inside.leases[lease.lease_id]
            assert (row.state_id, row.outcome, row.open) == (
                lease.state_id,
                lease.outcome,
                lease.open,
            )
        assert inside.owners == world.owners()
        assert {d: refs for d, refs in inside.refs.items() if refs} == inside.owners
        assert inside.values.keys() <= inside.refs.keys()
        for digest in inside.owners:
            raw = None if digest in world.damaged else world.raw[digest]
            assert inside.values[digest] == raw
        assert inside.stored_bytes <= self.budget_bytes
        assert inside.nodes == self._nodes(inside)

    def _nodes(self, inside: Inside) -> dict[Place, set[Tokens]]:
        """Each tree has its root, the prefixes that are held, and where those part."""
        found = {}
        for place in inside.nodes:
            ends = {s.tokens for s in self.world.states.values() if s.place == place if s.attached}
            parts = {one[: common(one, two)] for one in ends for two in ends if one != two}
            found[place] = {(), *ends, *parts}
        return found

    def _findings(self, *, allow_unowned: bool) -> list[str]:
        """What the service's own check finds; beside a server it may have to look again."""
        for _ in range(5):
            found = self.folder.all_findings(allow_unowned=allow_unowned)
            if found == self._expected_findings():
                break
            time.sleep(0.05)
        return found

    def _expected_findings(self) -> list[str]:
        return sorted(f"block {digest.hex()} is damaged" for digest in self.world.damaged)

    def _agree_listing(self) -> None:
        listed = self.operator.get("/admin/v1/states", params={"limit": 1000}).json()["states"]
        assert {
            (s["state_id"], s["tenant"], s["namespace"], s["status"], s["kind"], s["token_count"])
            for s in listed
        } == {
            (s.state_id, *s.place, s.status, s.kind, len(s.tokens))
            for s in self.world.states.values()
        }
        for tenant in (None, *TENANTS):
            self._agree_listing_of(tenant)

    def _agree_listing_of(self, who: str | None) -> None:
        """What a caller that is bound to a tenant (None: to none) sees."""
        client, world = self._client(who), self.world
        mine = [s for s in world.states.values() if who in (None, s.place[0])]
        for status in ("live", "quarantined"):
            found = client.get("/admin/v1/states", params={"status": status}).json()["states"]
            assert {s["state_id"] for s in found} == {
                s.state_id for s in mine if s.status == status
            }
        pins = client.get("/admin/v1/pins").json()
        assert [pin["state_id"] for pin in pins["pins"]] == sorted(
            s.state_id for s in world.pinned(who)
        )
        assert pins["pinned_bytes"] == sum(s.logical_bytes for s in world.pinned(who))
        desk = client.get("/admin/v1/quarantine").json()["states"]
        assert {s["state_id"]: s["evidence"]["lease_id"] for s in desk} == {
            s.state_id: s.taken_by for s in mine if s.status == "quarantined"
        }
        listed = client.get("/admin/v1/namespaces").json()["namespaces"]
        assert {
            (row["tenant"], row["namespace"]): (
                row["entries"],
                row["recording"],
                row["quarantined"],
                row["effective_mode"],
            )
            for row in listed
        } == {
            place: (
                *(
                    sum(s.place == place and s.status == status for s in mine)
                    for status in ("live", "recording", "quarantined")
                ),
                world.mode_of(place),
            )
            for place in world.rules
            if who in (None, place[0])
        }
        if who is not None:
            found = client.get("/v1/namespaces").json()["namespaces"]
            assert {
                row["namespace"]: (
                    row["entries"],
                    row["logical_bytes"],
                    row["mode"],
                    row["min_tokens"],
                    row["max_entries"],
                    row["max_stored_bytes"],
                )
                for row in found
            } == {
                place[1]: (
                    len(live := self.world.entries(place)),
                    sum(s.logical_bytes for s in live),
                    rules.mode,
                    rules.min_tokens,
                    rules.max_entries,
                    rules.max_stored_bytes,
                )
                for place, rules in self.world.rules.items()
                if place[0] == who
            }

    def _agree_figures(self) -> None:
        stats = self.operator.stats()
        world = self.world
        live = world.entries()
        recording = world.of_status("recording")
        assert (
            stats["live"],
            stats["recording"],
            stats["quarantined"],
            stats["logical_bytes"],
            stats["reserved_bytes"],
            stats["leases_held"],
        ) == (
            len(live),
            len(recording),
            len(world.of_status("quarantined")),
            sum(s.logical_bytes for s in live),
            sum(s.logical_bytes for s in recording),
            sum(lease.open for lease in world.leases.values()),
        )

    def known(self, place: Place) -> list[Tokens]:
        """Prefixes of a namespace that are or were held."""
        known = {s.tokens for s in self.world.states.values() if s.place == place}
        known |= {tokens for of, tokens in self.world.tombstones if of == place}
        return sorted(known)

    def peek(
        self,
        place: Place,
        tokens: Tokens,
        accept: Sequence[str] | None = None,
        *,
        truncate: bool = False,
    ) -> None:
        """A lookup that changes nothing."""
        asked: dict[str, Any] = {"candidates": [prefix(place[1], tokens)]}
        if accept is not None:
            asked["accept_kinds"] = list(accept)
        answer = self.client(place).post("/v1/lookup", json={**asked, "allow_truncated": truncate})
        assert answer.status_code == 200, answer.text
        kinds = ("full_state", "kv_recurrent", "kv") if accept is None else tuple(accept)
        agree_on(self.world.find(place, tokens, kinds, truncate), answer.json())


def agree_on(expected: Found | str, body: dict[str, Any]) -> None:
    """A lookup's answer says what should be found."""
    if isinstance(expected, str):
        assert body["hit"] is False
        assert [miss["reason"] for miss in body["misses"]] == [expected]
        return
    assert body["hit"] is True, body
    assert body["state"]["state_id"] == expected.state.state_id
    assert body["state"]["kind"] == expected.state.kind
    assert body["state"]["token_count"] == len(expected.state.tokens)
    assert body.get("prefix_tokens") == expected.cut


def refused(answer: httpx.Response, status: int, word: str) -> None:
    """A problem with this status and code."""
    assert code(answer) == (status, word), answer.text
