"""May this be recorded? Answered at once, before the caller pays for an export (DESIGN 2, rule 7)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from app.engine.errors import Refused
from app.engine.policy import Policy
from app.settings import Settings
from storage.rows import AdmissionFacts, Limits, NewRecording


class Admission(enum.Enum):
    """What the caller is told; every value but the first two is a refusal."""

    ADMITTED = "admitted"
    ALREADY_RECORDED = "already_recorded"
    IN_FLIGHT = "in_flight"
    TOO_SHORT = "too_short"
    AT_CAPACITY = "at_capacity"
    BUSY = "busy"
    OVERSIZE = "oversize"
    LOW_SPACE = "low_space"
    DISABLED = "disabled"
    STOPPED = "stopped"
    OVER_QUOTA = "over_quota"


@dataclass(slots=True)
class Decision:
    """The verdict on one request; made under the write lock from the facts of that moment."""

    policy: Policy
    new: NewRecording
    free_disk_bytes: int
    writer_stopped: bool
    verdict: Admission = Admission.ADMITTED
    refused: Refused | None = None  # where the verdict alone would not say why

    def __call__(self, facts: AdmissionFacts) -> Limits | None:
        """Limits to record under, or None with `verdict` saying why not."""
        now = self.policy.now()
        limits = self.policy.limits(facts.namespace, facts.tenant_limits, now)
        self.verdict = self._judge(facts, limits, now)
        return limits if self.verdict is Admission.ADMITTED else None

    def _judge(self, facts: AdmissionFacts, limits: Limits, now: Settings) -> Admission:
        new = self.new
        if self.policy.mode(facts.namespace, facts.store_mode) not in ("record", "lookup_record"):
            return Admission.DISABLED
        if len(new.tokens) // 4 < self.policy.min_tokens(facts.namespace, now):
            return Admission.TOO_SHORT
        if facts.held_state_id is not None and not new.replace:
            return Admission.ALREADY_RECORDED
        if facts.in_flight_state_id is not None:
            return Admission.IN_FLIGHT
        whole = min(
            limit
            for limit in (limits.budget_bytes, limits.namespace_bytes, limits.tenant_bytes)
            if limit is not None
        )
        if new.logical_bytes + new.overhead_bytes > whole or (
            limits.tenant_logical_bytes is not None
            and new.logical_bytes > limits.tenant_logical_bytes
        ):
            return Admission.OVERSIZE
        most = facts.tenant_limits.max_in_flight_records
        if (
            facts.tenant_usage is not None
            and most is not None
            and facts.tenant_usage.recordings >= most
        ):
            return Admission.OVER_QUOTA
        if self.writer_stopped:
            return Admission.STOPPED
        usage = facts.usage
        if self.free_disk_bytes - usage.reserved_bytes - new.logical_bytes < (
            now.free_disk_reserve_bytes
        ):
            return Admission.LOW_SPACE
        if (
            usage.recordings >= now.max_in_flight_records
            or usage.reserved_bytes + new.logical_bytes > now.max_in_flight_bytes
        ):
            return Admission.AT_CAPACITY
        return Admission.ADMITTED


_DETAILS = {
    Admission.IN_FLIGHT: "somebody is recording this prefix",
    Admission.TOO_SHORT: "the prefix has fewer tokens than the namespace's min_tokens",
    Admission.AT_CAPACITY: "as many recordings are under way as the store takes at once",
    Admission.BUSY: "the write lock was not free in time",
    Admission.OVERSIZE: "the state is larger than the whole budget, or its namespace's or tenant's",
    Admission.LOW_SPACE: "the free-disk reserve has been reached; lookups go on",
    Admission.DISABLED: "recording is switched off by mode",
    Admission.STOPPED: "the writer has stopped; lookups go on",
    Admission.OVER_QUOTA: "the tenant has as many recordings under way as it may",
}
_RETRY_AFTER_S = {
    Admission.IN_FLIGHT: 5,
    Admission.AT_CAPACITY: 2,
    Admission.BUSY: 1,
    Admission.LOW_SPACE: 30,
    Admission.OVER_QUOTA: 2,
    Admission.STOPPED: 30,
}


def refusal(verdict: Admission) -> Refused:
    """The refusal as the error that callers see; its code is the verdict's name."""
    return Refused(verdict.value, _DETAILS[verdict], retry_after_s=_RETRY_AFTER_S.get(verdict))


def no_room() -> Refused:
    """Others took what room was made, again and again."""
    return Refused("at_capacity", "no room could be made", retry_after_s=5)


# What one state's metadata is charged with: measured sizes of its rows and their index entries
# (state, component, node, lease and tombstone rows), its tokens in the tree, and one ownership row
# with its index entry for each block.
_ROWS_BYTES = 2048
_TOKEN_BYTES = 4
_OWNERSHIP_BYTES = 64


def overhead_bytes(token_count: int, block_count: int, described_bytes: int) -> int:
    """Bytes of the budget that a state takes besides its blocks.

    Args:
        described_bytes: its descriptor and its packed geometries.
    """
    return _ROWS_BYTES + _TOKEN_BYTES * token_count + ownership_bytes(block_count) + described_bytes


def ownership_bytes(block_count: int) -> int:
    """Bytes of the budget that owning so many blocks takes."""
    return _OWNERSHIP_BYTES * block_count
