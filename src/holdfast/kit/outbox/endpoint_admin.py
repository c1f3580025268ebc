"""Changes of endpoints' states: pause, resume, disable, enable, each with a notice in the same commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.outbox.models import (
    OUTBOX_MODELS,
    EndpointNotice,
    EndpointStatus,
    NoticeKind,
    OutboxModels,
)
from holdfast.store import Store, Transaction, create, put

OnNotice = Callable[[EndpointNotice], Awaitable[None]]
STATUS_AFTER: Final[dict[NoticeKind, EndpointStatus]] = {
    "paused": "paused", "resumed": "active", "disabled": "disabled", "enabled": "active",
}  # fmt: skip


class Endpoints:
    """Changes endpoints' states: commits the change with its notice, then calls `on_notice`.

    Example: `await Endpoints(acme).pause("rms-7", reason="planned maintenance", by="ada")`
    """

    def __init__(
        self, store: Store, *, on_notice: OnNotice | None = None, models: OutboxModels = OUTBOX_MODELS
    ) -> None:
        self._store = store.tenant(store.tenant_id or NO_TENANT)
        self._on_notice, self._models = on_notice, models

    async def pause(self, endpoint_id: str, *, reason: str, by: str) -> bool:
        """Send nothing until resumed; new deliveries wait."""
        return await self.change(endpoint_id, "paused", reason=reason, by=by)

    async def resume(self, endpoint_id: str, *, reason: str = "", by: str) -> bool:
        return await self.change(endpoint_id, "resumed", reason=reason, by=by)

    async def disable(self, endpoint_id: str, *, reason: str, by: str) -> bool:
        """Take no more events: new ones are recorded as skipped; open deliveries wait."""
        return await self.change(endpoint_id, "disabled", reason=reason, by=by)

    async def enable(self, endpoint_id: str, *, reason: str = "", by: str) -> bool:
        return await self.change(endpoint_id, "enabled", reason=reason, by=by)

    async def change(
        self,
        endpoint_id: str,
        kind: NoticeKind,
        transaction: Transaction | None = None,
        *,
        reason: str,
        by: str,
    ) -> bool:
        """Make the change and write its notice; False where the endpoint is in that state already.

        In the caller's transaction `on_notice` is not called: the caller knows when it is committed.
        """
        if transaction is not None:
            return await self._change(transaction, endpoint_id, kind, reason=reason, by=by) is not None
        notice = await self._store.transact(
            lambda own: self._change(own, endpoint_id, kind, reason=reason, by=by)
        )
        if notice is not None and self._on_notice is not None:
            await self._on_notice(notice)
        return notice is not None

    async def _change(
        self, tx: Transaction, endpoint_id: str, kind: NoticeKind, *, reason: str, by: str
    ) -> EndpointNotice | None:
        found = await tx.get(self._models.endpoint, endpoint_id)
        if found is None:
            raise NotFoundError(f"no endpoint {endpoint_id!r}")
        endpoint = found.doc
        if endpoint.status == STATUS_AFTER[kind]:
            return None
        endpoint.status, endpoint.reason = STATUS_AFTER[kind], reason
        notice = self._models.notice(
            tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, kind=kind, reason=reason, by=by,
            at=self._store.clock.now(),
        )  # fmt: skip
        tx.write(put(endpoint), create(notice))
        return notice
