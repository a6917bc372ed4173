"""What the service should hold and answer: the exactness contract in plain dictionaries.

Written from docs/concepts.md, docs/http.md and the OpenAPI document, with no code of the service. One
caller at a time; whatever the service does by itself in the background is either nothing that a caller can
see, or named here as something that may have happened (`may_go`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.model.payloads import WINDOW_ROWS, Payload, Tokens
from tests.support import native

# (tenant, namespace)
Place = tuple[str, str]

DEFAULT_KINDS: Final = ("full_state", "kv_recurrent", "kv")
DETERMINISTIC: Final = ("integrity", "invalid_data", "unsupported")


@dataclass(eq=False)
class Held:
    """A state, from its admission on.

    Attributes:
        number: order of recording.
        attached: whether lookups can find it; a replaced state that somebody reads is not.
        whole: components that have arrived; `by_blocks` of them block by block.
        owned: block digests by component and place.
        used: wall clock in ms between which it was last used.
        taken_by: the lease under which it was reported, while that keeps it out of service.
    """

    state_id: str
    number: int
    place: Place
    tokens: Tokens
    payload: Payload
    replace: bool
    status: str = "recording"
    attached: bool = False
    whole: set[str] = field(default_factory=set)
    by_blocks: set[str] = field(default_factory=set)
    owned: dict[str, dict[int, bytes]] = field(default_factory=dict)
    used: tuple[int, int] = (0, 0)
    live_since: int = 0
    taken_by: str | None = None
    pinned: bool = False

    @property
    def kind(self) -> str:
        return self.payload.kind

    @property
    def logical_bytes(self) -> int:
        return len(self.payload.body)

    @property
    def may_go(self) -> bool:
        """Nobody can find it and nobody holds it: housekeeping lets it go sooner or later."""
        return self.status == "live" and not self.attached and not self.pinned

    def digests(self) -> set[bytes]:
        return {digest for places in self.owned.values() for digest in places.values()}


@dataclass(eq=False)
class Lease:
    """A client's lease. `outcome` is what it was released with."""

    lease_id: str
    state_id: str
    place: Place
    outcome: str | None = None
    expired: bool = False

    @property
    def open(self) -> bool:
        return self.outcome is None and not self.expired


@dataclass
class Rules:
    """What a namespace is set to; None: the store's."""

    mode: str | None = None
    min_tokens: int | None = None
    max_entries: int | None = None
    max_stored_bytes: int | None = None


@dataclass(frozen=True)
class Found:
    """A state, and how many of its tokens are the query's where that is not all of them."""

    state: Held
    cut: int | None = None


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


class World:
    """Everything that should be there."""

    def __init__(self, max_entries: int) -> None:
        self.max_entries = self.configured_entries = max_entries
        self.min_tokens = 1
        self.pin_budget_bytes: int | None = None
        self.mode = "lookup_record"
        self.rules: dict[Place, Rules] = {}
        self.states: dict[str, Held] = {}
        self.gone: list[str] = []
        self.leases: dict[str, Lease] = {}
        self.tombstones: set[tuple[Place, Tokens]] = set()
        self.damaged: set[bytes] = set()
        self.raw: dict[bytes, bytes] = {}
        self._numbers = 0

    # ---- questions ---------------------------------------------------------------------------

    def mode_of(self, place: Place) -> str:
        rules = self.rules.get(place)
        return (rules.mode if rules else None) or self.mode

    def of_status(self, *statuses: str) -> list[Held]:
        return [state for state in self.states.values() if state.status in statuses]

    def entries(self, place: Place | None = None) -> list[Held]:
        """Live states of a namespace, or of the store."""
        return [s for s in self.of_status("live") if place is None or s.place == place]

    def max_entries_of(self, scope: Place | str) -> int | None:
        """How many live states a namespace or the store may hold; None for no limit, as on a tenant's."""
        if scope == "store":
            return self.max_entries
        rules = self.rules.get(scope) if isinstance(scope, tuple) else None
        return None if rules is None else rules.max_entries

    def leased(self, state: Held) -> bool:
        return any(lease.open for lease in self.leases.values() if lease.state_id == state.state_id)

    def kept(self, state: Held) -> bool:
        """Whether no eviction takes it."""
        return state.pinned or self.leased(state)

    def pinned(self, tenant: str | None = None) -> list[Held]:
        """Pinned states of a tenant, or of all."""
        return [
            s for s in self.states.values() if s.pinned if tenant is None or s.place[0] == tenant
        ]

    def held(self, place: Place, tokens: Tokens, kind: str) -> Held | None:
        """The live state of exactly this prefix and kind."""
        for state in self.entries(place):
            if state.attached and state.tokens == tokens and state.kind == kind:
                return state
        return None

    def broken(self, state: Held, digests: Iterable[bytes] | None = None) -> bool:
        """Whether reading these blocks of it (None: all) meets damage."""
        return not self.damaged.isdisjoint(state.digests() if digests is None else digests)

    def find(
        self,
        place: Place,
        tokens: Tokens,
        accept: Sequence[str],
        truncate: bool,
        skipped: Collection[str] = (),
    ) -> Found | str:
        """What a lookup finds, or the reason for a miss."""
        if place in self.rules and self.mode_of(place) not in ("lookup", "lookup_record"):
            return "lookup_disabled"
        path = [
            s
            for s in self.of_status("live", "quarantined")
            if s.place == place and s.attached and tokens[: len(s.tokens)] == s.tokens
        ]
        live = [s for s in path if s.status == "live"]
        usable = [s for s in live if s.kind in accept]
        best: Found | None = None
        if usable:
            best = Found(min(usable, key=lambda s: (-len(s.tokens), accept.index(s.kind))))
        cut = self._cut(place, tokens) if truncate and "kv" in accept else None
        if cut is not None and (best is None or (cut.cut or 0) > len(best.state.tokens)):
            return cut
        if best is not None:
            return best
        if any(s.kind not in accept for s in live):
            return "kind_not_accepted"
        if skipped or any(s.status == "quarantined" for s in path):
            return "quarantined"
        if any(of == place and tokens[: len(gone)] == gone for of, gone in self.tombstones):
            return "evicted_recently"
        return "never_seen"

    def _cut(self, place: Place, tokens: Tokens) -> Found | None:
        """The dense state that goes furthest along the query before it parts from it."""
        found = [
            Found(s, shared)
            for s in self.entries(place)
            if s.attached and s.kind == "kv" and (shared := common(s.tokens, tokens)) > 0
            if shared < len(s.tokens)
        ]
        return min(
            found,
            key=lambda f: (-(f.cut or 0), len(f.state.tokens), -f.state.number),
            default=None,
        )

    def read_for(self, found: Found) -> set[bytes]:
        """Digests of the blocks that a restore of this reads."""
        if found.cut is None:
            return found.state.digests()
        windows = -(-found.cut // WINDOW_ROWS)
        return {d for seq, d in found.state.owned["kv"].items() if seq < windows}

    def shown(self, tenant: str) -> set[bytes]:
        """Blocks whose bytes the tenant has brought."""
        mine = (s for s in self.states.values() if s.place[0] == tenant)
        return {digest for state in mine for digest in state.digests()}

    def owners(self) -> Counter[bytes]:
        """How often each block is owned."""
        return Counter(
            digest
            for state in self.states.values()
            for places in state.owned.values()
            for digest in places.values()
        )

    def admission(self, place: Place, tokens: Tokens, payload: Payload, replace: bool) -> str:
        """Admission's word, limits of bytes aside."""
        rules = self.rules.get(place, Rules())
        if self.mode_of(place) not in ("record", "lookup_record"):
            return "disabled"
        if len(tokens) < (rules.min_tokens or self.min_tokens):
            return "too_short"
        if self.held(place, tokens, payload.kind) is not None and not replace:
            return "already_recorded"
        if any(
            s.place == place and s.tokens == tokens and s.kind == payload.kind
            for s in self.of_status("recording")
        ):
            return "in_flight"
        return "admitted"

    def over_entries(self, state: Held) -> Place | str | None:
        """Whose limit on entries stands in the way of this state's going live: `store`, a place, or nobody's.

        A state that it replaces and nobody holds makes room by itself.
        """
        old = self.held(state.place, state.tokens, state.kind) if state.replace else None
        freed = int(old is not None and not self.leased(old))
        if len(self.entries()) - freed >= self.max_entries:
            return "store"
        most = self.rules[state.place].max_entries
        if most is not None and len(self.entries(state.place)) - freed >= most:
            return state.place
        return None

    # ---- changes -----------------------------------------------------------------------------

    def admit(
        self, state_id: str, place: Place, tokens: Tokens, payload: Payload, replace: bool
    ) -> Held:
        self._numbers += 1
        state = Held(state_id, self._numbers, place, tokens, payload, replace)
        self.states[state_id] = state
        self.rules.setdefault(place, Rules())
        return state

    def arrive(
        self, state: Held, name: str, *, sent: Iterable[int], by_blocks: bool = False
    ) -> None:
        """A component is there. Of the blocks that were sent the damaged ones were written anew."""
        blocks = state.payload.blocks(name)
        for seq in sent:
            self.damaged.discard(native.digest(blocks[seq]))
        self.own(state, name, range(len(blocks)))
        state.whole.add(name)
        if by_blocks:
            state.by_blocks.add(name)

    def own(self, state: Held, name: str, seqs: Iterable[int]) -> None:
        """A recording owns exactly these blocks of a component."""
        blocks = state.payload.blocks(name)
        state.owned[name] = {}
        for seq in seqs:
            digest = native.digest(blocks[seq])
            self.raw[digest] = blocks[seq]
            state.owned[name][seq] = digest
        self._forget_damage()

    def publish(self, state: Held, now: tuple[int, int]) -> None:
        """A whole recording goes live; what it replaces stays for whoever reads it."""
        old = self.held(state.place, state.tokens, state.kind)
        if old is not None:
            assert state.replace
            old.attached = False
            state.pinned, old.pinned = old.pinned, False
            if not self.leased(old):
                self.drop(old, tombstone=False)
        state.status, state.attached = "live", True
        state.used, state.live_since = now, now[0]

    def touch(self, state: Held, now: tuple[int, int]) -> None:
        state.used = now

    def quarantine(self, state: Held, lease_id: str | None = None) -> None:
        assert state.status == "live"
        state.status, state.taken_by = "quarantined", lease_id

    def drop(self, state: Held, *, tombstone: bool) -> None:
        """A state goes, and its blocks with the last of their owners."""
        del self.states[state.state_id]
        self.gone.append(state.state_id)
        if tombstone:
            self.tombstones.add((state.place, state.tokens))
        self._forget_damage()

    def stop(self, *, killed: bool) -> None:
        """The server ended: recordings under way end with it, what was only noted may be lost."""
        for state in self.of_status("recording"):
            self.drop(state, tombstone=False)
        if killed:
            for state in self.states.values():
                state.used = state.live_since, state.used[1]

    def _forget_damage(self) -> None:
        """Whoever records a block that nobody owns any more looks at it first, and mends it."""
        self.damaged &= self.owners().keys()
