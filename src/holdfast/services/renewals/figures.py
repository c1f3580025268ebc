"""The service's own figures for Prometheus, as its loops in this process count them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.kit.outbox import Dispatcher
from holdfast.kit.runs import Runner

_PREFIX: Final = "holdfast_renewals_"


class Figures(Collector):
    """Read when asked for; nothing is counted twice."""

    def __init__(self, dispatcher: Dispatcher, runner: Runner) -> None:
        self._dispatcher, self._runner = dispatcher, runner

    def collect(self) -> Iterable[Metric]:
        sending, runs = self._dispatcher.status(), self._runner.status()
        attempts = CounterMetricFamily(
            _PREFIX + "attempts", "Attempts to deliver, by outcome.", labels=["outcome"]
        )
        counts = sending.counts
        for outcome, count in (
            ("delivered", counts.delivered),
            ("failed", counts.failed),
            ("dlq", counts.dead),
        ):
            attempts.add_metric([outcome], count)
        yield attempts
        calculations = CounterMetricFamily(
            _PREFIX + "calculations", "Calculation jobs this process took, by outcome.", labels=["outcome"]
        )
        for outcome, count in (("carried", runs.settled), ("lost", runs.lost), ("faulty", runs.faults)):
            calculations.add_metric([outcome], count)
        yield calculations
        under_way = GaugeMetricFamily(_PREFIX + "under_way", "What is in hand now.", labels=["what"])
        under_way.add_metric(["deliveries"], self._dispatcher.under_way)
        under_way.add_metric(["calculations"], self._runner.under_way)
        yield under_way
