"""Reading deliveries and dead letters; replaying, cancelling and resolving them, by filter and in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import BadIdError, InvalidError, NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.outbox import ordering
from holdfast.kit.outbox.models import (
    DISABLED_REASON,
    OUTBOX_MODELS,
    UNDELIVERED,
    Attempt,
    DeadLetter,
    Delivery,
    DeliveryStatus,
    OutboxModels,
    chunk_id,
    delivery_id,
    every_status,
)
from holdfast.model import Index, schema_of
from holdfast.store import Query, QueryPage, Snapshot, Store, Transaction, put

BATCH: Final = 100
_BY_EVENT: Final = Index("event_id")
SAMPLE_MAX: Final = 20
ATTEMPTS: Final = 100
REPLAYABLE: Final[tuple[DeliveryStatus, ...]] = ("dead", "failed", "delivered", "skipped", "cancelled")
CANCELLABLE: Final[tuple[DeliveryStatus, ...]] = ("pending", "failed")

# Adds to each commit that replays or cancels, such as an audit event; gets the number of deliveries in it.
Also = Callable[[Transaction, int], Awaitable[None]]
# Changes one delivery and returns whether its endpoint keeps order.
Step = Callable[[Transaction, Delivery], Awaitable[bool]]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects deliveries by status and, where given, by endpoint, type, reason and creation time.

    Example: `Selection(statuses=["dead"], endpoint_id="rms-7", since=yesterday)`
    """

    statuses: Sequence[str] = UNDELIVERED
    endpoint_id: str | None = None
    event_type: str | None = None
    reason: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    oldest_first: bool = False


def skipped_while_disabled(endpoint_id: str) -> Selection:
    """Selects what an endpoint missed while it was disabled, not what it does not take, the oldest first."""
    return Selection(statuses=["skipped"], endpoint_id=endpoint_id, reason=DISABLED_REASON, oldest_first=True)


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What was, or with `dry_run` would be, changed. `cursor` continues where a limit stopped it."""

    matched: int
    changed: int
    dry_run: bool
    sample: tuple[str, ...]
    cursor: str | None


class Deliveries:
    """One tenant's deliveries: every event has exactly one state for each endpoint.

    With a privileged handle, all tenants'.

    Example:
        report = await Deliveries(acme).replay(Selection(statuses=["dead"]))       # says what it would do
        report = await Deliveries(acme).replay(Selection(statuses=["dead"]), dry_run=False)
    """

    def __init__(self, store: Store, *, models: OutboxModels = OUTBOX_MODELS) -> None:
        self._store = store if store.crosses_tenants else store.tenant(store.tenant_id or NO_TENANT)
        self._models = models

    # -- reading ----------------------------------------------------------------------------------

    async def find(
        self, selection: Selection, *, limit: int = BATCH, cursor: str | None = None
    ) -> QueryPage[Delivery]:
        """Return a page of deliveries; short where `event_type` or `reason` left some out."""
        page = await self._store.query(self._query(selection).limit(limit).after(cursor))
        return QueryPage([item for item in page.items if _matches(selection, item.doc)], page.cursor)

    async def undelivered(
        self, endpoint_id: str | None = None, *, limit: int = BATCH, cursor: str | None = None
    ) -> QueryPage[Delivery]:
        """Return a page of deliveries that have not arrived, newest first."""
        return await self.find(Selection(endpoint_id=endpoint_id), limit=limit, cursor=cursor)

    async def of_event(self, event_id: str) -> list[Delivery]:
        """Return an event's deliveries, one per endpoint, in the order of their ids.

        Found by the beginning of their ids unless the class has an index of event ids; those of events whose
        ids begin with this one and `~` are then read too, and left out.
        """
        kind = self._models.delivery
        if _BY_EVENT in schema_of(kind).declared.indexes:
            query = Query(kind).where("event_id", "==", event_id)
            return [item.doc async for item in self._store.scan(query)]
        begun = self._store.scan_by_prefix(kind, delivery_id(event_id, ""))
        try:
            return [item.doc async for item in begun if item.doc.event_id == event_id]
        except BadIdError:  # no delivery can have such an id
            return []

    async def attempts(self, delivery: Delivery) -> list[Attempt]:
        """Return every attempt of a delivery, the first one first."""
        ids = [chunk_id(delivery, number + 1) for number in range(delivery.attempt_chunks)]
        chunks = await self._store.get_many(self._models.attempts, ids) if ids else []
        return [*(one for chunk in chunks if chunk for one in chunk.doc.attempts), *delivery.attempts]

    async def dead_letters(
        self,
        *,
        resolved: bool = False,
        endpoint_id: str | None = None,
        limit: int = BATCH,
        cursor: str | None = None,
    ) -> QueryPage[DeadLetter]:
        """Return a page of dead letters, newest first."""
        query = Query(self._models.dead_letter).where("resolved", "==", resolved)
        if endpoint_id is not None:
            query = query.where("endpoint_id", "==", endpoint_id)
        return await self._store.query(query.order_by("-died_at").limit(limit).after(cursor))

    def _query(self, selection: Selection) -> Query[Delivery]:
        query = Query(self._models.delivery).where("status", "in", self._words(selection.statuses))
        if selection.endpoint_id is not None:
            query = query.where("endpoint_id", "==", selection.endpoint_id)
        if selection.since is not None:
            query = query.where("created_at", ">=", selection.since)
        if selection.until is not None:
            query = query.where("created_at", "<", selection.until)
        return query.order_by("created_at" if selection.oldest_first else "-created_at")

    def _words(self, statuses: Collection[str]) -> list[str]:
        """Return the stored words of these states, which may be given either way."""
        known = every_status(self._models)
        words = [self._models.delivery.stored_state(status) for status in statuses]
        if not words or not set(words) <= set(known):
            raise InvalidError(f"statuses are some of {', '.join(known)}", "statuses")
        return words

    def _require(self, selection: Selection, legal: Sequence[str], verb: str) -> None:
        wrong = set(self._words(selection.statuses)) - set(self._words(legal))
        if wrong:
            raise InvalidError(f"can't {verb} what is {', '.join(sorted(wrong))}", "statuses")

    # -- changing ---------------------------------------------------------------------------------

    async def replay(
        self,
        selection: Selection,
        *,
        dry_run: bool = True,
        limit: int | None = None,
        cursor: str | None = None,
        also: Also | None = None,
    ) -> Report:
        """Send finished deliveries again, each with its event id and body, the oldest first.

        So an endpoint that keeps order gets them in theirs, also where a limit leaves some out. Dead letters
        that are marked as dealt with are left alone; `replay_one` sends also those. It takes a commit for
        each hundred at most; `also` adds to each.
        """
        self._require(selection, REPLAYABLE, "replay")

        async def act(ids: Sequence[str]) -> int:
            return await self._each_in_commit(ids, self._replay, only=selection.statuses, also=also)

        in_order = msgspec.structs.replace(selection, oldest_first=True)
        return await self._each(in_order, act, dry_run=dry_run, limit=limit, cursor=cursor)

    async def cancel(
        self,
        selection: Selection,
        *,
        dry_run: bool = True,
        limit: int | None = None,
        cursor: str | None = None,
        also: Also | None = None,
    ) -> Report:
        """Cancel deliveries that wait; one that is being sent at this moment is left alone."""
        self._require(selection, CANCELLABLE, "cancel")

        async def act(ids: Sequence[str]) -> int:
            return await self._each_in_commit(ids, self._cancel, only=selection.statuses, also=also)

        return await self._each(selection, act, dry_run=dry_run, limit=limit, cursor=cursor)

    async def _each_in_commit(
        self, ids: Sequence[str], step: Step, *, only: Collection[str], also: Also | None
    ) -> int:
        """Change these in one commit, but of each ordered endpoint only the first: the next one's place
        depends on what that changes, so it gets a commit of its own."""

        words = self._words(only)

        async def act(tx: Transaction) -> tuple[int, list[str]]:
            changed, left, ordered = 0, list[str](), set[str]()
            for id in ids:
                found = await tx.get(self._models.delivery, id)
                if found is None or found.doc.status not in words:
                    continue
                if found.doc.endpoint_id in ordered:
                    left.append(id)
                    continue
                changed += 1
                if await step(tx, found.doc):
                    ordered.add(found.doc.endpoint_id)
            if changed and also is not None:
                await also(tx, changed)
            return changed, left

        changed, left = await self._store.transact(act, attempts=ATTEMPTS)
        return changed + sum([await self._each_in_commit([id], step, only=only, also=also) for id in left])

    async def replay_one(
        self,
        delivery_id: str,
        transaction: Transaction | None = None,
        *,
        only: Collection[str] = REPLAYABLE,
    ) -> bool:
        """Replay one, in the caller's transaction, if given; False where it is in flight already, or in no
        state of `only` any more."""
        if transaction is None:
            return await self._store.transact(lambda own: self.replay_one(delivery_id, own, only=only))
        found = await transaction.get(self._models.delivery, delivery_id)
        if found is None:
            raise NotFoundError(f"no delivery {delivery_id!r}")
        if found.doc.state not in REPLAYABLE or found.doc.status not in self._words(only):
            return False
        await self._replay(transaction, found.doc)
        return True

    async def _replay(self, tx: Transaction, delivery: Delivery) -> bool:
        """Return whether it joined its endpoint's order."""
        now = self._store.clock.now()
        was_dead = delivery.state == "dead"
        endpoint = await tx.get(self._models.endpoint, delivery.endpoint_id)
        ordered = delivery.state != "failed" and endpoint is not None and endpoint.doc.fifo
        if ordered:
            await ordering.rejoin(tx, delivery, models=self._models, now=now)
        else:
            delivery.next_attempt_at = now
        delivery.status, delivery.reason = delivery.stored_state("pending"), ""
        delivery.finished_at = None
        delivery.attempt_count = 0
        delivery.replay_count += 1
        tx.write(put(delivery))
        if was_dead:
            await self._resolve(tx, delivery.id, "replayed")
        return ordered

    async def cancel_one(self, delivery_id: str, transaction: Transaction | None = None) -> bool:
        """Cancel one that waits, in the caller's transaction, if given; False where it is being sent or has
        finished."""
        if transaction is None:
            return await self._store.transact(lambda own: self.cancel_one(delivery_id, own))
        found = await transaction.get(self._models.delivery, delivery_id)
        if found is None:
            raise NotFoundError(f"no delivery {delivery_id!r}")
        if found.doc.state not in CANCELLABLE:
            return False
        await self._cancel(transaction, found.doc)
        return True

    async def _cancel(self, tx: Transaction, delivery: Delivery) -> bool:
        """Return whether its endpoint keeps order."""
        now = self._store.clock.now()
        was_head = delivery.next_attempt_at is not None
        delivery.status = delivery.stored_state("cancelled")
        delivery.finished_at, delivery.next_attempt_at = now, None
        tx.write(put(delivery))
        endpoint = await tx.get(self._models.endpoint, delivery.endpoint_id)
        ordered = endpoint is not None and endpoint.doc.fifo
        if ordered and was_head:
            tx.write(*await ordering.advance(self._store, delivery, models=self._models, now=now))
        return ordered

    async def resolve(self, delivery_id: str, note: str, transaction: Transaction | None = None) -> None:
        """Mark a dead letter as resolved, in the caller's transaction, if given."""
        if transaction is None:
            await self._store.transact(lambda own: self.resolve(delivery_id, note, own))
        elif not await self._resolve(transaction, delivery_id, note):
            raise NotFoundError(f"no dead letter {delivery_id!r}")

    async def _resolve(self, tx: Transaction, delivery_id: str, note: str) -> bool:
        found = await tx.get(self._models.dead_letter, delivery_id)
        if found is None:
            return False
        letter = found.doc
        letter.resolved, letter.resolved_at, letter.resolution = True, self._store.clock.now(), note
        tx.write(put(letter))
        return True

    async def _each(
        self,
        selection: Selection,
        act: Callable[[Sequence[str]], Awaitable[int]],
        *,
        dry_run: bool,
        limit: int | None,
        cursor: str | None,
    ) -> Report:
        matched = changed = 0
        sample: list[str] = []
        async for page in self._pages(selection, limit, cursor):
            ids = [item.doc.id for item in page.items]
            matched += len(ids)
            sample += ids[: SAMPLE_MAX - len(sample)]
            changed += 0 if dry_run or not ids else await act(ids)
            cursor = page.cursor
        return Report(matched, changed, dry_run, tuple(sample), cursor)

    async def _open(self, items: Sequence[Snapshot[Delivery]]) -> list[Snapshot[Delivery]]:
        """Return these without dead letters that were resolved."""
        dead = [item.doc.id for item in items if item.doc.state == "dead"]
        letters = await self._store.get_many(self._models.dead_letter, dead)
        settled = {one.doc.id for one in letters if one is not None and one.doc.resolved}
        return [item for item in items if item.doc.id not in settled]

    async def _pages(
        self, selection: Selection, limit: int | None, cursor: str | None
    ) -> AsyncIterator[QueryPage[Delivery]]:
        left = limit
        while left is None or left > 0:
            size = BATCH if left is None else min(BATCH, left)
            page = await self.find(selection, limit=size, cursor=cursor)
            some = await self._open(page.items)
            yield QueryPage(some, page.cursor)
            cursor = page.cursor
            left = None if left is None else left - len(some)
            if cursor is None:
                return


def _matches(selection: Selection, delivery: Delivery) -> bool:
    """Whether it is of the selection's type and reason, which no index holds."""
    return selection.event_type in (None, delivery.event_type) and selection.reason in (None, delivery.reason)
