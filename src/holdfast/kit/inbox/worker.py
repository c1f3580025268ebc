"""Working on what came in: each item's effects and its `done` mark land in one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final

import msgspec
import structlog

from holdfast import tracing
from holdfast.backoff import BackOff
from holdfast.errors import HoldfastError, LeaseLostError, RetryLaterError
from holdfast.kit import ordered_queue
from holdfast.kit.inbox.models import InboxItem, InboxLane
from holdfast.kit.worker_loop import WorkerLoop
from holdfast.store import Query, Snapshot, Store, Transaction, Write, put

log = structlog.get_logger("holdfast.inbox")

Handler = Callable[[InboxItem, Transaction], Awaitable[None]]
POLL_S: Final = 5.0
ATTEMPTS: Final = 30
REASON_CHARACTERS_MAX: Final = 2_000


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How an inbox is worked on."""

    concurrency: int = 32
    lease_s: float = 60.0
    time_limit_s: float = 50.0
    tries_max: int = 5
    back_off: BackOff = BackOff(first_s=1.0, wait_s_max=300.0)


_LIMITS: Final = InboxLimits()


class InboxWorker(WorkerLoop[InboxItem]):
    """Claims items and hands them to their source's handler.

    A handler reads and writes through the transaction it is given. It may run more than once for an
    item; its commit takes effect once.

    Example: `InboxWorker(store, {"github": on_github}).run(stop)`
    """

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        *,
        limits: InboxLimits = _LIMITS,
        owner: str = "",
    ) -> None:
        super().__init__(
            store.privileged(), InboxItem, concurrency=limits.concurrency, lease_s=limits.lease_s,
            poll_s=POLL_S, owner=owner,
        )  # fmt: skip
        self._handlers, self._limits = handlers, limits
        self.handled = 0

    async def _act(self, claimed: Snapshot[InboxItem], until_s: float) -> None:
        item = claimed.doc
        try:
            await self._attempt(claimed)
            self.handled += 1
        except LeaseLostError:
            log.warning("inbox item was taken over", item=item.id)
        except Exception as fault:
            if not isinstance(fault, HoldfastError):
                log.warning("inbox handler failed", item=item.id, source=item.source, error=repr(fault))
            await self._set_aside(claimed, fault)

    async def _attempt(self, claimed: Snapshot[InboxItem]) -> None:
        item = claimed.doc
        handler = self._handlers.get(item.source)
        if handler is None:
            raise RetryLaterError(f"nobody here handles {item.source!r}", after_s=60)
        # A process that dies leaves no count behind but the fencing numbers it was given.
        if item.fence - item.returned > self._limits.tries_max:
            await self._park(claimed, "the process died while working on it, every time")
            return

        async def act(tx: Transaction) -> None:
            async with asyncio.timeout(self._limits.time_limit_s):
                await _handled(handler, item, tx)
            now = self._clock.now()
            done = msgspec.structs.replace(item, status="done", due_at=None, finished_at=now, reason="")
            tx.write(put(done, claimed.fenced))
            if done.lane:
                await self._advance(tx, done)

        await self._store.transact(act, attempts=ATTEMPTS)

    async def _advance(self, tx: Transaction, item: InboxItem) -> None:
        """Make the next item of the queue due in the commit that finishes this one."""
        waiting = Query(InboxItem).where("lane", "==", item.lane).where("status", "==", "pending")
        writes = await ordered_queue.advance(
            self._store, InboxLane, item.lane, waiting=waiting.order_by("turn"), head_id=item.id,
            due={"due_at": self._clock.now()},
        )  # fmt: skip
        tx.write(*writes)

    async def _set_aside(self, claimed: Snapshot[InboxItem], fault: Exception) -> None:
        """Try again later, or park the item with its reason when it has been tried enough."""
        item = claimed.doc
        reason = (str(fault) or type(fault).__name__)[:REASON_CHARACTERS_MAX]
        waiting = isinstance(fault, RetryLaterError)
        tries = item.tries if waiting else item.tries + 1
        if tries >= self._limits.tries_max:
            await self._park(claimed, reason, tries=tries)
            return
        wait_s = fault.after_s if isinstance(fault, RetryLaterError) else self._limits.back_off.wait_s(tries)
        again = msgspec.structs.replace(
            item, status="pending", tries=tries, reason=reason, returned=item.fence,
            due_at=self._clock.now() + timedelta(seconds=wait_s),
        )  # fmt: skip
        await self._settle(put(again, claimed.fenced), item.id)

    async def _park(self, claimed: Snapshot[InboxItem], reason: str, *, tries: int | None = None) -> None:
        item = claimed.doc
        parked = msgspec.structs.replace(
            item, status="parked", due_at=None, reason=reason, tries=tries or item.tries,
            finished_at=self._clock.now(),
        )  # fmt: skip
        log.warning("inbox item parked", item=item.id, source=item.source, reason=reason)

        async def act(tx: Transaction) -> None:
            tx.write(put(parked, claimed.fenced))
            if parked.lane:
                await self._advance(tx, parked)

        try:
            await self._store.transact(act)
        except LeaseLostError:
            log.warning("inbox item was taken over", item=item.id)

    async def _settle(self, write: Write, item_id: str) -> None:
        try:
            await self._store.commit(write)
        except LeaseLostError:
            log.warning("inbox item was taken over", item=item_id)


async def _handled(handler: Handler, item: InboxItem, tx: Transaction) -> None:
    """What the handler puts out goes on with the trace that the message came with."""
    if not tracing.on:
        await handler(item, tx)
        return
    with tracing.span(f"handle {item.source}", kind="consumer", parent=item.trace, item=item.id):
        await handler(item, tx)
