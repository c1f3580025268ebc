"""Which tenants there are, for those who may look at any: as far as a few small collections tell."""

from __future__ import annotations

from typing import Final, TypeAlias

from holdfast.kit import NO_TENANT
from holdfast.kit.access import User
from holdfast.kit.audit import AuditHeadFields
from holdfast.kit.metering import AllowanceFields
from holdfast.kit.outbox import Endpoint
from holdfast.runtime import Runtime
from holdfast.store import Query

LOOKED_AT_MAX: Final = 200
REMEMBERED_S: Final = 10.0
TenantSource: TypeAlias = AuditHeadFields | AllowanceFields | Endpoint | User


class Tenants:
    """Names tenants to choose from. There may be more: any can be typed.

    Example: `await Tenants(runtime).known()` gives `["-", "acme", "demo"]`
    """

    def __init__(self, runtime: Runtime) -> None:
        self._store, self._clock = runtime.store.privileged(), runtime.clock
        heads = [trail.models.head for trail in runtime.audits.values()]
        endpoints = [outbox.models.endpoint for outbox in runtime.outboxes.values()]
        allowances = [meter.models.allowance for meter in runtime.meters.values()]
        self._kinds: list[type[TenantSource]] = [*heads, *endpoints, *allowances, User]
        self._known: list[str] = [NO_TENANT]
        self._until_s = -1.0

    async def known(self) -> list[str]:
        """The platform itself first, then the others by name; at most a few seconds old."""
        now_s = self._clock.monotonic()
        if now_s >= self._until_s:
            self._until_s = now_s + REMEMBERED_S
            found = {tenant for kind in self._kinds for tenant in await self._of(kind)}
            self._known = [NO_TENANT, *sorted(found - {NO_TENANT})]
        return self._known

    async def _of(self, kind: type[TenantSource]) -> set[str]:
        page = await self._store.query(Query(kind).limit(LOOKED_AT_MAX))
        return {doc.tenant_id for doc in page.docs}
