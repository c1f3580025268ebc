"""The loop that starts the runs of instances at their times."""

from __future__ import annotations

from typing import Final

from holdfast.errors import HoldfastError, OutcomeUnknownError, StoreUnavailableError
from holdfast.kit.audit import AuditFactory
from holdfast.kit.schedules.cron import next_slot
from holdfast.kit.worker_loop import WorkerLoop
from holdfast.services.gwi.models.automation import InstanceSchedule
from holdfast.services.gwi.models.records import AUDIT
from holdfast.services.gwi.models.runs import RunTrigger
from holdfast.services.gwi.operations.automation import InstanceStarts
from holdfast.store import Snapshot, Store, Transaction, put

CONCURRENCY: Final = 8
LEASE_S: Final = 60.0
POLL_S: Final = 30.0
ACTOR: Final = "schedule"


class ScheduleWorker(WorkerLoop[InstanceSchedule]):
    """Starts a run and moves the schedule to its next time in one commit; a refusal is noted there.

    Times that passed while no process worked are made up for once.
    """

    def __init__(self, store: Store, starts: InstanceStarts, audits: AuditFactory) -> None:
        super().__init__(
            store.privileged(), InstanceSchedule, concurrency=CONCURRENCY, lease_s=LEASE_S, poll_s=POLL_S
        )
        self._starts, self._audits = starts, audits

    async def _act(self, claimed: Snapshot[InstanceSchedule], until_s: float) -> None:
        try:
            await self._settle(claimed.doc, starts=True)
        except (OutcomeUnknownError, StoreUnavailableError) as fault:
            # Its lease ends, and it is claimed again.
            self._note(fault)
        except HoldfastError as fault:
            await self._settle(claimed.doc, starts=False, error=fault.message)

    async def _settle(self, claimed: InstanceSchedule, *, starts: bool, error: str | None = None) -> None:
        tenant_id = claimed.tenant_id
        audit = self._audits(tenant_id, models=AUDIT)

        async def act(tx: Transaction) -> None:
            stored = await tx.get(InstanceSchedule, tenant_id, claimed.id)
            if stored is None or stored.doc.fence != claimed.fence or not stored.doc.enabled:
                return
            schedule, now = stored.doc, self._clock.now()
            if starts:
                run = await self._starts.start(
                    tx, tenant_id, schedule.instance_id, trigger=RunTrigger(source="scheduled"), actor=ACTOR
                )
                schedule.last_run_id, schedule.last_run_at = run.id, now
            schedule.last_error, schedule.held_by, schedule.updated_at = error, "", now
            schedule.due_at = next_slot(schedule.cron, schedule.time_zone, now)
            tx.write(put(schedule))

        await audit.transact(act)
