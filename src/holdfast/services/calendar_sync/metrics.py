"""The service's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Metric
from prometheus_client.registry import Collector

from holdfast.services.calendar_sync.reports import StatusReport

_PREFIX: Final = "holdfast_calendar_sync_"


class CalendarSyncMetrics(Collector):
    """Counters of what happens; the gauges are set by each status report.

    Example: `metrics.notifications.labels("forged").inc()`
    """

    def __init__(self) -> None:
        self.notifications = self._counter("notifications", "Notifications, by their fate.", "outcome")
        self.syncs = self._counter("syncs", "Syncs of a calendar, by how they ended.", "outcome")
        self.events = self._counter("events", "Events looked at, by what was done.", "result")
        self.reloads = self._counter("mapping_reloads", "Reloads of the mappings.", "outcome")
        self.channels = self._gauge("channels", "Channels on record.", "status")
        self.calendars = self._gauge("calendars", "Calendars, by the state of their sync.", "status")
        self.attention = self._gauge("channels_need_attention", "Calendars whose credentials are gone.")
        self.mappings = self._gauge("mappings", "Primaries that are mapped.")
        self.soonest = self._gauge("soonest_expiration_timestamp_seconds", "When the next channel ends.")
        self._all: list[Counter | Gauge] = [
            self.notifications, self.syncs, self.events, self.reloads, self.channels, self.calendars,
            self.attention, self.mappings, self.soonest,
        ]  # fmt: skip

    def _counter(self, name: str, help: str, label: str) -> Counter:
        return Counter(_PREFIX + name, help, (label,), registry=None)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, help, labels, registry=None)

    def show(self, report: StatusReport) -> None:
        """Set the gauges."""
        for status, count in report.by_status.items():
            self.channels.labels(status).set(count)
        for status, count in report.by_sync_status.items():
            self.calendars.labels(status).set(count)
        self.mappings.set(report.reload.mappings)
        self.attention.set(report.needs_attention)
        self.soonest.set((report.channels.soonest_expiration or 0) / 1000)

    def collect(self) -> Iterable[Metric]:
        for one in self._all:
            yield from one.collect()
