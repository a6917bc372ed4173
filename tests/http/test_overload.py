"""Ten times more clients than are served, for a few seconds; `make soak` does it for minutes.

How quick lookups are meanwhile is measured by `python -m bench.overload`; here is what must hold however
slow the machine is: nobody gets other bytes, who is refused is told when to come again, memory stays
within its bound, what was acknowledged is there, and afterwards nothing is left of the storm.
"""

from __future__ import annotations

import os
import time

import pytest

from bench import overload
from bench.transfers import payload
from tests.conftest import ServerFactory
from tests.support.client import Client

_MOST_MEMORY = 768 << 20  # both buffers (128 and 256 MiB here) and the process itself, twice over
_NEWEST = 200  # of those recorded; the budget has room for several times as many
_ALLOWED = {"200", "201", "202", "204", "409", "503"}


def _weathered(start: ServerFactory, seconds: float) -> None:
    server = start(
        budget_bytes="1GiB",
        max_in_flight_records=16,
        record_ttl_s=3,
        idle_timeout_s=5,
        restore_buffer_bytes="256MiB",
    )
    found = overload.storm(server, overload.SERVED.times(10), seconds, seed=1)
    assert {answer.split()[-1] for answer in found.answers} <= _ALLOWED, found.answers
    assert found.answers.get("admission 503", 0) > 0
    assert found.unexplained == 0
    assert found.most_rss < _MOST_MEMORY
    with Client(server.url) as client:
        deadline = time.monotonic() + 30
        while client.stats()["recording"] or client.stats()["leases_held"]:
            assert time.monotonic() < deadline, client.stats()
            time.sleep(0.2)
        again = client.record_full("bench", [1 << 30], payload(overload.STATE_BYTES, 3))
        assert client.lookup("bench", [1 << 30])["state"]["state_id"] == again
        for token, seed in list(found.recorded.items())[-_NEWEST:]:
            answer = client.restore("bench", [token, *range(200)])
            assert answer.content == payload(overload.STATE_BYTES, seed)
    server.stop()


def test_a_storm_passes_and_leaves_nothing(start: ServerFactory) -> None:
    _weathered(start, 5)


@pytest.mark.soak
def test_minutes_of_storm_pass_and_leave_nothing(start: ServerFactory) -> None:
    _weathered(start, float(os.environ.get("SOAK_STORM_SECONDS", "300")))
