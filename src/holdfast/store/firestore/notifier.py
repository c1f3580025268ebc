"""Notifies other processes through one small document per collection.

After commits a process writes the collection's wake document, in the background and at most so often;
subscribers elsewhere listen to it. A lost notification costs a poll, so nothing here is retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Set
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError

from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.firestore import wire
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.values import encode
from holdfast.store.notifier import CommitNotifier, CommitSubscription

COLLECTION: Final = "_holdfast_wake"
# Claimed collections feed workers, which want to know at once; others are watched by people.
PAUSE_CLAIMED_S: Final = 0.02
PAUSE_S: Final = 1.0
RELISTEN_S_MIN: Final = 0.1
RELISTEN_S_MAX: Final = 30.0


class SnapshotNotifier(CommitNotifier):
    """One listener per subscribed collection, one publisher per written one."""

    def __init__(self, client: FirestoreClient, catalog: Catalog) -> None:
        super().__init__()
        self._client, self._catalog = client, catalog
        self._sender = secrets.token_hex(8)
        self._listeners: dict[Schema[Any], asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._publishers: dict[Schema[Any], _Publisher] = {}
        self._closed = False

    def listen(self) -> None:
        if self._closed:
            return
        for schema in self._subscribed() - self._listeners.keys():
            self._listeners[schema] = asyncio.create_task(self._listen(schema))

    def unsubscribe(self, subscription: CommitSubscription) -> None:
        super().unsubscribe(subscription)
        for schema in subscription.schemas - self._subscribed():
            self._end(schema)

    def publish(self, schemas: Set[Schema[Any]]) -> None:
        """Notify this process and the others of a commit to these collections."""
        self.notify(schemas)
        for schema in schemas:
            if schema not in self._publishers:
                pause_s = PAUSE_CLAIMED_S if schema.claim else PAUSE_S
                self._publishers[schema] = _Publisher(
                    self._client, self._name(schema), sender=self._sender, pause_s=pause_s
                )
            self._publishers[schema].notify()

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(publisher.close() for publisher in self._publishers.values()))
        for schema in list(self._listeners):
            self._end(schema)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _subscribed(self) -> set[Schema[Any]]:
        return {schema for subscription in self._subscriptions for schema in subscription.schemas}

    def _end(self, schema: Schema[Any]) -> None:
        task = self._listeners.pop(schema, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _name(self, schema: Schema[Any]) -> str:
        return f"{self._client.address.root}/{COLLECTION}/{self._catalog.table(schema)}"

    async def _listen(self, schema: Schema[Any]) -> None:
        """Notify of what others published since the subscription; streams end by themselves at times."""
        seen_ns, pause_s = time.time_ns(), RELISTEN_S_MIN
        while True:
            with contextlib.suppress(GoogleAPICallError):
                async for response in self._client.listen([self._name(schema)]):
                    pause_s = RELISTEN_S_MIN
                    document = response.document_change.document
                    published_ns = wire.nanoseconds(document.update_time)
                    if published_ns > seen_ns and document.fields["by"].string_value != self._sender:
                        self.notify({schema})
                    seen_ns = max(seen_ns, published_ns)
            await asyncio.sleep(pause_s)
            pause_s = min(RELISTEN_S_MAX, pause_s * 2)


class _Publisher:
    """Writes one wake document: at once, then not again before the pause is over."""

    def __init__(self, client: FirestoreClient, name: str, *, sender: str, pause_s: float) -> None:
        self._client, self._name, self._sender, self._pause_s = client, name, sender, pause_s
        self._pending = False
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def notify(self) -> None:
        self._pending = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        while self._pending:
            self._pending = False
            self._count += 1
            fields = {"by": encode(self._sender), "count": encode(self._count)}
            with contextlib.suppress(GoogleAPICallError):
                await self._client.commit([wire.Write(update=wire.Document(name=self._name, fields=fields))])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._pause_s)
