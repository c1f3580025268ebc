"""Withdrawing a wrong run, and what it had sent to the RMS."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.idempotent_route import ATOMIC
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route
from holdfast.services.renewals.models import Summary
from holdfast.services.renewals.models.deliveries import RmsDeliveryStatus
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.routes.deliveries import RmsDeliveryPage, RmsDeliveryRow, delivery_row
from holdfast.services.renewals.routes.dependencies import Operations, read_route


class WithdrawRequest(RequestBody, frozen=True):
    """Why the run is wrong; it is shown wherever the run is."""

    reason: Annotated[str, Meta(max_length=500)] = ""


class WithdrawalResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A withdrawn run; `latest` counts from now on, `events` counts what it had sent by state."""

    job_id: str
    property_id: str
    withdrawn_at: datetime | None
    reason: str
    latest: Summary | None
    events: dict[RmsDeliveryStatus, int]
    summary: str


@action_route(
    "/properties/{property_id:str}/runs/{run_id:str}/withdraw",
    Renewals.withdraw,
    time_limit_s=120.0,
    idempotent=ATOMIC,
)
async def withdraw(
    operations: Operations,
    by: By,
    property_id: FromPath[str],
    run_id: FromPath[str],
    data: JSONBody[WithdrawRequest],
) -> WithdrawalResponse:
    """Withdraw a property's latest run, because it is wrong: the run before it is the latest again.

    Its scores and its place in histories count no longer. Events that it sent stay on record. 409 for a run
    that is not the latest, is not finished or was withdrawn already.

    Example: `POST …/properties/property-0001/runs/run-m5v2kx8a-a7b3c9d2/withdraw {"reason": "wrong day"}`
    """
    done = await operations.withdraw(by, property_id, run_id, reason=data.reason)
    return WithdrawalResponse(
        job_id=done.job.id, property_id=property_id, withdrawn_at=done.job.withdrawn_at,
        reason=done.job.error or "", latest=done.latest, events=dict(done.events), summary=done.describe(),
    )  # fmt: skip


@read_route("/properties/{property_id:str}/runs/{run_id:str}/deliveries")
async def run_deliveries(
    operations: Operations,
    tenant_id: TenantId,
    property_id: FromPath[str],
    run_id: FromPath[str],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RmsDeliveryPage:
    """What a run has sent to the RMS, withdrawn or not, the most at risk first.

    A page covers so many flagged residents, and has fewer rows where some were not sent.

    Example: `GET …/properties/property-0001/runs/run-m5v2kx8a-a7b3c9d2/deliveries`
    """
    run = await operations.jobs(tenant_id).of_property(property_id, run_id)
    sent, after = await operations.withdrawals(tenant_id).page(
        property_id, run.calculated_at, limit=limit, cursor=cursor
    )
    return RmsDeliveryPage([delivery_row(one, RmsDeliveryRow) for one in sent], after)


ROUTES: Final = (withdraw, run_deliveries)
