"""The scheduler: claims due schedules, runs their slots, settles both in one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from holdfast.errors import (
    BadQueryError,
    ConflictError,
    HoldfastError,
    InvalidError,
    LeaseLostError,
    NotFoundError,
)
from holdfast.kit.schedules.cron import Turn, check_cron, decide_turn, next_slot
from holdfast.kit.schedules.jobs import Job, Slot
from holdfast.kit.schedules.models import Schedule, SlotRun
from holdfast.kit.worker_loop import WorkerLoop, cancel_all
from holdfast.outside_text import error_text
from holdfast.store import Fence, Snapshot, Store, Transaction, create, patch, put

log = structlog.get_logger("holdfast.schedules")

LEASE_S: Final = 30.0
BATCH: Final = 20
CONCURRENCY: Final = 1_000
POLL_S: Final = 30.0
ERROR_CHARS_MAX: Final = 2_000


class Scheduler(WorkerLoop[Schedule]):
    """Runs jobs at their slots, each slot once in however many processes.

    Example: `await Scheduler(store, [job]).run(stop)`
    """

    def __init__(self, store: Store, jobs: Sequence[Job], *, owner: str = "") -> None:
        super().__init__(
            store.privileged(), Schedule, concurrency=CONCURRENCY, lease_s=LEASE_S, poll_s=POLL_S, owner=owner
        )
        self._jobs = {job.id: job for job in jobs}
        if len(self._jobs) < len(jobs):
            raise BadQueryError("two jobs of one tenant have the same name")
        for job in jobs:
            check_cron(job.cron, job.zone)

    async def declare(self) -> None:
        """Make the stored schedules agree with the code; a changed cron or zone starts over."""
        for job in self._jobs.values():
            await self._store.transact(lambda tx, job=job: self._declare(tx, job))  # type: ignore[misc]

    async def _declare(self, tx: Transaction, job: Job) -> None:
        found = await tx.get(Schedule, job.id)
        if found is not None and _matches(found.doc, job):
            return
        at = next_slot(job.cron, job.zone, self._clock.now())
        schedule = Schedule(
            tenant_id=job.tenant_id, name=job.name, cron=job.cron, zone=job.zone, missed=job.missed,
            slot_at=at, next_at=at, fence=found.doc.fence if found else 0,
            enabled=found.doc.enabled if found else True,
        )  # fmt: skip
        if not schedule.enabled:
            schedule.next_at = None
        tx.write(put(schedule))

    # -- operations -------------------------------------------------------------------------------

    async def run_now(self, id: str, transaction: Transaction | None = None) -> None:
        """Run a schedule's job at once, besides its slots; in the caller's transaction, if given."""
        if transaction is None:
            return await self._store.transact(lambda own: self.run_now(id, own))
        now = self._clock.now()
        transaction.write(patch(Schedule, id, changes={"run_now_at": now, "next_at": now}))

    async def switch(self, id: str, transaction: Transaction | None = None, *, on: bool) -> None:
        """Disable a schedule, or enable it from its next slot on; in the caller's transaction, if given."""
        if transaction is None:
            return await self._store.transact(lambda own: self.switch(id, own, on=on))
        found = await transaction.get(Schedule, id)
        if found is None:
            raise NotFoundError(f"no schedule {id!r}")
        doc = found.doc
        at = next_slot(doc.cron, doc.zone, self._clock.now()) if on else doc.slot_at
        changes = {"enabled": on, "slot_at": at, "next_at": at if on else None, "owner": ""}
        transaction.write(patch(Schedule, id, changes=changes))

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Declare the jobs and run what comes due until told to stop; then finish what is under way."""
        await self.declare()
        await super().run(stop)

    async def _claim(self, room: int) -> list[Snapshot[Schedule]]:
        claimed = await super()._claim(min(room, BATCH))
        known = [one for one in claimed if one.doc.id in self._jobs]
        if len(known) < len(claimed):
            await self._release([one for one in claimed if one.doc.id not in self._jobs])
        return known

    async def _release(self, unknown: list[Snapshot[Schedule]]) -> None:
        """Release schedules of another program that uses the same store, which will claim them soon."""
        later = self._clock.now() + timedelta(seconds=1)
        await self._store.settle(
            [
                [patch(Schedule, s.doc.id, changes={"next_at": later, "owner": ""}, expect=s.fenced)]
                for s in unknown
            ]
        )

    async def _act(self, claimed: Snapshot[Schedule], until_s: float) -> None:
        doc, job = claimed.doc, self._jobs[claimed.doc.id]
        now = self._clock.now()
        manual = doc.run_now_at is not None
        slot = doc.run_now_at or doc.slot_at or now
        if manual or doc.attempts:
            turn = Turn(slot, (), doc.slot_at if manual else next_slot(doc.cron, doc.zone, slot))
        else:
            turn = decide_turn(doc.cron, doc.zone, slot=slot, now=now, missed=job.missed, grace_s=job.grace_s)
        try:
            if turn.missed:
                await self._record_missed(claimed, turn)
            if turn.run is None:
                await self._store.commit(put(self._next_slot_state(doc, turn, ""), claimed.fenced))
            else:
                await self._run_slot(claimed, job, turn)
        except LeaseLostError:
            log.warning("schedule was taken over", schedule=doc.id)
        except Exception:
            log.exception("a slot could not be settled; it runs again when its lease ends", schedule=doc.id)

    async def _record_missed(self, claimed: Snapshot[Schedule], turn: Turn) -> None:
        now = self._clock.now()
        runs = [self._slot_run(claimed.doc, at, status="missed") for at in turn.missed]
        for run in runs:
            run.finished_at = now
        await self._store.settle([[create(run)] for run in runs])

    async def _run_slot(self, claimed: Snapshot[Schedule], job: Job, turn: Turn) -> None:
        assert turn.run is not None
        doc = claimed.doc
        run = self._slot_run(doc, turn.run, status="running")
        run.attempts, run.started_at = doc.attempts + 1, self._clock.now()
        # The attempt is recorded before the job runs, so that one which kills its process is not retried
        # forever.
        slot_at = doc.slot_at if doc.run_now_at else turn.run
        pinned = msgspec.structs.replace(doc, slot_at=slot_at, attempts=run.attempts)
        await self._store.commit(put(run), put(pinned, claimed.fenced))
        slot = Slot(doc.id, doc.tenant_id, turn.run, run.attempts, doc.fence)
        if run.attempts > job.retries + 1:
            error, result = "the process died during the job, every time", None
        else:
            error, result = await self._perform(job, slot)
        try:
            await self._settle(pinned, run, turn, job=job, error=error, result=result)
        except InvalidError as fault:
            error = f"the job's result can't be stored: {fault.message}"
            await self._settle(pinned, run, turn, job=job, error=error, result=None)

    async def _perform(self, job: Job, slot: Slot) -> tuple[str, Any]:
        keeper = asyncio.create_task(self._keep_lease(slot))
        act = asyncio.ensure_future(job.act(slot))
        try:
            done, _ = await asyncio.wait(
                {act, keeper}, timeout=job.time_limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if act in done:
                return "", act.result()
            if keeper in done:
                raise LeaseLostError("the schedule was taken over while its job ran")
            return f"took longer than {job.time_limit_s:g} s", None
        except LeaseLostError:
            raise
        except Exception as fault:
            log.warning("scheduled job failed", schedule=slot.schedule_id, error=repr(fault))
            return error_text(fault, characters_max=ERROR_CHARS_MAX), None
        finally:
            await cancel_all([act, keeper])

    async def _keep_lease(self, slot: Slot) -> None:
        """Renew the lease while the job runs; return when it is lost."""
        while True:
            await self._clock.sleep(LEASE_S / 3)
            until = self._clock.now() + timedelta(seconds=LEASE_S)
            try:
                await self._store.commit(
                    patch(Schedule, slot.schedule_id, changes={"next_at": until}, expect=Fence(slot.fence))
                )
            except (LeaseLostError, ConflictError):
                return
            except HoldfastError as fault:
                log.warning("schedule's lease not renewed", schedule=slot.schedule_id, error=fault.message)

    async def _settle(
        self, doc: Schedule, run: SlotRun, turn: Turn, *, job: Job, error: str, result: Any
    ) -> None:
        now = self._clock.now()
        again = bool(error) and run.attempts <= job.retries
        run.status = "retrying" if again else ("failed" if error else "done")
        run.error, run.result = error, result
        run.finished_at = None if again else now
        if again:
            wait = timedelta(seconds=job.back_off.wait_s(run.attempts))
            doc = msgspec.structs.replace(
                doc, attempts=run.attempts, next_at=now + wait, owner="", last_status="retrying"
            )
        else:
            doc = self._next_slot_state(doc, turn, run.status)
        doc.last_run_id = f"{run.schedule_id}_{run.slot}"
        await self._store.commit(put(run), put(doc, Fence(doc.fence)))

    def _next_slot_state(self, doc: Schedule, turn: Turn, status: str) -> Schedule:
        next_at = turn.next if doc.enabled else None
        return msgspec.structs.replace(
            doc, slot_at=turn.next, next_at=next_at, attempts=0, run_now_at=None, owner="",
            last_status=status or doc.last_status,
        )  # fmt: skip

    def _slot_run(self, doc: Schedule, at: datetime, *, status: Any) -> SlotRun:
        name = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S") + (
            "" if not at.microsecond else f".{at.microsecond:06}"
        )
        return SlotRun(tenant_id=doc.tenant_id, schedule_id=doc.id, slot=name, slot_at=at, status=status)


def _matches(stored: Schedule, job: Job) -> bool:
    return (stored.cron, stored.zone, stored.missed) == (job.cron, job.zone, job.missed)
