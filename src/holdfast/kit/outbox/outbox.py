"""Putting events out: one delivery per endpoint, in the commit of whatever caused them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast import ids, tracing
from holdfast.errors import InvalidError, TooLargeError
from holdfast.kit import NO_TENANT
from holdfast.kit.outbox import ordering
from holdfast.kit.outbox.dispatcher import Dispatcher
from holdfast.kit.outbox.models import OUTBOX_MODELS, Delivery, Endpoint, OutboxModels, delivery_id
from holdfast.store import Store, Transaction, Write, create

BODY_BYTES_MAX: Final = 262_144


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, as it will be sent: the body goes out byte for byte, on every attempt.

    `fields` are those that a service's own class of deliveries adds.

    Example: `Event(type="invoice.paid", body=b'{"id":"in_1"}')`
    """

    type: str
    body: bytes
    id: str = msgspec.field(default_factory=ids.ulid)
    occurred_at: datetime | None = None
    content_type: str = "application/json"
    fields: Mapping[str, Any] = {}


class Outbox:
    """Where events are put. The dispatcher, here or in another process, delivers them.

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
        self._locks: dict[str, asyncio.Lock] = {}

    def writes(self, event: Event, endpoints: Iterable[Endpoint]) -> list[Write]:
        """The deliveries of an event, for the caller's own commit; the same event again is refused there.

        An ordered endpoint must be looked at first: use `add` for it.
        """
        self._check(event)
        now = self._store.clock.now()
        made: list[Write] = []
        for endpoint in endpoints:
            delivery = self._delivery(event, endpoint, now)
            if endpoint.fifo and delivery.status == "pending":
                raise InvalidError(f"endpoint {endpoint.id!r} keeps order: use add(tx, ...) or send(...)")
            made.append(create(delivery))
        return made

    async def add(self, tx: Transaction, event: Event, endpoints: Iterable[Endpoint]) -> list[str]:
        """The same inside the caller's transaction, ordered endpoints too; gives the deliveries' ids."""
        self._check(event)
        now = self._store.clock.now()
        made: list[str] = []
        for endpoint in endpoints:
            delivery = self._delivery(event, endpoint, now)
            if endpoint.fifo and delivery.status == "pending":
                await ordering.join(tx, delivery, models=self._models, now=now)
            tx.write(create(delivery))
            made.append(delivery.id)
        return made

    async def send(self, event: Event, endpoints: Iterable[Endpoint], *also: Write) -> list[str]:
        """Commit an event's deliveries together with the caller's writes; return the deliveries' ids.

        With a `local_dispatcher`, what it has room for is claimed in that commit and sent at once.
        """
        chosen = list(endpoints)
        ordered = sorted([endpoint.id for endpoint in chosen if endpoint.fifo])
        if ordered:
            return await self._send_ordered(ordered, event, chosen, also)
        self._check(event)
        if self._handoff is not None:
            await self._handoff.load(chosen)
        now = self._store.clock.now()
        deliveries = [self._delivery(event, endpoint, now) for endpoint in chosen]

        async def commit() -> None:
            if deliveries or also:
                await self._store.commit(*also, *[create(delivery) for delivery in deliveries])

        await (commit() if self._handoff is None else self._handoff.commit(deliveries, commit, now=now))
        return [delivery.id for delivery in deliveries]

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

    def _check(self, event: Event) -> None:
        if len(event.body) > self.body_bytes_max:
            raise TooLargeError(
                f"an event's body takes at most {self.body_bytes_max:,} bytes, not {len(event.body):,}",
                "body",
            )

    def _delivery(self, event: Event, endpoint: Endpoint, now: datetime) -> Delivery:
        delivery = self._models.delivery(
            id=delivery_id(event.id, endpoint.id), tenant_id=self._tenant, event_id=event.id,
            endpoint_id=endpoint.id, event_type=event.type, body=event.body,
            occurred_at=event.occurred_at or now, created_at=now, content_type=event.content_type,
            next_attempt_at=now, **event.fields,
        )  # fmt: skip
        if tracing.on:
            delivery.trace = tracing.traceparent()
        why = self._why_skipped(event, endpoint)
        if why:
            delivery.status, delivery.reason = "skipped", why
            delivery.next_attempt_at, delivery.finished_at = None, now
        return delivery

    def _why_skipped(self, event: Event, endpoint: Endpoint) -> str:
        if endpoint.status == "disabled":
            return "the endpoint is disabled"
        return "" if endpoint.takes(event.type) else f"the endpoint takes no {event.type}"
