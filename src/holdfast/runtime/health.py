"""Health of the process: queue ages and depths, channels, loops and services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.clock import SharedClock
from holdfast.errors import HoldfastError
from holdfast.kit.channels import ChannelFields
from holdfast.kit.channels.alarm import expiring_channels
from holdfast.kit.channels.key_uses import channels_of_unknown_keys, describe_unknown_keys
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox.circuits import open_circuits
from holdfast.kit.schedules import Schedule
from holdfast.model import Document
from holdfast.runtime.part_registry import KIT_PART
from holdfast.service import Health, OutboxPart, Parts
from holdfast.store import Query, Store

_WORST: Final = ("ok", "degraded", "critical")
# Due work is claimed within moments; work that waits this long means no worker, or too few.
BACKLOG_S_MAX: Final = 60.0
DEPTH_MAX: Final = 1_000
# Receivers of signed webhooks and providers of tokens tolerate a few minutes; people notice seconds.
SKEW_S_MAX: Final = 5.0


class HealthMonitor:
    """Checks queues, channels and services.

    `loops` reports on the loops, None where none run; `refusal` is why this release can't go on, if so;
    `writing` is why this process can't write its heartbeat, if so.
    """

    def __init__(
        self,
        store: Store,
        parts: Mapping[str, Parts],
        *,
        outboxes: Mapping[str, OutboxPart],
        run_queues: Mapping[str, type[Document]],
        channel_kinds: Sequence[type[ChannelFields]],
        loops: Callable[[], Health | None],
        key_ids: Sequence[str] = (),
        refusal: Callable[[], HoldfastError | None] = lambda: None,
        writing: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._store, self._parts, self._loops, self._refusal = store, parts, loops, refusal
        self._writing = writing
        self._outboxes, self._channel_kinds, self._key_ids = outboxes, channel_kinds, key_ids
        self.queues = self._queues(run_queues)
        self._running_check: asyncio.Task[Health] | None = None

    async def backlog(self) -> dict[str, float]:
        """Seconds that the oldest due document has waited, by queue; 0 where nothing is due."""
        store, now = self._store.privileged(), self._store.clock.now()
        waited: dict[str, float] = {}
        for name, kind in self.queues.items():
            due = await store.next_due(kind)
            waited[name] = 0.0 if due is None else max(0.0, (now - due).total_seconds())
        return waited

    async def depths(self) -> dict[str, int]:
        """The number of due documents by queue, counted up to `DEPTH_MAX`."""
        store = self._store.privileged()
        return {name: await store.count_due(kind, limit=DEPTH_MAX) for name, kind in self.queues.items()}

    async def health(self) -> Health:
        """The worst status of all parts, with their reasons; concurrent callers share one check."""
        if self._running_check is None:
            self._running_check = asyncio.create_task(self._check())
            self._running_check.add_done_callback(lambda _: setattr(self, "_running_check", None))
        return await asyncio.shield(self._running_check)

    async def _check(self) -> Health:
        problem = self._store.engine.problem or self._writing()
        if problem is not None:
            # Nothing else can be asked of a store that answers nobody.
            return Health("critical", (f"store: {problem}",))
        if (refusal := self._refusal()) is not None:
            return Health("critical", (f"release: {refusal.message}",))
        results: dict[str, Health] = {"backlog": await self._backlog_health()}
        results["channels"] = await self._channel_health()
        results["endpoints"] = await self._endpoint_health()
        results["clock"] = self._clock_health()
        results["outboxes"] = Health(facts={name: _counts(one) for name, one in self._outboxes.items()})
        loops = self._loops()
        if loops is not None:
            results["workers"] = loops
        for name, parts in self._parts.items():
            if parts.health is not None:
                results[name] = await parts.health()
        worst = max((h.status for h in results.values()), key=_WORST.index)
        reasons = tuple(f"{name}: {reason}" for name, h in results.items() for reason in h.reasons)
        return Health(worst, reasons, {name: h.facts for name, h in results.items() if h.facts})

    async def _backlog_health(self) -> Health:
        old = {name: s for name, s in (await self.backlog()).items() if s > BACKLOG_S_MAX}
        reasons = tuple(f"{name}: the oldest due work has waited for {s:.0f} s" for name, s in old.items())
        return Health("degraded" if old else "ok", reasons)

    async def _endpoint_health(self) -> Health:
        """Disabled and failing endpoints by outbox: counted, not named, because they are of any tenant."""
        store, reasons, now = self._store.privileged(), list[str](), self._store.clock.now()
        for name, outbox in self._outboxes.items():
            disabled = Query(outbox.models.endpoint).where("status", "==", "disabled")
            count = await store.count(disabled.order_by("-created_at"))
            if count:
                reasons.append(f"{name}: {count} disabled, which take no events")
            failing = await store.count(open_circuits(outbox.models.endpoint, now))
            if failing:
                reasons.append(f"{name}: {failing} paused by the circuit breaker after failures")
        return Health("degraded" if reasons else "ok", tuple(reasons))

    def _clock_health(self) -> Health:
        clock = self._store.clock
        skew_s = clock.skew_s if isinstance(clock, SharedClock) else 0.0
        if abs(skew_s) <= SKEW_S_MAX:
            return Health()
        ahead = "ahead of" if skew_s > 0 else "behind"
        return Health("degraded", (f"this machine's clock is {abs(skew_s):.0f} s {ahead} the store's",))

    async def _channel_health(self) -> Health:
        late = [one for kind in self._channel_kinds for one in await expiring_channels(self._store, kind)]
        reasons = [str(one) for one in late]
        if self._key_ids and (deaf := await channels_of_unknown_keys(self._store, self._key_ids)):
            reasons.append(describe_unknown_keys(deaf))
        return Health("degraded" if reasons else "ok", tuple(reasons))

    def _queues(self, run_queues: Mapping[str, type[Document]]) -> dict[str, type[Document]]:
        outgoing = {queue_of(one): one.models.delivery for one in self._outboxes.values()}
        of_services = {
            f"{name}.{label}": kind for name, p in self._parts.items() for label, kind in p.queues.items()
        }
        return {"inbox": InboxItem, **outgoing, "schedules": Schedule, **run_queues, **of_services}


def queue_of(outbox: OutboxPart) -> str:
    """The name of an outbox's loop and queue."""
    return "outbox" if outbox.name == KIT_PART else f"{outbox.name}.deliveries"


def _counts(outbox: OutboxPart) -> dict[str, int]:
    counts = outbox.dispatcher.status().counts
    return {"delivered": counts.delivered, "failed": counts.failed, "dead": counts.dead}
