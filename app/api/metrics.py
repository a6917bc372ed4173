"""GET /metrics: the figures as Prometheus and OpenMetrics read them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from app.api.access import CacheDep
from app.api.families import FAMILIES, Family, Scaled
from app.api.intake import StrictRoute
from app.api.problems import responses
from app.engine.metrics import Figures

router = APIRouter(tags=["system"], route_class=StrictRoute)

_TEXT = {"schema": {"type": "string"}}


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "The exposition format that `Accept` asks for (docs/metrics.md).",
            "content": {"text/plain": _TEXT, "application/openmetrics-text": _TEXT},
        },
        **responses("busy", "stopped"),
    },
)
async def metrics(request: Request, cache: CacheDep) -> Response:
    """Counters of all workers since the store was made, and gauges of this moment, whichever worker
    answers. Counters are about a second old, and so is what other workers hold in memory. Nothing is
    scanned that grows with the states, so it may be asked every few seconds.
    """
    # Encoders escape names for formats that allow more characters; ours are plain ASCII.
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    figures = await cache.metrics.figures()
    body = await asyncio.to_thread(encode, _Shown(figures))
    return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


class _Shown(Collector):
    """Figures as the library's encoders take them."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """All metrics in the order of the table."""
        for family in FAMILIES:
            if family.distributions is not None:
                yield _histogram(family, self._figures)
            else:
                yield _plain(family, self._figures)


def _plain(family: Family, figures: Figures) -> Metric:
    assert family.values is not None
    metric = Metric(family.name, family.says, family.kind, family.unit)
    names = [label for label, _ in family.labels]
    for labels, value in family.values(figures):
        metric.add_sample(family.shown_name, dict(zip(names, labels, strict=True)), value)
    return metric


def _histogram(family: Family, figures: Figures) -> Metric:
    assert family.distributions is not None
    ((label, _),) = family.labels
    metric = HistogramMetricFamily(family.name, family.says, labels=[label], unit=family.unit)
    for value, seen in family.distributions(figures):
        metric.add_metric([value], _buckets(seen), seen.total)
    return metric


def _buckets(seen: Scaled) -> list[tuple[str, float]]:
    bounds = [*map(str, seen.bounds), "+Inf"]
    counts = [*seen.distribution.cumulative, seen.distribution.count]
    return list(zip(bounds, map(float, counts), strict=True))
