"""What a tenant uses of its plan: sums, limits, and the sums compared with the ledger."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.errors import HoldfastError, NotFoundError
from holdfast.kit.metering import Drift, MeterFactory, month_of
from holdfast.kit.metering.meter import limit_state
from holdfast.operation import Operator
from holdfast.services.gwi.domain.plans import PlanName, concurrent_runs_max
from holdfast.services.gwi.models.records import METER, UsageFact
from holdfast.services.gwi.models.tenants import Tenant
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.run_starts import AT_ONCE, check_active
from holdfast.store import Query, QueryPage, Store, Transaction

BATCH: Final = 200
MONTH: Final = r"^[0-9]{4}-(0[1-9]|1[0-2])$"
LimitStanding = Literal["ok", "warning", "reached"]


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken of a limit; a warning begins at four fifths."""

    used: int
    limit: int
    standing: LimitStanding


class UsageSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A month's usage. `runs` counts those started, which is what the plan limits; `metrics` the ledger."""

    month: str
    plan: PlanName
    metrics: dict[str, int]
    runs: LimitUsage
    at_once: LimitUsage


class UsageAggregate(msgspec.Struct, frozen=True, kw_only=True):
    """A month's sums by metric and day."""

    month: str
    metrics: dict[str, int]
    days: dict[str, dict[str, int]]


class StartCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run could start now, and why not."""

    allowed: bool
    reason: str
    runs: LimitUsage


class UsageDrift(msgspec.Struct, frozen=True, kw_only=True):
    """The sums that did not agree with the ledger; there should be none."""

    month: str
    drifts: list[Drift]
    mended: bool


class UsageOperations:
    """Usage of one tenant.

    Example: `summary = await operations.usage.summary(tenant_id)`
    """

    def __init__(self, store: Store, meters: MeterFactory) -> None:
        self._store, self._meters = store, meters

    @gwi_operation("usage.mended", area="usage", verb="rebuild", needs="admin")
    async def rebuild(self, by: Operator, *, month: str = "", mend: bool = False) -> UsageDrift:
        """Add a month's ledger up again and compare it with the sums; with `mend`, set sums right."""
        chosen, meter = month or self.current_month, self._meters(by.tenant_id, models=METER)
        drifts = await meter.rebuild(chosen)

        async def act(tx: Transaction) -> None:
            for drift in batch:
                await meter.mend(tx, drift)

        for start in range(0, len(drifts) if mend else 0, BATCH):
            batch = drifts[start : start + BATCH]
            await by.commit(act, subject=chosen, details={"drifts": len(batch)})
        return UsageDrift(month=chosen, drifts=drifts, mended=mend)

    @property
    def current_month(self) -> str:
        return month_of(self._store.clock.now())

    async def summary(self, tenant_id: str, *, month: str = "") -> UsageSummary:
        """A month's usage against the limits of the plan, the current month unless given."""
        chosen, meter = month or self.current_month, self._meters(tenant_id, models=METER)
        tenant = await self._tenant(tenant_id)
        return UsageSummary(
            month=chosen, plan=tenant.plan, metrics=await meter.month_sums(chosen),
            runs=_limit(await meter.used(f"runs {chosen}"), tenant.plan_limits.runs_per_month),
            at_once=_limit(await meter.used(AT_ONCE), concurrent_runs_max(tenant.plan, tenant.plan_limits)),
        )  # fmt: skip

    async def aggregate(self, tenant_id: str, *, month: str = "") -> UsageAggregate:
        """A month's sums by day."""
        chosen = month or self.current_month
        days = await self._meters(tenant_id, models=METER).daily_sums(chosen)
        sums = {metric: sum(counts.values()) for metric, counts in days.items()}
        return UsageAggregate(
            month=chosen, metrics=sums, days={name: dict(one) for name, one in days.items()}
        )

    async def check(self, tenant_id: str) -> StartCheck:
        """Whether a run could start at this moment; only its start itself is certain."""
        summary = await self.summary(tenant_id)
        reason = ""
        try:
            check_active(await self._tenant(tenant_id))
        except HoldfastError as fault:
            reason = fault.message
        if not reason and summary.runs.standing == "reached":
            reason = "the month's runs are used up"
        elif not reason and summary.at_once.standing == "reached":
            reason = "as many runs are under way as the plan allows"
        return StartCheck(allowed=not reason, reason=reason, runs=summary.runs)

    async def facts(
        self, tenant_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> QueryPage[UsageFact]:
        """The ledger, newest first."""
        query = Query(UsageFact).order_by("-at").limit(limit).after(cursor)
        return await self._store.tenant(tenant_id).query(query)

    async def _tenant(self, tenant_id: str) -> Tenant:
        stored = await self._store.tenant(tenant_id).get(Tenant, tenant_id)
        if stored is None:
            raise NotFoundError(f"no tenant {tenant_id!r}")
        return stored.doc


def _limit(used: int, limit: int) -> LimitUsage:
    return LimitUsage(used=used, limit=limit, standing=limit_state(used, limit))
