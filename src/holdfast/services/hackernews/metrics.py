"""The service's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Metric
from prometheus_client.registry import Collector

_PREFIX: Final = "holdfast_hackernews_"


class HackerNewsMetrics(Collector):
    """Pages by cache level, items by outcome, rounds of the worker and how far the one under way is.

    Example: `metrics.items.labels("new").inc()`
    """

    def __init__(self) -> None:
        self.pages = Counter(
            _PREFIX + "pages", "Pages of stories, by the cache level they came from.", ("level",),
            registry=None,
        )  # fmt: skip
        self.items = Counter(
            _PREFIX + "items", "Items fetched, by what became of them.", ("outcome",), registry=None
        )
        self.rounds = Counter(
            _PREFIX + "rounds", "Rounds of the worker, by how they ended.", ("outcome",), registry=None
        )
        self.progress = Gauge(
            _PREFIX + "round_items", "Items of the round under way, or of the last one.", ("state",),
            registry=None,
        )  # fmt: skip
        self.finished = Gauge(
            _PREFIX + "round_finished_timestamp_seconds", "When the last round ended.", registry=None
        )

    def collect(self) -> Iterable[Metric]:
        for one in (self.pages, self.items, self.rounds, self.progress, self.finished):
            yield from one.collect()
