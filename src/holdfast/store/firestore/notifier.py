"""Bells: rung directly in this process, and through a small document per collection in others.

After commits a process writes the collection's wake document, behind the callers' backs and at most
so often; watchers elsewhere listen to it. A lost ring costs a poll, so nothing here is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError

from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.firestore import wire
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.values import encode

COLLECTION: Final = "_holdfast_wake"
# Claimed collections feed workers, who want to know at once; others are watched by people.
PAUSE_CLAIMED_S: Final = 0.02
PAUSE_S: Final = 1.0
RELISTEN_S_MIN: Final = 0.1
RELISTEN_S_MAX: Final = 30.0


class FirestoreSubscription:
    """What `watch` gives: rung by the tower, waited on by one task."""

    def __init__(self, tower: SnapshotNotifier, schemas: Sequence[Schema[Any]]) -> None:
        self._notifier = tower
        self.schemas = frozenset(schemas)
        self._rung = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the ring.
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def notify(self) -> None:
        self._rung.set()

    def close(self) -> None:
        self._notifier.remove(self)


class SnapshotNotifier:
    """All bells of one engine, the listeners that ring them and the hands that ring others'."""

    def __init__(self, client: FirestoreClient, catalog: Catalog) -> None:
        self._client = client
        self._catalog = catalog
        self._me = secrets.token_hex(8)
        self._notifier: set[FirestoreSubscription] = set()
        self._listeners: dict[Schema[Any], asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._publishers: dict[Schema[Any], _Publisher] = {}

    def watch(self, schemas: Sequence[Schema[Any]]) -> FirestoreSubscription:
        subscription = FirestoreSubscription(self, schemas)
        self._notifier.add(subscription)
        for schema in subscription.schemas - self._listeners.keys():
            self._listeners[schema] = asyncio.create_task(self._listen(schema))
        return subscription

    def remove(self, subscription: FirestoreSubscription) -> None:
        self._notifier.discard(subscription)
        wanted = {schema for other in self._notifier for schema in other.schemas}
        for schema in subscription.schemas - wanted:
            self._end(schema)

    def notify(self, schemas: Iterable[Schema[Any]]) -> None:
        """After a commit of this engine to these collections."""
        for schema in set(schemas):
            self._ring_here(schema)
            if schema not in self._publishers:
                pause_s = PAUSE_CLAIMED_S if schema.claim else PAUSE_S
                self._publishers[schema] = _Publisher(
                    self._client, self._name(schema), me=self._me, pause_s=pause_s
                )
            self._publishers[schema].notify()

    async def close(self) -> None:
        await asyncio.gather(*(ringer.close() for ringer in self._publishers.values()))
        for schema in list(self._listeners):
            self._end(schema)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, schema: Schema[Any]) -> None:
        task = self._listeners.pop(schema, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _ring_here(self, schema: Schema[Any]) -> None:
        for subscription in self._notifier:
            if schema in subscription.schemas:
                subscription.notify()

    def _name(self, schema: Schema[Any]) -> str:
        return f"{self._client.address.root}/{COLLECTION}/{self._catalog.table(schema)}"

    async def _listen(self, schema: Schema[Any]) -> None:
        """Ring for what others rang since the watch began; streams end by themselves now and then."""
        seen_ns, pause_s = time.time_ns(), RELISTEN_S_MIN
        while True:
            with contextlib.suppress(GoogleAPICallError):
                async for answer in self._client.listen([self._name(schema)]):
                    pause_s = RELISTEN_S_MIN
                    document = answer.document_change.document
                    rung_ns = wire.nanoseconds(document.update_time)
                    if rung_ns > seen_ns and document.fields["by"].string_value != self._me:
                        self._ring_here(schema)
                    seen_ns = max(seen_ns, rung_ns)
            await asyncio.sleep(pause_s)
            pause_s = min(RELISTEN_S_MAX, pause_s * 2)


class _Publisher:
    """Writes one wake document: at once, then not again before the pause is over."""

    def __init__(self, client: FirestoreClient, name: str, *, me: str, pause_s: float) -> None:
        self._client = client
        self._name = name
        self._me = me
        self._pause_s = pause_s
        self._wanted = False
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def notify(self) -> None:
        self._wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        while self._wanted:
            self._wanted = False
            self._count += 1
            fields = {"by": encode(self._me), "count": encode(self._count)}
            with contextlib.suppress(GoogleAPICallError):
                await self._client.commit([wire.Write(update=wire.Document(name=self._name, fields=fields))])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._pause_s)
