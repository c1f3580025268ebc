"""What became of residents, what the scores were worth, and the rules they are made by."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final, Literal

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.routing import Actor, RequestBody, RuntimeDependency, TenantId
from holdfast.services.renewals.domain.calibration import Calibration
from holdfast.services.renewals.models import Outcome, PropertyRules
from holdfast.services.renewals.queries.rules import RulesRequest
from holdfast.services.renewals.routes.dependencies import acts, reads, renewals_of, sets
from holdfast.services.renewals.routes.events import PropertyFilter

Id = Annotated[str, Meta(min_length=1, max_length=400)]


class OutcomeRequest(RequestBody, frozen=True):
    resident_id: Id
    lease_id: Id
    outcome: Literal["renewed", "left"]
    decided_on: date


@acts("/outcomes", "developer", action="record", status=201)
async def record_outcome(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    data: JSONBody[OutcomeRequest],
) -> Outcome:
    """Say whether a lease was renewed or its resident left; said again, it is corrected.

    Example: `POST …/outcomes {"residentId": "resident-0000001", "leaseId": "lease-0000001",
    "outcome": "left", "decidedOn": "2026-04-30"}`
    """
    renewals = renewals_of(runtime)
    outcomes = renewals.outcomes(tenant_id)
    return await renewals.noted(
        tenant_id, actor, "outcome", subject=data.lease_id, details={"outcome": data.outcome},
        act=lambda tx: outcomes.record(
            data.resident_id, data.lease_id, outcome=data.outcome, decided_on=data.decided_on, tx=tx
        ),
    )  # fmt: skip


@reads("/calibration")
async def calibration(
    runtime: RuntimeDependency, tenant_id: TenantId, property_id: PropertyFilter = None
) -> Calibration:
    """Do high scores really leave? Counts by band, Brier score and AUC.

    Example: `GET …/calibration?propertyId=property-0001`
    """
    renewals = renewals_of(runtime)
    if property_id is not None:
        await renewals.portfolio(tenant_id).property(property_id)
    return await renewals.outcomes(tenant_id).calibration(property_id)


@reads("/properties/{property_id:str}/rules")
async def rules(runtime: RuntimeDependency, tenant_id: TenantId, property_id: FromPath[str]) -> PropertyRules:
    """The weights, thresholds and sending of a property.

    Example: `GET …/properties/property-0001/rules`
    """
    renewals = renewals_of(runtime)
    await renewals.portfolio(tenant_id).property(property_id)
    return await renewals.rules(tenant_id).get(property_id)


@sets("/properties/{property_id:str}/rules", "admin", action="configure")
async def set_rules(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    property_id: FromPath[str],
    data: JSONBody[RulesRequest],
) -> PropertyRules:
    """Change them for the runs to come; scores and tiers that are kept stay as they are.

    Example: `PUT …/properties/property-0001/rules {"thresholds": {"high": 60, "medium": 40}, "send": "high"}`
    """
    renewals = renewals_of(runtime)
    return await renewals.noted(
        tenant_id, actor, "rules_set", subject=property_id, details=msgspec.to_builtins(data),
        act=lambda tx: renewals.rules(tenant_id).set(property_id, data, tx=tx),
    )  # fmt: skip


ROUTES: Final = (record_outcome, calibration, rules, set_rules)
