"""A scrape of /metrics, read with the parsers that Prometheus' own Python client brings."""

from __future__ import annotations

import time
from collections.abc import Iterable

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """Samples by name and labels."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = list(families)
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one sample; `class_` stands for the label `class`."""
        pairs = tuple(sorted((label.rstrip("_"), value) for label, value in labels.items()))
        return self.samples[f"statehold_{name}", pairs]


def scrape(url: str, accept: str = "") -> Scrape:
    """Ask, on a connection of its own so that any worker may answer."""
    answer = httpx.get(f"{url}/metrics", headers={"Accept": accept}, timeout=30)
    assert answer.status_code == 200, answer.text
    if "openmetrics" in answer.headers["content-type"]:
        return Scrape(openmetrics.text_string_to_metric_families(answer.text))  # type: ignore[no-untyped-call]
    return Scrape(text_string_to_metric_families(answer.text))


def scrape_until(url: str, name: str, value: float, **labels: str) -> Scrape:
    """Scrape until a sample has a value: counters lag by the time between two flushes.

    A flush may fall between two requests: name what the last of them counts.
    """
    deadline = time.monotonic() + 15
    pairs = tuple(sorted((label.rstrip("_"), text) for label, text in labels.items()))
    while True:
        found = scrape(url)
        seen = found.samples.get((f"statehold_{name}", pairs), 0.0)
        if seen == value:
            return found
        assert time.monotonic() < deadline, (name, labels, seen, value)
        time.sleep(0.05)
