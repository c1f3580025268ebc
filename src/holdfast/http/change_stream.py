"""What has changed, told as it happens: the names of topics, never documents.

    store.watch(Delivery) ─ notifies ─► Changes ──► each stream: {"deliveries"}, a few times a second at most

A notification is a hint, so every so often all topics are told as changed: whoever asks again then has missed
nothing for longer than that. Changes made by other processes notify here too.

A notification does not tell whose document changed. So whoever sees one tenant is told by the clock alone,
and learns nothing of what the others do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from holdfast.errors import RetryLaterError, TooManyRequestsError
from holdfast.kit.access import ApiToken, User
from holdfast.kit.access.authorization import privileged
from holdfast.kit.activity import ActivityMinute
from holdfast.kit.channels import Channel, Watch
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox.models import EndpointCircuit
from holdfast.kit.runs import KIT as RUN_MODELS
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.model import Caller, Document
from holdfast.runtime import Runtime
from holdfast.store import Store

STREAMS_MAX: Final = 200
STREAMS_PER_CALLER_MAX: Final = 10
APART_S: Final = 0.25
EVERYTHING_S: Final = 15.0
TENANT_S: Final = 5.0
STREAM_S_MAX: Final = 600.0
EVERYTHING: Final = "*"
_WAIT_S: Final = 3_600.0
_KIT: Final[Mapping[str, Sequence[type[Document]]]] = {
    "channels": (Channel, Watch),
    "inbox": (InboxItem,),
    "pulse": (ActivityMinute,),
    "schedules": (Schedule, SlotRun),
    "tokens": (ApiToken,),
    "users": (User,),
}


def topics_of(runtime: Runtime) -> dict[str, Sequence[type[Document]]]:
    """The kit's topics, also for what services keep of it, and one for each service, by its address."""
    outboxes = [outbox.models for outbox in runtime.outboxes.values()]
    runs = [RUN_MODELS, *(one.models for parts in runtime.parts.values() for one in parts.runs)]
    return {
        **_KIT,
        "connections": [one.kind for one in runtime.connections_in.values()],
        "audit": [trail.models.head for trail in runtime.audits.values()],
        "dead-letters": [models.dead_letter for models in outboxes],
        "deliveries": [models.delivery for models in outboxes],
        "endpoints": [*(models.endpoint for models in outboxes), EndpointCircuit],
        "runs": [cls for models in runs for cls in (models.run, models.step)],
        **{one.address: one.documents for one in runtime.services if one.documents},
    }


class ChangeStream:
    """Listens while anybody does, and tells everybody.

    Example: `async for topics in changes.stream(caller): ...`
    """

    def __init__(self, store: Store, topics: Mapping[str, Sequence[type[Document]]]) -> None:
        self._store, self._clock, self._topics = store, store.clock, topics
        self._streams: set[_Stream] = set()
        self.listening: list[asyncio.Task[None]] = []
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End all streams: the process stops."""
        self._closed.set()

    def stream(self, caller: Caller) -> AsyncIterator[frozenset[str]]:
        """Sets of topics as they change; empty ones are signs of life. Ends by itself after a while, so that
        whoever listens must show again that they may. Raises `RetryLaterError` where too many listen."""
        one = _Stream(caller.user_id or "", across_tenants=privileged(caller))
        self._check_room(one)
        return self._told(one)

    def _check_room(self, one: _Stream) -> None:
        if sum(other.caller == one.caller for other in self._streams) >= STREAMS_PER_CALLER_MAX:
            raise TooManyRequestsError(
                f"this caller has {STREAMS_PER_CALLER_MAX} streams already; close one", after_s=10
            )
        if self._closed.is_set() or len(self._streams) >= STREAMS_MAX:
            raise RetryLaterError("too many listen for changes already; ask again later", after_s=10)

    async def _told(self, one: _Stream) -> AsyncIterator[frozenset[str]]:
        try:
            self._check_room(one)
        except RetryLaterError:
            return  # Of many that were checked at once, those without room end here; their clients ask again.
        self._streams.add(one)
        self._listen()
        now_s = self._clock.monotonic()
        end_s, everything_s = now_s + STREAM_S_MAX, now_s + one.everything_s
        try:
            yield frozenset()
            while not self._closed.is_set() and now_s < end_s:
                await wait_for_wake(self._clock, max(0.0, everything_s - now_s), wake=one, stop=self._closed)
                # What follows at once is told along.
                await wait_for_wake(self._clock, APART_S, stop=self._closed)
                topics, now_s = one.taken(), self._clock.monotonic()
                # Also where notifications never end: one that was missed may be any topic's.
                if now_s >= everything_s:
                    topics, everything_s = frozenset({EVERYTHING}), now_s + one.everything_s
                yield topics
        finally:
            self._streams.discard(one)
            if not self._streams:
                self._fall_silent()

    def _listen(self) -> None:
        if not self.listening:
            self.listening = [asyncio.create_task(self._hear(topic)) for topic in self._topics]

    def _fall_silent(self) -> None:
        for task in self.listening:
            task.cancel()
        self.listening = []

    async def _hear(self, topic: str) -> None:
        subscription = self._store.watch(*self._topics[topic])
        try:
            while True:
                if await subscription.wait(_WAIT_S):
                    for one in self._streams:
                        if one.across_tenants:
                            one.notify(topic)
        finally:
            subscription.close()


class _Stream:
    """Changes that one listener has not received yet."""

    def __init__(self, caller: str, *, across_tenants: bool) -> None:
        self.caller, self.across_tenants = caller, across_tenants
        self.everything_s = EVERYTHING_S if across_tenants else TENANT_S
        self._topics: set[str] = set()
        self._notified = asyncio.Event()

    def notify(self, topic: str) -> None:
        self._topics.add(topic)
        self._notified.set()

    async def wait(self, timeout_s: float) -> bool:
        async with asyncio.timeout(timeout_s):
            await self._notified.wait()
        return True

    def taken(self) -> frozenset[str]:
        topics, self._topics = frozenset(self._topics), set()
        self._notified.clear()
        return topics

    def close(self) -> None:
        self._notified.set()
