"""Figures for Prometheus: requests as they are answered, loops and backlogs when asked."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.registry import Collector

from holdfast.http.request_figures import RequestFigures
from holdfast.kit.cache import CacheStats
from holdfast.kit.channels.alarm import earliest_expiration_s
from holdfast.kit.outbox import DispatcherStatus
from holdfast.model import schema_of
from holdfast.operations.outboxes import dead_letter_counts
from holdfast.runtime import DEPTH_MAX, Runtime
from holdfast.store.io_counters import IO_COUNTERS

CONTENT_TYPE: Final = "text/plain; version=0.0.4"


class Metrics:
    """One process's figures, in a registry of their own.

    Example: `text = await Metrics().text(runtime)`
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        requests = RequestFigures()
        self.registry.register(requests)
        self.answered = requests.answered
        self._running = self._gauge("holdfast_loop_running", "1 while the loop runs.", "loop")
        self._restarts = self._gauge("holdfast_loop_restarts", "How often the loop fell over.", "loop")
        self._turned = self._gauge(
            "holdfast_loop_last_turn_timestamp_seconds", "When the loop last ran.", "loop"
        )
        self._waited = self._gauge(
            "holdfast_oldest_due_age_seconds", "How long the oldest due work has waited.", "queue"
        )
        self._store = self._gauge(
            "holdfast_documents_since_start", "Documents that this process has read and written.", "act"
        )
        self._depth = self._gauge(
            "holdfast_queue_depth", f"How many are due; {DEPTH_MAX} stands for as many or more.", "queue"
        )
        self._ends = self._gauge(
            "holdfast_channel_soonest_end_timestamp_seconds", "When the first open channel ends.", "kind"
        )
        self._deliveries = self._gauge(
            "holdfast_deliveries_since_start", "What this process's dispatchers did.", "outbox", "outcome"
        )
        self._held = self._gauge(
            "holdfast_deliveries_held", "Deliveries this process holds.", "outbox", "stage"
        )
        self._runs = self._gauge(
            "holdfast_runs_since_start",
            "What this process did with runs.",
            "collection",
            "workflow",
            "outcome",
        )
        self._runs_held = self._gauge(
            "holdfast_runs_held", "Runs this process works on.", "collection", "workflow"
        )
        self._dead_letters = self._gauge(
            "holdfast_dead_letters", "Unresolved dead letters of all tenants.", "outbox"
        )

        self._cached = self._gauge(
            "holdfast_cache_answers_since_start",
            "Values by where they were found, or stale.",
            "cache",
            "level",
        )
        self._loads = self._gauge(
            "holdfast_cache_loads_since_start", "Values this process loaded from their source.", "cache"
        )

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(name, help, labels, registry=self.registry)

    def watch(self, collector: Collector) -> None:
        """Show a service's own figures besides."""
        self.registry.register(collector)

    async def text(self, runtime: Runtime) -> bytes:
        for loop in runtime.supervisor.status():
            self._running.labels(loop.name).set(loop.running)
            self._restarts.labels(loop.name).set(loop.restarts)
            if loop.last_turn_at is not None:
                self._turned.labels(loop.name).set(loop.last_turn_at.timestamp())
        for queue, seconds in (await runtime.backlog()).items():
            self._waited.labels(queue).set(seconds)
        self._store.labels("read").set(IO_COUNTERS.reads)
        self._store.labels("written").set(IO_COUNTERS.writes)
        for queue, count in (await runtime.depths()).items():
            self._depth.labels(queue).set(count)
        ends = {kind: await earliest_expiration_s(runtime.store, kind) for kind in runtime.channel_kinds()}
        # Rebuilt: the end that a stopped channel would have had is nothing to warn of.
        self._ends.clear()
        for kind, ends_s in ends.items():
            if ends_s is not None:
                self._ends.labels(schema_of(kind).name).set(ends_s)
        for name, count in (await dead_letter_counts(runtime)).items():
            self._dead_letters.labels(name).set(count)
        for name, outbox in runtime.outboxes.items():
            self._show_deliveries(name, outbox.dispatcher.status())
        for cache in [one for parts in runtime.parts.values() for one in parts.caches]:
            self._show_cache(cache.name, cache.stats)
        self._show_runs(runtime)
        return generate_latest(self.registry)

    def _show_cache(self, cache: str, stats: CacheStats) -> None:
        for level in ("memory", "store", "source", "stale"):
            self._cached.labels(cache, level).set(getattr(stats, level))
        self._loads.labels(cache).set(stats.loads)

    def _show_runs(self, runtime: Runtime) -> None:
        for queue in runtime.runner.queues:
            collection, name = runtime.store.catalog.table(schema_of(queue.models.run)), queue.workflow.name
            done = {"settled": queue.settled, "lost": queue.lost, "error": queue.faults}
            for outcome, count in done.items():
                self._runs.labels(collection, name, outcome).set(count)
            self._runs_held.labels(collection, name).set(queue.under_way)

    def _show_deliveries(self, outbox: str, status: DispatcherStatus) -> None:
        done = {
            "sent": status.counts.sent, "delivered": status.counts.delivered, "failed": status.counts.failed,
            "dead": status.counts.dead, "lost": status.lost, "error": status.errors,
        }  # fmt: skip
        held = {"buffered": status.buffered, "in_flight": status.in_flight, "unsettled": status.unsettled}
        for outcome, count in done.items():
            self._deliveries.labels(outbox, outcome).set(count)
        for stage, count in held.items():
            self._held.labels(outbox, stage).set(count)
