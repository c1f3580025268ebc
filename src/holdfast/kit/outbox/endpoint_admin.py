"""Operating endpoints: pause, resume, disable, enable, each with a notice in the same commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.outbox.models import (
    OUTBOX_MODELS,
    Endpoint,
    EndpointNotice,
    EndpointStatus,
    NoticeKind,
    OutboxModels,
)
from holdfast.store import Store, Transaction, create, put

OnNotice = Callable[[EndpointNotice], Awaitable[None]]
_STATUS: Final[dict[NoticeKind, EndpointStatus]] = {
    "paused": "paused", "resumed": "active", "disabled": "disabled", "enabled": "active",
}  # fmt: skip


class Endpoints:
    """Changes endpoints' states and says so: a notice is kept, then `on_notice` is told.

    Example: `await Endpoints(acme).pause("rms-7", reason="planned maintenance", by="ada")`
    """

    def __init__(
        self, store: Store, *, on_notice: OnNotice | None = None, models: OutboxModels = OUTBOX_MODELS
    ) -> None:
        self._store = store.tenant(store.tenant_id or NO_TENANT)
        self._on_notice, self._models = on_notice, models

    async def pause(self, endpoint_id: str, *, reason: str, by: str) -> bool:
        """Send nothing until resumed; what is put out meanwhile waits."""
        return await self.change(endpoint_id, "paused", reason=reason, by=by)

    async def resume(self, endpoint_id: str, *, reason: str = "", by: str) -> bool:
        return await self.change(endpoint_id, "resumed", reason=reason, by=by)

    async def disable(self, endpoint_id: str, *, reason: str, by: str) -> bool:
        """Take no more events: new ones are recorded as skipped; what is there already waits."""
        return await self.change(endpoint_id, "disabled", reason=reason, by=by)

    async def enable(self, endpoint_id: str, *, reason: str = "", by: str) -> bool:
        return await self.change(endpoint_id, "enabled", reason=reason, by=by)

    async def change(self, endpoint_id: str, kind: NoticeKind, *, reason: str, by: str) -> bool:
        """Make the change where it changes something; False where the endpoint is so already."""

        async def act(tx: Transaction) -> EndpointNotice | None:
            found = await tx.get(self._models.endpoint, endpoint_id)
            if found is None:
                raise NotFoundError(f"no endpoint {endpoint_id!r}")
            return self._changed(tx, found.doc, kind, reason=reason, by=by)

        notice = await self._store.transact(act)
        if notice is not None and self._on_notice is not None:
            await self._on_notice(notice)
        return notice is not None

    def _changed(
        self, tx: Transaction, endpoint: Endpoint, kind: NoticeKind, *, reason: str, by: str
    ) -> EndpointNotice | None:
        if endpoint.status == _STATUS[kind]:
            return None
        endpoint.status, endpoint.reason = _STATUS[kind], reason
        notice = self._models.notice(
            tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, kind=kind, reason=reason, by=by,
            at=self._store.clock.now(),
        )  # fmt: skip
        tx.write(put(endpoint), create(notice))
        return notice
