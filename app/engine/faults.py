"""Failures of a restore, sorted: which of them say that the state itself is bad.

A deterministic failure will happen again with the same bytes, so the state is taken out of service;
any other may be the runtime's or the moment's and costs the state nothing (DESIGN 2, rule 5).
"""

from __future__ import annotations

from typing import Final

from storage.rows import Evidence

# Classes of a client's report that do; the others (unavailable, io, runtime, timeout, cancelled,
# internal) may be transient, a runtime's refusal included.
DETERMINISTIC: Final = ("integrity", "invalid_data", "unsupported")


class StateFault(Exception):
    """A stored state failed its proof. Never leaves the engine: the state is quarantined instead."""

    def __init__(self, state_id: str, evidence: Evidence) -> None:
        super().__init__(f"{evidence.failure_class}: {evidence.reason}")
        self.state_id = state_id
        self.evidence = evidence


def fault(
    state_id: str,
    failure_class: str,
    reason: str,
    *,
    component: str | None = None,
    seq: int | None = None,
    expected: bytes | None = None,
    actual: bytes | None = None,
) -> StateFault:
    """A failure found by the service itself."""
    return StateFault(
        state_id,
        Evidence(failure_class, reason, "service", component, seq, expected, actual),
    )
