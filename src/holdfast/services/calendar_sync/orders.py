"""Orders of administrators: stored with their audit event, then carried out, also after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
import structlog

from holdfast.errors import HoldfastError
from holdfast.ids import ulid
from holdfast.kit.audit import Audit, AuditEntry, AuditOutcome
from holdfast.kit.worker_loop import WorkerLoop
from holdfast.services.calendar_sync.models import Order, OrderKind
from holdfast.store import Snapshot, Store, Transaction, create, delete

log = structlog.get_logger("holdfast.calendar_sync")

LEASE_S: Final = 60.0
POLL_S: Final = 60.0


class OrderResult(msgspec.Struct, frozen=True):
    """The response to whoever gave the order, and what the audit trail says of it."""

    response: Any
    action: str
    details: Mapping[str, Any]


class Orders(WorkerLoop[Order]):
    """Carries out orders; one whose process has died is taken over when its lease ends.

    Carrying one out twice does no harm, so a long one may outlive its lease: the first to end settles it.
    """

    def __init__(
        self,
        store: Store,
        audit: Audit,
        handlers: Mapping[OrderKind, Callable[[Order], Awaitable[OrderResult]]],
    ) -> None:
        super().__init__(store, Order, concurrency=1, lease_s=LEASE_S, poll_s=POLL_S)
        self._audit, self._handlers = audit, handlers

    def new(self, kind: OrderKind, *, actor: str, **fields: Any) -> Order:
        """Return an order that this process holds, to be created in the commit of its audit event."""
        now = self._clock.now()
        due_at = now + timedelta(seconds=LEASE_S)
        return Order(
            id=ulid(), kind=kind, actor=actor, ordered_at=now, due_at=due_at, owner=self.owner, **fields
        )

    async def place(self, tx: Transaction, order: Order) -> None:
        tx.write(create(order))

    async def carry_out(self, order: Order) -> Any:
        """Do what the order says and settle it with its result; a fault ends it too and is raised."""
        try:
            result = await self._handlers[order.kind](order)
        except HoldfastError:
            await self._settle(order)
            raise
        await self._settle(order, _entry(order, result.action, details=result.details))
        return result.response

    async def _act(self, claimed: Snapshot[Order], until_s: float) -> None:
        order = claimed.doc
        log.info("order taken over", kind=order.kind, actor=order.actor)
        try:
            await self.carry_out(order)
        except HoldfastError as fault:
            details = {"error": fault.code, "message": fault.message}
            action = f"calendar_sync.{order.kind}_requested"
            await self._audit.append(_entry(order, action, outcome="failed", details=details))

    async def _settle(self, order: Order, entry: AuditEntry | None = None) -> None:
        async def act(tx: Transaction) -> None:
            if await tx.get(Order, order.id) is None:
                return
            tx.write(delete(Order, order.id))
            if entry is not None:
                await self._audit.add(tx, entry)

        await self._audit.transact(act)


def _entry(order: Order, action: str, *, details: Any, outcome: AuditOutcome = "done") -> AuditEntry:
    return AuditEntry(action=action, actor=order.actor, outcome=outcome, details=details)
