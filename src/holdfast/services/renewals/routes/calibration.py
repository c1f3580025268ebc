"""Outcomes of leases, the calibration of scores by them, and the rules that scores are made by."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final, Literal

from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.idempotent_route import ATOMIC
from holdfast.routing import By, RequestBody, TenantId, action_route, put_route
from holdfast.services.renewals.domain.calibration import Calibration
from holdfast.services.renewals.domain.rules import RulesRequest
from holdfast.services.renewals.models import Outcome, PropertyRules
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.rules import rules_of
from holdfast.services.renewals.routes.dependencies import Operations, PropertyFilter, read_route

Id = Annotated[str, Meta(min_length=1, max_length=400)]


class OutcomeRequest(RequestBody, frozen=True):
    resident_id: Id
    lease_id: Id
    outcome: Literal["renewed", "left"]
    decided_on: date


@action_route("/outcomes", Renewals.record_outcome, status=201, idempotent=ATOMIC)
async def record_outcome(operations: Operations, by: By, data: JSONBody[OutcomeRequest]) -> Outcome:
    """Record whether a lease was renewed or its resident left; recording it again corrects it.

    Example: `POST …/outcomes {"residentId": "resident-0000001", "leaseId": "lease-0000001",
    "outcome": "left", "decidedOn": "2026-04-30"}`
    """
    return await operations.record_outcome(
        by, data.resident_id, data.lease_id, outcome=data.outcome, decided_on=data.decided_on
    )


@read_route("/calibration")
async def calibration(
    operations: Operations, tenant_id: TenantId, property_id: PropertyFilter = None
) -> Calibration:
    """Do high scores really leave? Counts by band, Brier score and AUC.

    Example: `GET …/calibration?propertyId=property-0001`
    """
    if property_id is not None:
        await operations.portfolio(tenant_id).property(property_id)
    return await operations.outcomes(tenant_id).calibration(property_id)


@read_route("/properties/{property_id:str}/rules")
async def rules(operations: Operations, tenant_id: TenantId, property_id: FromPath[str]) -> PropertyRules:
    """The weights, thresholds and sending of a property.

    Example: `GET …/properties/property-0001/rules`
    """
    await operations.portfolio(tenant_id).property(property_id)
    return await rules_of(operations.store(tenant_id), property_id)


@put_route("/properties/{property_id:str}/rules", Renewals.set_rules)
async def set_rules(
    operations: Operations, by: By, property_id: FromPath[str], data: JSONBody[RulesRequest]
) -> PropertyRules:
    """Set them for the runs to come; stored scores and tiers stay as they are.

    Example: `PUT …/properties/property-0001/rules {"thresholds": {"high": 60, "medium": 40}, "send": "high"}`
    """
    return await operations.set_rules(by, property_id, data)


ROUTES: Final = (record_outcome, calibration, rules, set_rules)
