"""The service at work in one process: its loops, and one portfolio's parts for whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.kit.audit import Entry
from holdfast.kit.outbox import Delivery, Endpoint
from holdfast.kit.runs import Runner
from holdfast.service import Context, Health
from holdfast.services.renewals.calculating import workflow
from holdfast.services.renewals.deliveries import Deliveries
from holdfast.services.renewals.endpoints import RmsEndpoints
from holdfast.services.renewals.figures import Figures
from holdfast.services.renewals.importing import Import
from holdfast.services.renewals.models import JOBS, KINDS
from holdfast.services.renewals.outcomes import Outcomes
from holdfast.services.renewals.portfolio import Portfolio
from holdfast.store import Store

# How many properties one process calculates at the same time.
AT_ONCE: Final = 4


class Renewals:
    """What routes, commands and pages work with.

    Example: `await renewals.portfolio("-").jobs.start("property-7")`
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.clock = context.clock
        self.workflow = workflow(context.store)
        self.dispatcher = context.dispatcher(KINDS, headers=_headers, plain_header="X-Webhook-Signature")
        self.runner = Runner(context.store.privileged(), [self.workflow], kinds=JOBS, at_once=AT_ONCE)
        self.figures = Figures(self.dispatcher, self.runner)

    def store(self, tenant_id: str) -> Store:
        return self.context.store.tenant(tenant_id)

    def portfolio(self, tenant_id: str) -> Portfolio:
        return Portfolio(self.store(tenant_id), self.workflow, near=self.dispatcher)

    def deliveries(self, tenant_id: str) -> Deliveries:
        return Deliveries(self.store(tenant_id))

    def endpoints(self, tenant_id: str) -> RmsEndpoints:
        return RmsEndpoints(self.store(tenant_id), self.context.vault)

    def outcomes(self, tenant_id: str) -> Outcomes:
        return Outcomes(self.store(tenant_id))

    def importer(self, tenant_id: str) -> Import:
        return Import(self.store(tenant_id))

    async def note(
        self, tenant_id: str, actor: str, action: str, *, subject: str, details: Any = None
    ) -> None:
        """Put what somebody did on the portfolio's audit trail."""
        entry = Entry(actor=actor, action=f"renewals.{action}", subject=subject, details=details)
        await self.context.audit(tenant_id).append(entry)

    async def health(self) -> Health:
        """What the dispatcher of this process has done; a store that can't be reached shows elsewhere."""
        counts = self.dispatcher.status().counts
        return Health(facts={"delivered": counts.delivered, "failed": counts.failed, "dlq": counts.dead})


def _headers(delivery: Delivery, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
    return (("X-Event-Id", delivery.event_id),)
