"""How much a tenant may ask in a second. Limits on what it holds are kept where it is recorded.

A bucket for requests and one for bytes, each filled at the limit's rate and holding one second of it. A
request is refused when the buckets are empty; bytes are counted as they pass, so that a large restore
runs to its end and the next one waits. Buckets belong to a process: of several workers each gives its
share.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import ceil
from typing import Final

from app.engine.errors import Refused
from storage.store import Store

_FRESH_S: Final = 1.0


@dataclass(slots=True)
class _Bucket:
    """What is left of one second's worth, in its unit; below zero is a debt."""

    left: float
    at: float

    def fill(self, rate: float, now: float) -> None:
        self.left = min(rate, self.left + (now - self.at) * rate)
        self.at = now


@dataclass(slots=True)
class _Meter:
    requests_per_s: float | None
    bytes_per_s: float | None
    requests: _Bucket
    bytes: _Bucket
    read_at: float


class Quotas:
    """The rates of all tenants of one process. For the event loop's thread."""

    def __init__(self, store: Store, workers: int) -> None:
        self._store = store
        self._workers = workers
        self._meters: dict[str, _Meter] = {}

    def request(self, tenant: str) -> bool:
        """A request of the tenant begins; returns whether its bytes are to be counted.

        Raises:
            Refused: `rate_limited`, with the seconds until the next one may come.
        """
        now = time.monotonic()
        meter = self._meter(tenant, now)
        for rate, bucket, need in (
            (meter.requests_per_s, meter.requests, 1.0),
            (meter.bytes_per_s, meter.bytes, 0.0),
        ):
            if rate is None:
                continue
            bucket.fill(rate, now)
            if bucket.left < need:
                raise Refused(
                    "rate_limited",
                    "the tenant has used up its rate",
                    retry_after_s=max(1, ceil((need - bucket.left) / rate)),
                )
        meter.requests.left -= 1.0
        return meter.bytes_per_s is not None

    def passed(self, tenant: str, size: int) -> None:
        """Bytes of the tenant came in or went out."""
        meter = self._meters.get(tenant)
        if meter is not None and meter.bytes_per_s is not None:
            meter.bytes.left -= size

    def _meter(self, tenant: str, now: float) -> _Meter:
        meter = self._meters.get(tenant)
        if meter is not None and now - meter.read_at < _FRESH_S:
            return meter
        limits = self._store.catalog.tenant_limits(tenant)
        requests, size = (
            None if limit is None else max(limit / self._workers, 0.001)
            for limit in (limits.max_requests_per_second, limits.max_bytes_per_second)
        )
        if meter is None:
            meter = _Meter(None, None, _Bucket(0, now), _Bucket(0, now), now)
            self._meters[tenant] = meter
        # A rate that is new begins with a full bucket.
        if meter.requests_per_s is None and requests is not None:
            meter.requests = _Bucket(max(requests, 1.0), now)
        if meter.bytes_per_s is None and size is not None:
            meter.bytes = _Bucket(size, now)
        meter.requests_per_s, meter.bytes_per_s, meter.read_at = requests, size, now
        return meter
