"""Refresh of a portfolio from its source: on a schedule, by one process at a time."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any, Final

import structlog

from holdfast.backoff import BackOff
from holdfast.errors import HoldfastError, InProgressError
from holdfast.kit.schedules import Job, Slot
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.service import CheckResult, Health
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.settings import RenewalsSettings
from holdfast.services.renewals.ingest.sources import TableSource, open_source, parse_address
from holdfast.services.renewals.models import SourceState
from holdfast.store import Store, Transaction, put

log: Final = structlog.get_logger("holdfast.renewals")

JOB: Final = "refresh-renewals"
CHECK: Final = "source of renewals"
TIME_LIMIT_S: Final = 3_600.0
# Data that this many refreshes should have replaced says that they fail, or that nobody works.
LATE: Final = 3
_ERROR_CHARACTERS_MAX: Final = 500
_BACK_OFF: Final = BackOff(first_s=2.0, wait_s_max=60.0)
_REMEDY: Final = "correct what the message names, or `source` of [service.renewals] in holdfast.toml"


class SourceRefresh:
    """The source that the settings name, and the portfolio that mirrors it.

    Example: `await SourceRefresh(store, settings).refresh()`
    """

    def __init__(self, store: Store, settings: RenewalsSettings) -> None:
        self._settings, self._clock = settings, store.clock
        self._store = store.tenant(settings.source_tenant)
        self.tenant_id = settings.source_tenant
        self.refreshed = self.failed = 0
        self.under_way = 0

    @property
    def in_use(self) -> bool:
        return bool(self._settings.source)

    def source(self) -> TableSource:
        return open_source(self._settings.source)

    def job(self) -> Job:
        async def act(slot: Slot) -> Any:
            try:
                return await self.refresh()
            except InProgressError as busy:
                return busy.message

        return Job(
            name=JOB, cron=self._settings.cron, act=act, tenant_id=self.tenant_id,
            time_limit_s=TIME_LIMIT_S, retries=2,
        )  # fmt: skip

    async def refresh(self) -> dict[str, int]:
        """Bring the portfolio to what the source holds now; says what that came to."""
        try:
            reports = await Import(self._store, self.source()).run(trust_digests=True)
        except InProgressError:
            raise
        except HoldfastError as fault:
            self.failed += 1
            log.warning("source not read", error=fault.message)
            await self._note_failure(fault)
            raise
        self.refreshed += 1
        names = ("rows", "created", "updated", "removed")
        totals = {name: sum(getattr(one, name) for one in reports) for name in names}
        totals["bad"] = sum(len(one.bad) for one in reports)
        log.info("source read", **totals)
        return totals

    async def _note_failure(self, fault: HoldfastError) -> None:
        async def act(tx: Transaction) -> None:
            found = await tx.get(SourceState, self.tenant_id)
            state = SourceState(tenant_id=self.tenant_id, source="") if found is None else found.doc
            state.error, state.failed_at = fault.message[:_ERROR_CHARACTERS_MAX], self._clock.now()
            tx.write(put(state))

        # Where the store is what failed, there is nothing to note it in.
        with contextlib.suppress(HoldfastError):
            await self._store.transact(act)

    async def state(self) -> SourceState | None:
        found = await self._store.get(SourceState, self.tenant_id)
        return None if found is None else found.doc

    async def health(self) -> Health:
        """Degraded where several refreshes should have replaced the data."""
        late = await self.late() if self.in_use else ""
        return Health("degraded", (late,)) if late else Health()

    async def late(self) -> str:
        """How old the data is, where several refreshes should have replaced it; else empty."""
        if await self._is_fresh(LATE * self._settings.refresh_minutes):
            return ""
        state = await self.state()
        if state is None or state.read_at is None:
            said = "the source was never read"
        else:
            said = f"the data is of {state.read_at:%Y-%m-%d %H:%M} UTC"
        return f"{said}: {state.error}" if state is not None and state.error else said

    async def _is_fresh(self, minutes: int) -> bool:
        state = await self.state()
        name = parse_address(self._settings.source).name
        if state is None or state.read_at is None or state.source != name:
            return False
        return state.read_at > self._clock.now() - timedelta(minutes=minutes)

    async def run(self, stop: asyncio.Event) -> None:
        """Refresh at the start where what is there is too old; from then on the job does."""
        failures = 0
        while not stop.is_set() and not await self._caught_up():
            failures += 1
            await wait_for_wake(self._clock, _BACK_OFF.wait_s(failures), stop=stop)
        await stop.wait()

    async def _caught_up(self) -> bool:
        self.under_way = 1
        try:
            if not await self._is_fresh(self._settings.refresh_minutes):
                await self.refresh()
        except HoldfastError:
            return False
        finally:
            self.under_way = 0
        return True

    async def check(self) -> CheckResult:
        """Whether the source can be read, for `doctor`."""
        if not self.in_use:
            return CheckResult(CHECK, True, "not set")
        try:
            source = self.source()
            await source.check()
        except HoldfastError as fault:
            return CheckResult(CHECK, False, fault.message, _REMEDY)
        return CheckResult(CHECK, True, f"{source.name} can be read")
