"""Figures of answered requests: plain numbers, shown as a counter and a histogram when they are asked for.

The client library's own take a lock for each of three numbers, which is three quarters of counting a webhook.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BOUNDS: Final = [*map(floatToGoString, BOUNDS_S), "+Inf"]


class _Latencies:
    """How many requests took as long as each bound and longer than the one before, and all their seconds."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts, self.seconds = [0] * len(_BOUNDS), 0.0


class _Answers:
    """The requests of one route that were answered with one status."""

    __slots__ = ("count", "latencies")

    def __init__(self, latencies: _Latencies) -> None:
        self.count, self.latencies = 0, latencies


class RequestFigures(Collector):
    """Counts requests, in the event loop's thread alone."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, int], _Answers] = {}
        self._latencies: dict[tuple[str, str], _Latencies] = {}

    def answered(self, method: str, route: str, status: int, seconds: float, *, count: int = 1) -> None:
        """Count a request, or several that took as long each."""
        answers = self._answers.get((method, route, status))
        if answers is None:
            latencies = self._latencies.setdefault((method, route), _Latencies())
            answers = self._answers[method, route, status] = _Answers(latencies)
        answers.count += count
        latencies = answers.latencies
        latencies.counts[bisect_left(BOUNDS_S, seconds)] += count
        latencies.seconds += seconds * count

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "holdfast_http_requests", "Requests answered.", labels=("method", "route", "status")
        )
        for (method, route, status), answers in self._answers.items():
            requests.add_metric((method, route, str(status)), answers.count)
        yield requests
        latency = HistogramMetricFamily(
            "holdfast_http_request_seconds", "Time to the end of an answer.", labels=("method", "route")
        )
        for labels, latencies in self._latencies.items():
            buckets = list(zip(_BOUNDS, accumulate(latencies.counts), strict=True))
            latency.add_metric(labels, buckets, latencies.seconds)
        yield latency
