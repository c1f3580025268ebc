"""Sending events: one delivery per endpoint, in the commit of what caused them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from holdfast import ids, tracing
from holdfast.errors import HoldfastError, InvalidError, TooLargeError
from holdfast.kit import NO_TENANT
from holdfast.kit.outbox import ordering
from holdfast.kit.outbox.direct_handoff import HandoffPlaces
from holdfast.kit.outbox.dispatcher import Dispatcher
from holdfast.kit.outbox.models import (
    DISABLED_REASON,
    OUTBOX_MODELS,
    Delivery,
    Endpoint,
    OutboxModels,
    delivery_id,
)
from holdfast.kit.outbox.send_batch import SendBatch, creates
from holdfast.store import Store, Transaction, Write, create
from holdfast.store.commit import Outcome

BODY_BYTES_MAX: Final = 262_144


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is sent: every attempt sends the same bytes.

    `fields` are those that a service's own delivery class adds.

    Example: `Event(type="invoice.paid", body=b'{"id":"in_1"}')`
    """

    type: str
    body: bytes
    id: str = msgspec.field(default_factory=ids.ulid)
    occurred_at: datetime | None = None
    content_type: str = "application/json"
    fields: Mapping[str, Any] = {}


class Outbox:
    """Commits events' deliveries; the dispatcher, here or in another process, delivers them.

    Example:
        outbox = Outbox(store.tenant("acme"))
        await acme.commit(put(invoice), *outbox.writes(event, [endpoint]))
    """

    def __init__(
        self,
        store: Store,
        *,
        local_dispatcher: Dispatcher | None = None,
        body_bytes_max: int = BODY_BYTES_MAX,
        models: OutboxModels = OUTBOX_MODELS,
    ) -> None:
        self._tenant = store.tenant_id or NO_TENANT
        self._store = store.tenant(self._tenant)
        self._models = models
        self._handoff = local_dispatcher.handoff if local_dispatcher is not None else None
        self.body_bytes_max = body_bytes_max
        self._batch = SendBatch(self._store, self._handoff)
        self._sending = 0  # callers whose commits are under way
        self._locks: dict[str, asyncio.Lock] = {}

    def writes(self, event: Event, endpoints: Iterable[Endpoint]) -> list[Write]:
        """Return the writes of an event's deliveries for the caller's commit; a repeated event conflicts.

        An ordered endpoint needs a read first: use `add` for it.
        """
        deliveries = self._deliveries(event, endpoints)
        for delivery, is_ordered in deliveries:
            if is_ordered:
                raise InvalidError(
                    f"endpoint {delivery.endpoint_id!r} keeps order: use add(tx, ...) or send(...)"
                )
        return [create(delivery) for delivery, _ in deliveries]

    async def add(self, tx: Transaction, event: Event, endpoints: Iterable[Endpoint]) -> list[str]:
        """Add an event's deliveries to the caller's transaction; return their ids.

        With a `local_dispatcher`, what it has room for is claimed in that commit and sent right after it.
        """
        chosen = list(endpoints)
        if self._handoff is not None:
            await self._handoff.load(chosen)
        deliveries = self._deliveries(event, chosen)
        if self._handoff is not None:
            unordered = [delivery for delivery, is_ordered in deliveries if not is_ordered]
            (places,) = self._handoff.claim([unordered])
            tx.on_end(lambda committed: self._end(places, committed))
        for delivery, is_ordered in deliveries:
            if is_ordered:
                await ordering.join(tx, delivery, models=self._models, now=delivery.created_at)
            tx.write(create(delivery))
        return [delivery.id for delivery, _ in deliveries]

    async def send(self, event: Event, endpoints: Iterable[Endpoint], *also: Write) -> list[str]:
        """Commit an event's deliveries together with the caller's writes; return the deliveries' ids.

        With a `local_dispatcher`, what it has room for is claimed in that commit and sent at once.
        """
        chosen, handoff = list(endpoints), self._handoff
        ordered = [endpoint.id for endpoint in chosen if endpoint.fifo]
        if ordered:
            return await self._send_ordered(sorted(ordered), event, chosen, also)
        if handoff is not None and not handoff.has_loaded(chosen):
            await handoff.load(chosen)
        # Sends of one iteration of the event loop share their time, which is then stored once for all.
        deliveries = self._new_deliveries(event, chosen, self._batch.since or self._store.clock.now())
        self._sending += 1
        try:
            if deliveries and not also and (self._sending > 1 or self._batch.expects_others):
                await self._batch.add(deliveries)
            else:
                await self._commit(deliveries, also)
        finally:
            self._sending -= 1
        return [delivery.id for delivery in deliveries]

    async def _commit(self, deliveries: list[Delivery], also: Sequence[Write]) -> None:
        """Commit deliveries with the caller's writes; alone, without waiting for other callers."""
        places = () if self._handoff is None else self._handoff.claim([deliveries])[0]
        committed = False
        try:
            if deliveries or also:
                await self._store.commit(*also, *[create(delivery) for delivery in deliveries])
            committed = True
        finally:
            self._end(places, committed)

    def _end(self, places: HandoffPlaces, committed: bool) -> None:
        if self._handoff is not None:
            self._handoff.end(places, committed=committed)

    async def send_many(
        self, events: Iterable[Event], endpoints: Iterable[Endpoint]
    ) -> list[list[str] | HoldfastError]:
        """Commit many events at once, each by itself; return the deliveries' ids or the refusal of each.

        Example: `results = await outbox.send_many(events, [endpoint])`
        """
        chosen = list(endpoints)
        if any(endpoint.fifo for endpoint in chosen):
            return [await self._sent(event, chosen) for event in events]
        if self._handoff is not None:
            await self._handoff.load(chosen)
        now = self._store.clock.now()
        batch = [
            [self._delivery(event, endpoint, now) for endpoint in chosen]
            if len(event.body) <= self.body_bytes_max
            else self._oversize(event)
            for event in events
        ]
        commits = [deliveries for deliveries in batch if not isinstance(deliveries, HoldfastError)]
        outcomes = iter(await self._commit_each(commits))
        return [
            one if isinstance(one, HoldfastError) else next(outcomes) or [delivery.id for delivery in one]
            for one in batch
        ]

    async def _sent(self, event: Event, endpoints: list[Endpoint]) -> list[str] | HoldfastError:
        try:
            return await self.send(event, endpoints)
        except HoldfastError as refusal:
            return refusal

    async def _commit_each(self, commits: list[list[Delivery]]) -> list[HoldfastError | None]:
        """Commit each list of deliveries by itself; return why not, where one was refused."""
        claimed = [] if self._handoff is None else self._handoff.claim(commits)
        refusals: list[HoldfastError | None] | None = None
        try:
            results = await self._settle(commits)
            refusals = [result if isinstance(result, HoldfastError) else None for result in results]
            return refusals
        finally:
            for number, places in enumerate(claimed):
                self._end(places, refusals is not None and refusals[number] is None)

    async def _settle(self, commits: list[list[Delivery]]) -> list[Outcome]:
        """Create the deliveries of each commit; return a result or an error for each."""
        if all(len(deliveries) == 1 for deliveries in commits):
            return await self._store.settle_creates([delivery for (delivery,) in commits])
        writes = creates(commits)
        made = iter(await self._store.settle([some for some in writes if isinstance(some, list)]))
        return [next(made) if isinstance(some, list) else some for some in writes]

    async def _send_ordered(
        self, ordered: list[str], event: Event, endpoints: list[Endpoint], also: Sequence[Write]
    ) -> list[str]:
        """Send one at a time for each ordered endpoint: callers in one process then never conflict."""

        async def act(tx: Transaction) -> list[str]:
            tx.write(*also)
            return await self.add(tx, event, endpoints)

        async with contextlib.AsyncExitStack() as locks:
            for name in ordered:
                await locks.enter_async_context(self._locks.setdefault(name, asyncio.Lock()))
            return await self._store.transact(act, attempts=50)

    def _deliveries(self, event: Event, endpoints: Iterable[Endpoint]) -> list[tuple[Delivery, bool]]:
        """Return a delivery for each endpoint, and whether it has to join the endpoint's order."""
        chosen = list(endpoints)
        deliveries = self._new_deliveries(event, chosen, self._store.clock.now())
        return [
            (delivery, endpoint.fifo and delivery.state == "pending")
            for endpoint, delivery in zip(chosen, deliveries, strict=True)
        ]

    def _new_deliveries(self, event: Event, endpoints: Sequence[Endpoint], now: datetime) -> list[Delivery]:
        if len(event.body) > self.body_bytes_max:
            raise self._oversize(event)
        return [self._delivery(event, endpoint, now) for endpoint in endpoints]

    def _oversize(self, event: Event) -> TooLargeError:
        return TooLargeError(
            f"an event's body takes at most {self.body_bytes_max:,} bytes, not {len(event.body):,}", "body"
        )

    def _delivery(self, event: Event, endpoint: Endpoint, now: datetime) -> Delivery:
        kind = self._models.delivery
        make = partial(_make_with, event.fields, kind) if event.fields else kind
        delivery = make(
            id=delivery_id(event.id, endpoint.id), tenant_id=self._tenant, event_id=event.id,
            endpoint_id=endpoint.id, event_type=event.type, body=event.body,
            occurred_at=event.occurred_at or now, created_at=now, content_type=event.content_type,
            next_attempt_at=now,
        )  # fmt: skip
        if tracing.on:
            delivery.trace = tracing.traceparent()
        reason = ""
        if endpoint.status == "disabled":
            reason = DISABLED_REASON
        elif not endpoint.takes(event.type):
            reason = f"the endpoint takes no {event.type}"
        if reason:
            delivery.status, delivery.reason = delivery.stored_state("skipped"), reason
            delivery.next_attempt_at, delivery.finished_at = None, now
        return delivery


def _make_with(fields: Mapping[str, Any], kind: type[Delivery], /, **given: Any) -> Delivery:
    return kind(**given, **fields)
