"""Processing of received messages: an item's effects and its `done` state are one commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from holdfast import tracing
from holdfast.backoff import BackOff
from holdfast.errors import HoldfastError, LeaseLostError, RetryLaterError
from holdfast.kit import ordered_queue
from holdfast.kit.inbox.body import load_body
from holdfast.kit.inbox.models import InboxItem, InboxQueue
from holdfast.kit.worker_loop import WorkerLoop, cancel_all, last_lane
from holdfast.outside_text import error_text
from holdfast.store import Query, Snapshot, Store, Transaction, put

log = structlog.get_logger("holdfast.inbox")

# Returns the reason for which it ignored the message, if it did.
Handler = Callable[[InboxItem, Transaction], Awaitable[str | None]]
POLL_S: Final = 5.0
ATTEMPTS: Final = 30
REASON_CHARS_MAX: Final = 2_000
LARGE_WAIT_S: Final = 1.0


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an inbox worker: how many items it claims at once, and how many more are handed to it.

    `large_concurrency` are the bodies in chunks that are in memory at once.
    """

    concurrency: int = 64
    handed_concurrency: int = 64
    large_concurrency: int = 2
    lease_s: float = 60.0
    time_limit_s: float = 50.0
    tries_max: int = 5
    back_off: BackOff = BackOff(first_s=1.0, wait_s_max=300.0)


_LIMITS: Final = InboxLimits()


class InboxWorker(WorkerLoop[InboxItem]):
    """Claims items and hands them to their source's handler.

    A handler reads and writes through the transaction it is given. It may run more than once for an item;
    its commit takes effect once. One that returns a reason has ignored the message. Sources and tenants take
    turns: each may use as many of the worker's places as are left free, so one with a backlog never takes the
    last ones. While it runs and has no backlog, new items of this process are handed to it without a claim;
    `on_room` is called when it may have room for more.

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
        self._large = asyncio.Semaphore(limits.large_concurrency)
        self._last_lane: str | None = None
        self._skipping = False
        self.running = self._keeps_up = False
        self._handed = set[asyncio.Task[None]]()
        self.on_room: Callable[[], None] = _ignore
        self.handled = 0

    async def _claim(self, room: int) -> list[Snapshot[InboxItem]]:
        """Claim in turn from the lanes that hold fewer places than are free, and leave some of those free."""
        held = Counter(item.lane for item in self._tasks.values() if item is not None)
        skipped = [lane for lane, count in held.items() if count >= room]
        self._skipping, per_lane = bool(skipped), max(1, room // 2)
        claimed = await self._store.claim_due(
            InboxItem, limit=max(1, room * 3 // 4), lease_s=self._lease_s, owner=self.owner,
            per_lane=per_lane, after_lane=self._last_lane, skip_lanes=skipped,
        )  # fmt: skip
        # Fewer than a lane may give: nothing that is due was left behind.
        self._keeps_up = self.running and not skipped and len(claimed) < per_lane
        self._last_lane = last_lane([one.doc.lane for one in claimed], after=self._last_lane)
        return claimed

    def _ended(self, task: asyncio.Task[None]) -> None:
        super()._ended(task)
        self._handed.discard(task)
        if self._skipping:
            self._wake.set()
        self.on_room()

    @property
    def under_way(self) -> int:
        return super().under_way + len(self._handed)

    @property
    def room(self) -> int:
        """How many new items can be handed to it now; none while items that are due wait to be claimed."""
        return self._limits.handed_concurrency - len(self._handed) if self._keeps_up else 0

    def reserve(self, item: InboxItem) -> asyncio.Future[None] | None:
        """Claim an item that is about to be stored, where there is room for it.

        The caller sets the future's result when the item is stored, which is then processed, or cancels it.
        """
        if self.room < 1 or item.source not in self._handlers:
            return None
        item.status, item.owner, item.fence = "processing", self.owner, 1
        item.due_at = item.received_at + timedelta(seconds=self._lease_s)
        stored = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._act_once_stored(item, stored))
        self._handed.add(task)
        task.add_done_callback(self._ended)
        return stored

    async def _act_once_stored(self, item: InboxItem, stored: asyncio.Future[None]) -> None:
        until_s = self._clock.monotonic() + self._lease_s
        await stored
        await self._act(Snapshot(item, 0, item.id), until_s)

    async def run(self, stop: asyncio.Event) -> None:
        self.running = True
        try:
            await super().run(stop)
        finally:
            self.running = self._keeps_up = False
            await cancel_all(self._handed)

    async def _wind_down(self) -> None:
        self.running = self._keeps_up = False
        await super()._wind_down()
        if self._handed:
            await asyncio.wait(set(self._handed))

    async def _act(self, claimed: Snapshot[InboxItem], until_s: float) -> None:
        try:
            await self._process(claimed)
        except LeaseLostError:
            log.warning("inbox item was taken over", item=claimed.doc.id)

    async def _process(self, claimed: Snapshot[InboxItem]) -> None:
        item = claimed.doc
        try:
            await self._attempt(claimed)
            self.handled += 1
        except LeaseLostError:
            raise
        except Exception as fault:
            if not isinstance(fault, HoldfastError):
                log.warning("inbox handler failed", item=item.id, source=item.source, error=repr(fault))
            await self._retry_or_park(claimed, fault)

    async def _attempt(self, claimed: Snapshot[InboxItem]) -> None:
        item = claimed.doc
        handler = self._handlers.get(item.source)
        if handler is None:
            raise RetryLaterError(f"no handler for {item.source!r} in this process", after_s=60)
        # A process that dies leaves no count behind but the fencing numbers it was given.
        if item.fence - item.returned > self._limits.tries_max:
            await self._park(claimed, "the process died while working on it, every time")
            return

        async def act(message: InboxItem, tx: Transaction) -> None:
            async with asyncio.timeout(self._limits.time_limit_s):
                ignored = await _handle(handler, message, tx)
            status = "ignored" if ignored else "done"
            await self._finish(tx, claimed, status=status, reason=(ignored or "")[:REASON_CHARS_MAX])

        if not item.chunks:
            await self._store.transact(partial(act, item), attempts=ATTEMPTS)
            return
        if self._large.locked():
            raise RetryLaterError("other large bodies are being processed", after_s=LARGE_WAIT_S)
        async with self._large:
            whole = msgspec.structs.replace(item, body=await load_body(self._store, item))
            await self._store.transact(partial(act, whole), attempts=ATTEMPTS)

    async def _finish(self, tx: Transaction, claimed: Snapshot[InboxItem], **changes: Any) -> None:
        """Settle the item and, in the same commit, make the next one of its queue due."""
        now, item = self._clock.now(), claimed.doc
        finished = msgspec.structs.replace(item, due_at=None, finished_at=now, **changes)
        tx.write(put(finished, claimed.fenced))
        if item.queue:
            waiting = Query(InboxItem).where("queue", "==", item.queue).where("status", "==", "pending")
            writes = await ordered_queue.advance(
                self._store, InboxQueue, item.queue, waiting=waiting.order_by("turn"), head_id=item.id,
                due={"due_at": now},
            )  # fmt: skip
            tx.write(*writes)

    async def _retry_or_park(self, claimed: Snapshot[InboxItem], fault: Exception) -> None:
        """Try again later, or park the item with its reason when it has been tried enough."""
        item = claimed.doc
        reason = error_text(fault, characters_max=REASON_CHARS_MAX)
        if isinstance(fault, RetryLaterError):
            tries, wait_s = item.tries, fault.after_s
        else:
            tries, wait_s = item.tries + 1, self._limits.back_off.wait_s(item.tries + 1)
        if tries >= self._limits.tries_max:
            await self._park(claimed, reason, tries=tries)
            return
        again = msgspec.structs.replace(
            item, status="pending", tries=tries, reason=reason, returned=item.fence,
            due_at=self._clock.now() + timedelta(seconds=wait_s),
        )  # fmt: skip
        await self._store.commit(put(again, claimed.fenced))

    async def _park(self, claimed: Snapshot[InboxItem], reason: str, *, tries: int | None = None) -> None:
        item = claimed.doc
        log.warning("inbox item parked", item=item.id, source=item.source, reason=reason)
        await self._store.transact(
            lambda tx: self._finish(tx, claimed, status="parked", reason=reason, tries=tries or item.tries)
        )


async def _handle(handler: Handler, item: InboxItem, tx: Transaction) -> str | None:
    """Run the handler; the events it sends continue the trace that the message came with."""
    if not tracing.on:
        return await handler(item, tx)
    with tracing.span(f"handle {item.source}", kind="consumer", parent=item.trace, item=item.id):
        return await handler(item, tx)


def _ignore() -> None:
    pass
