"""The queue of work items: read by score, and what people do to its items."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import ConflictError, InvalidError, NotFoundError
from holdfast.operation import Operator
from holdfast.services.gwi.candidate_application import may_vote
from holdfast.services.gwi.domain.subjects import WorkType
from holdfast.services.gwi.models.work import LIVE, WorkItem, WorkStatus
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.store import Query, QueryPage, Store, Transaction, put

ITEMS_MAX: Final = 100
REASON_CHARACTERS_MAX: Final = 500
WAKE_BATCH: Final = 100
STATUSES: Final[tuple[WorkStatus, ...]] = get_args(WorkStatus)
TYPES: Final[tuple[WorkType, ...]] = get_args(WorkType)


class QueueFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which items to show; without `statuses` those that are live."""

    statuses: tuple[WorkStatus, ...] = LIVE
    type: WorkType | None = None
    repo: str | None = None
    assignee: str | None = None
    min_score: int | None = None
    snoozed: bool = False

    def query(self) -> Query[WorkItem]:
        """The items by score, the highest first."""
        query = Query(WorkItem).where("status", "in", self.statuses or LIVE)
        query = query.where("snoozed", "==", self.snoozed).order_by("-score")
        equal = {"type": self.type, "repo.full_name": self.repo, "assigned_to": self.assignee}
        for field, value in equal.items():
            if value is not None:
                query = query.where(field, "==", value)
        return query if self.min_score is None else query.where("score", ">=", self.min_score)


class QueueStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many items there are: by status, live ones by type, and the average score of the live ones."""

    total: int
    live: int
    snoozed: int
    by_status: dict[str, int]
    by_type: dict[str, int]
    average_score: float | None


class ItemChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What to change of some items; what is left out stays. Null takes an assignee, snooze or due date away.

    Example: `ItemChange(assigned_to="user-7", due_at=friday)`
    """

    status: Literal["queued", "in_progress", "completed", "dismissed"] | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    assigned_to: str | UnsetType | None = UNSET
    snoozed_until: datetime | UnsetType | None = UNSET
    due_at: datetime | UnsetType | None = UNSET

    def check(self, now: datetime) -> None:
        """Raise InvalidError for a change that makes no sense."""
        if self.given().keys() <= {"reason"}:
            raise InvalidError("say what to change: status, assignedTo, snoozedUntil or dueAt")
        if isinstance(self.snoozed_until, datetime) and self.snoozed_until <= now:
            raise InvalidError("an item can be snoozed until a time to come only", "snoozedUntil")
        if isinstance(self.reason, str) and len(self.reason) > REASON_CHARACTERS_MAX:
            raise InvalidError(f"a reason has at most {REASON_CHARACTERS_MAX} characters", "reason")

    def given(self) -> dict[str, Any]:
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not UNSET}

    def apply(self, item: WorkItem, now: datetime) -> WorkItem:
        """The item with the change; the store refuses a status that it can't move to."""
        given = self.given()
        reason = given.pop("reason", None)
        if self.status == "dismissed" and item.status not in LIVE:
            raise ConflictError(f"item {item.id} is {item.status} already")
        if self.status in ("completed", "dismissed"):
            given["close_reason"] = reason
        if "snoozed_until" in given:
            given["snoozed"] = given["snoozed_until"] is not None
        return msgspec.structs.replace(item, **given, updated_at=now)


class WorkQueue:
    """Acts on work items, and their reads.

    Example: `page = await queue.page("gh-org-7", QueueFilter(min_score=60))`
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store, store.clock

    async def page(
        self,
        tenant_id: str,
        chosen: QueueFilter = QueueFilter(),  # noqa: B008
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> QueryPage[WorkItem]:
        """Items by score, the highest first."""
        return await self._store.tenant(tenant_id).query(chosen.query().limit(limit).after(cursor))

    async def get(self, tenant_id: str, item_id: str) -> WorkItem:
        """An item of a tenant, or NotFoundError."""
        stored = await self._store.tenant(tenant_id).get(WorkItem, tenant_id, item_id)
        return _found(stored.doc if stored else None, item_id)

    async def stats(self, tenant_id: str) -> QueueStats:
        """Count by aggregates: no document is read."""
        store, every = self._store.tenant(tenant_id), (False, True)

        def among(statuses: Sequence[WorkStatus], **equal: Any) -> Query[WorkItem]:
            query = Query(WorkItem).where("status", "in", statuses).order_by("-score")
            for field, value in {"snoozed": every, **equal}.items():
                query = query.where(field, "in" if value is every else "==", value)
            return query

        counted = [
            *(among([status]) for status in STATUSES), *(among(LIVE, type=type) for type in TYPES),
            among(LIVE, snoozed=True),
        ]  # fmt: skip
        *counts, snoozed = await asyncio.gather(*map(store.count, counted))
        by_status: dict[str, int] = dict(zip(STATUSES, counts, strict=False))
        return QueueStats(
            total=sum(by_status.values()), live=sum(by_status[status] for status in LIVE), snoozed=snoozed,
            by_status=by_status, by_type=dict(zip(TYPES, counts[len(STATUSES) :], strict=True)),
            average_score=await store.avg(among(LIVE), "score"),
        )  # fmt: skip

    @gwi_operation("item.dismissed", verb="dismiss", needs="developer", subject="item_id")
    async def dismiss(self, by: Operator, item_id: str, *, reason: str = "") -> WorkItem:
        """Dismiss an item; later signals about its subject make a new one."""
        (item,) = await self._change(by, [item_id], ItemChange(status="dismissed", reason=reason))
        return item

    @gwi_operation("items.changed", verb="change", needs="developer")
    async def change(self, by: Operator, item_ids: Sequence[str], change: ItemChange) -> list[WorkItem]:
        """Assign, snooze, date or move some items, all or none of them."""
        return await self._change(by, item_ids, change)

    async def _change(self, by: Operator, item_ids: Sequence[str], change: ItemChange) -> list[WorkItem]:
        ids = list(dict.fromkeys(item_ids))
        if not 1 <= len(ids) <= ITEMS_MAX:
            raise InvalidError(f"name 1 to {ITEMS_MAX} items, not {len(ids)}", "ids")
        now = self._clock.now()
        change.check(now)

        async def act(tx: Transaction) -> list[WorkItem]:
            if isinstance(change.assigned_to, str):
                await _check_member(tx, by.tenant_id, change.assigned_to)
            items = [change.apply(await item_in(tx, by.tenant_id, item_id), now) for item_id in ids]
            tx.write(*map(put, items))
            return items

        details = {"items": ids, **msgspec.to_builtins(change.given())}
        return await by.commit(act, subject=ids[0] if len(ids) == 1 else "", details=details)

    @gwi_operation("items.woken", verb="wake", needs="service")
    async def wake(self, by: Operator, item_ids: Sequence[str]) -> list[WorkItem]:
        """End the snooze of items whose time has come."""
        now = self._clock.now()

        async def act(tx: Transaction) -> list[WorkItem] | Literal[False]:
            items = [await item_in(tx, by.tenant_id, item_id) for item_id in item_ids]
            due = [one for one in items if one.snoozed_until is not None and one.snoozed_until <= now]
            for item in due:
                item.snoozed, item.snoozed_until, item.updated_at = False, None, now
            tx.write(*map(put, due))
            return due or False

        return await by.commit(act, details={"items": list(item_ids)}) or []

    async def due_snoozes(self) -> dict[str, list[str]]:
        """Items of all tenants whose snooze has ended, by tenant."""
        query = Query(WorkItem).where("snoozed", "==", True).where("snoozed_until", "<=", self._clock.now())
        found: dict[str, list[str]] = {}
        page = await self._store.privileged().query(query.across_parents().limit(WAKE_BATCH))
        for item in page.docs:
            found.setdefault(item.tenant_id, []).append(item.id)
        return found


async def item_in(tx: Transaction, tenant_id: str, item_id: str) -> WorkItem:
    """An item, read in a transaction, or NotFoundError."""
    stored = await tx.get(WorkItem, tenant_id, item_id)
    return _found(stored.doc if stored else None, item_id)


def _found(item: WorkItem | None, item_id: str) -> WorkItem:
    if item is None:
        raise NotFoundError(f"there is no work item {item_id!r}", "item")
    return item


async def _check_member(tx: Transaction, tenant_id: str, user_id: str) -> None:
    """Only somebody who could do the work can be assigned to it."""
    if not await may_vote(tx, tenant_id, user_id):
        raise InvalidError(f"{user_id!r} is no developer of this tenant", "assignedTo")
