"""Receiving: verify, store, acknowledge. Nothing is processed before it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast import tracing
from holdfast.errors import (
    AlreadyExistsError,
    DeclarationError,
    NotOursError,
    UnverifiedError,
)
from holdfast.kit import ordered_queue
from holdfast.kit.inbox.body import INLINE_BYTES_MAX, discard_body, load_body, store_body
from holdfast.kit.inbox.models import InboxItem, InboxQueue, Status
from holdfast.kit.inbox.reconciliation import LOOK_BACK_S, Reconciliation, reconcile
from holdfast.kit.inbox.source import Source, id_segment, new_item
from holdfast.kit.inbox.worker import InboxWorker
from holdfast.store import Committed, Query, Store, Transaction, Write, create, patch
from holdfast.store.commit import Outcome
from holdfast.webhook_verifier import Verify

REPLAYABLE: Final = ("done", "parked", "ignored")


class Receipt(msgspec.Struct, frozen=True):
    """The stored item of a message, which may be a duplicate."""

    item_id: str
    duplicate: bool


class AcceptedMessage(msgspec.Struct, eq=False):
    """A verified message that is about to be stored; `settle` must be called once its outcome is known.

    `reserved` is the future of a worker that reserved it.
    """

    item: InboxItem
    reserved: asyncio.Future[None] | None = None

    def settle(self, outcome: Outcome | None) -> bool:
        """Return whether it was stored, False for a duplicate, or raise what refused it.

        The worker that reserved it is told; None where it was not stored, or nobody knows.
        """
        stored = isinstance(outcome, Committed)
        if self.reserved is not None:
            _tell(self.reserved, stored=stored)
        if outcome is None or isinstance(outcome, (Committed, AlreadyExistsError)):
            return stored
        raise outcome


class Inbox:
    """Receives messages. `receive` returns once the message is durable: then answer 2xx.

    A `local_worker` with room for a message gets it without a claim.

    Example: `received = await inbox.receive(github, headers, body)`
    """

    def __init__(self, store: Store, *, local_worker: InboxWorker | None = None) -> None:
        self._store = store.privileged()
        self._clock = store.clock
        self.local_worker = local_worker

    def receive(
        self, source: Source, headers: Mapping[str, str], body: bytes, *, trace: str = ""
    ) -> Coroutine[Any, Any, Receipt]:
        """Verify and store a message; the same one again is a duplicate, not an error."""
        receive = self._receive_traced if tracing.on else self._receive
        return receive(source, headers, body, trace)

    async def _receive_traced(
        self, source: Source, headers: Mapping[str, str], body: bytes, trace: str
    ) -> Receipt:
        parent = trace or headers.get(tracing.HEADER, "")
        with tracing.span(f"receive {source.name}", kind="server", parent=parent, source=source.name):
            return await self._receive(source, headers, body, tracing.traceparent())

    def accept(
        self, source: Source, messages: Sequence[tuple[Mapping[str, str], bytes]]
    ) -> list[AcceptedMessage | Exception | None]:
        """Verify messages that came together, for a caller that is no coroutine and uses `store_accepted`.

        For each, headers and body, what refuses it, or None where more than its commit must be waited for,
        which takes `receive`: to find its tenant or whether it is meant for this source, to give it a place
        in a queue, to store a large body; or for the end of a span.
        """
        if tracing.on or source.ordered or source.tenant_of is not None:
            return [None] * len(messages)
        worker, now, verify = self.local_worker, self._clock.now(), source.verify
        if worker is not None and worker.room < 1:
            worker = None  # asked once: nothing else runs meanwhile
        results: list[AcceptedMessage | Exception | None] = []
        for headers, body in messages:
            try:
                results.append(_accept(source, headers, body, now=now, verify=verify, worker=worker))
            except Exception as fault:
                results.append(fault)
        return results

    def store_accepted(self, messages: Sequence[AcceptedMessage]) -> asyncio.Future[list[Outcome]]:
        """Start to store messages, each by itself; the result has the outcome of each, for its `settle`.

        Raises where one of them is invalid, and then stores none.
        """
        return self._store.start_creates([message.item for message in messages])

    async def _receive(self, source: Source, headers: Mapping[str, str], body: bytes, trace: str) -> Receipt:
        source.check_size(body)
        now = self._clock.now()
        try:
            verified = source.verify(headers, body, now)
        except UnverifiedError:
            if source.is_ours is not None and not await source.is_ours(headers):
                raise NotOursError("not addressed to this source") from None
            raise
        tenant_id = source.tenant_of and verified.account and await source.tenant_of(verified.account)
        item = new_item(source, verified, tenant_id=tenant_id or source.tenant_id, now=now, headers=headers)
        item.trace = trace
        try:
            receipt = await self._store_item(item, body)
        except AlreadyExistsError:
            receipt = Receipt(_item_id(item.source, item.message_id), duplicate=True)
        if receipt.duplicate:
            await discard_body(self._store, item)
        return receipt

    async def _store_item(self, item: InboxItem, body: bytes) -> Receipt:
        chunks: list[Write] = []
        if len(body) <= INLINE_BYTES_MAX:
            item.body, item.body_bytes = body, len(body)
        elif await self._store.get(InboxItem, _item_id(item.source, item.message_id)) is None:
            chunks = await store_body(self._store, item, body)
        else:
            raise AlreadyExistsError("received before; its chunks would be stored for nothing")
        if item.queue:
            await self._store.transact(lambda tx: self._join(tx, item, chunks), attempts=50)
            return Receipt(item.id, duplicate=False)
        return await self._store_due(item, chunks)

    async def _store_due(self, item: InboxItem, chunks: Sequence[Write]) -> Receipt:
        """Store an item that is due at once, or reserved by the worker of this process."""
        item.due_at, outcome = item.received_at, None
        reserved = None if self.local_worker is None or chunks else self.local_worker.reserve(item)
        message = AcceptedMessage(item, reserved)
        try:
            (outcome,) = await self._store.settle([[create(item), *chunks]])
        finally:
            stored = message.settle(outcome)
        return Receipt(item.id, duplicate=not stored)

    async def _join(self, tx: Transaction, item: InboxItem, chunks: Sequence[Write]) -> None:
        """Give an ordered item its place; only the head of a queue is due."""
        if await tx.get(InboxItem, _item_id(item.source, item.message_id)) is not None:
            raise AlreadyExistsError("received before")
        item.turn, is_head = await ordered_queue.join(tx, InboxQueue, item.queue, tenant_id=item.tenant_id)
        item.due_at = item.received_at if is_head else None
        tx.write(create(item), *chunks)

    async def reconcile(self, source: Source) -> Reconciliation:
        """Ask the provider again for what it could not deliver in the last days and what is not here."""
        if source.delivery_log is None:
            raise DeclarationError(f"source {source.name!r} has no delivery_log to reconcile with")
        since = self._clock.now() - timedelta(seconds=LOOK_BACK_S)

        async def missing(message_ids: Sequence[str]) -> set[str]:
            ids = [_item_id(source.name, id_segment(id)) for id in message_ids]
            stored = await self._store.get_many(InboxItem, ids)
            return {id for id, one in zip(message_ids, stored, strict=True) if one is None}

        return await reconcile(source.delivery_log, since=since, missing=missing)

    async def body(self, item: InboxItem) -> bytes:
        """Return the whole body of a message, wherever it is stored."""
        return await load_body(self._store, item)

    async def replay(self, ids: Iterable[str], *, dry_run: bool = False) -> list[str]:
        """Process finished or parked items again; return the ids that will be (or would)."""
        found = await self._store.get_many(InboxItem, ids)
        again = [one.doc.id for one in found if one is not None and one.doc.status in REPLAYABLE]
        return again if dry_run else [id for id in again if await self.replay_one(id)]

    async def replay_one(self, id: str, transaction: Transaction | None = None) -> bool:
        """Process one again, in the caller's transaction, if given; False where it waits or is processed
        already, or is gone. An ordered one waits for its turn."""
        if transaction is None:
            return await self._store.transact(lambda own: self.replay_one(id, own))
        found = await transaction.get(InboxItem, id)
        if found is None or found.doc.status not in REPLAYABLE:
            return False
        item = found.doc
        is_head = not item.queue or await ordered_queue.rejoin(
            transaction, InboxQueue, item.queue, tenant_id=item.tenant_id
        )
        changes = {
            "status": "pending", "due_at": self._clock.now() if is_head else None, "tries": 0, "reason": "",
            "finished_at": None, "returned": item.fence,
        }  # fmt: skip
        transaction.write(patch(InboxItem, id, changes=changes))
        return True

    async def page(
        self, status: Status, *, tenant_id: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[InboxItem], str | None]:
        """Return items of one status, newest first, of one tenant or of all."""
        query = (
            Query(InboxItem).where("status", "==", status).order_by("-received_at").limit(limit).after(cursor)
        )
        page = await (self._store if tenant_id is None else self._store.tenant(tenant_id)).query(query)
        return page.docs, page.cursor


def _tell(reserved: asyncio.Future[None], *, stored: bool) -> None:
    """Let the worker that reserved an item go on, or give its place back."""
    if not stored:
        reserved.cancel()
    elif not reserved.done():  # the worker may have been ended meanwhile
        reserved.set_result(None)


def _accept(
    source: Source,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: datetime,
    verify: Verify,
    worker: InboxWorker | None,
) -> AcceptedMessage | None:
    if len(body) > INLINE_BYTES_MAX:
        return None
    source.check_size(body)
    try:
        verified = verify(headers, body, now)
    except UnverifiedError:
        if source.is_ours is not None:
            return None
        raise
    item = new_item(source, verified, tenant_id=source.tenant_id, now=now, headers=headers, body=body)
    return AcceptedMessage(item, None if worker is None else worker.reserve(item))


def _item_id(source: str, message_id: str) -> str:
    return f"{source}_{message_id}"
