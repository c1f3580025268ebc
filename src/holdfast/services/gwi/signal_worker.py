"""The loop that turns pending signals into work items: a tenant at a time, in batches, the oldest first."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.kit.audit import AuditFactory
from holdfast.kit.worker_loop import WorkerLoop
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.services.gwi.models.work import SignalQueue
from holdfast.services.gwi.operations.signals import Signals
from holdfast.services.gwi.run_records import SYSTEM
from holdfast.store import Snapshot, Store, Transaction, put

CONCURRENCY: Final = 8
LEASE_S: Final = 60.0
POLL_S: Final = 30.0
RETRY_S: Final = 5.0


class SignalWorker(WorkerLoop[SignalQueue]):
    """Claims the queues of tenants with pending signals; after each batch another tenant has its turn."""

    def __init__(self, store: Store, signals: Signals, audits: AuditFactory) -> None:
        super().__init__(
            store.privileged(), SignalQueue, concurrency=CONCURRENCY, lease_s=LEASE_S, poll_s=POLL_S
        )
        self._signals, self._audits = signals, audits

    async def _act(self, claimed: Snapshot[SignalQueue], until_s: float) -> None:
        tenant_id = claimed.doc.tenant_id
        by = Operator(tenant_id=tenant_id, actor=SYSTEM, caller=SERVICE, audits=self._audits)
        try:
            report = await self._signals.process(by)
        except HoldfastError as fault:
            self._note(fault)
            await self._settle(claimed, after_s=RETRY_S)
        else:
            await self._settle(claimed, after_s=0.0 if report.results else None)

    async def _settle(self, claimed: Snapshot[SignalQueue], *, after_s: float | None) -> None:
        """Leave the queue: due again after so long, or, where none is pending, when the next signal comes."""

        async def act(tx: Transaction) -> None:
            stored = await tx.get(SignalQueue, claimed.doc.tenant_id)
            if stored is None or stored.doc.fence != claimed.doc.fence:
                return
            queue, now = stored.doc, self._clock.now()
            wait_s = 0.0 if queue.arrivals != claimed.doc.arrivals else after_s
            queue.due_at = None if wait_s is None else now + timedelta(seconds=wait_s)
            queue.held_by = ""
            tx.write(put(queue))

        await self._store.transact(act)
