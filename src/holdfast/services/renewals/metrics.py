"""The service's own figures for Prometheus, as its loops in this process count them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.kit.outbox import Dispatcher
from holdfast.kit.runs import Runner, RunnerStatus, Workflow
from holdfast.services.renewals.ingest.refresh import SourceRefresh

_PREFIX: Final = "holdfast_renewals_"


class RenewalsMetrics(Collector):
    """Read when asked for; nothing is counted twice."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        runner: Runner,
        *,
        calculations: Workflow,
        triggers: Workflow,
        refreshing: SourceRefresh,
    ) -> None:
        self._dispatcher, self._runner, self._refreshing = dispatcher, runner, refreshing
        self._calculations, self._triggers = calculations, triggers

    def collect(self) -> Iterable[Metric]:
        sending = self._dispatcher.status()
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
        calculations = self._runner.status(self._calculations)
        triggers = self._runner.status(self._triggers)
        yield _jobs("calculations", "Calculation jobs this process took, by outcome.", calculations)
        yield _jobs("trigger_jobs", "Trigger jobs this process took, by outcome.", triggers)
        refreshes = CounterMetricFamily(
            _PREFIX + "refreshes", "Times this process read the source, by outcome.", labels=["outcome"]
        )
        refreshes.add_metric(["done"], self._refreshing.refreshed)
        refreshes.add_metric(["failed"], self._refreshing.failed)
        yield refreshes
        under_way = GaugeMetricFamily(_PREFIX + "under_way", "What is in hand now.", labels=["what"])
        under_way.add_metric(["deliveries"], self._dispatcher.under_way)
        under_way.add_metric(["calculations"], calculations.held)
        under_way.add_metric(["trigger_jobs"], triggers.held)
        yield under_way


def _jobs(name: str, said: str, runs: RunnerStatus) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, said, labels=["outcome"])
    for outcome, count in (("carried", runs.settled), ("lost", runs.lost), ("faulty", runs.faults)):
        family.add_metric([outcome], count)
    return family
