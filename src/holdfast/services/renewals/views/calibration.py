"""Pages of a resident, of what-if, rules and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.service import Page, PageRequest
from holdfast.services.renewals.domain.rules import TOLERANCE_CENTS_MAX, RulesRequest
from holdfast.services.renewals.domain.scoring import Thresholds, Weights
from holdfast.services.renewals.models import LeaseRow, PropertyRules, Resident, RiskScore, Unit
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.history import History
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.services.renewals.queries.rules import rules_of
from holdfast.services.renewals.views.property_header import SENDINGS, choices, load_header
from holdfast.services.renewals.views.reasons import reasons_of
from holdfast.store import Query, Store

ROWS: Final = 25
EVENTS: Final = 20
# Somebody moved in late or was skipped at times: there are more runs than scores.
RUNS_LOOKED_AT: Final = 2 * ROWS
# A word for each weight and threshold, by the field it sets.
WEIGHTS: Final = {
    "expiry": "Lease ends soon",
    "delinquency": "Rent paid late or short",
    "no_offer": "No renewal offer",
    "market_rent": "Market rent above rent",
}
THRESHOLDS: Final = {"high": "High from", "medium": "Medium from"}


class CalibrationPages:
    def __init__(self, renewals: Renewals) -> None:
        self._renewals = renewals

    async def resident(self, ask: PageRequest) -> Mapping[str, Any]:
        """Every finished run's score of one resident, their lease, and the events about them."""
        store, id = self._renewals.store(ask.tenant_id), ask.path["resident_id"]
        resident = (await get_or_404(store, Resident, id, what="resident")).doc
        page = await History(store).page(id, limit=ROWS, cursor=ask.cursor)
        unit = await store.get(Unit, resident.unit_id)
        lease = await self._lease(store, id, page.docs)
        runs = await self._runs(ask, page.docs)
        events = await self._renewals.deliveries(ask.tenant_id).of_resident(id, limit=EVENTS + 1)
        return {
            "title": resident.name or id, "resident": resident, "rows": page.docs, "after": page.cursor,
            "reasons_of": reasons_of, "runs": runs,
            "unit": None if unit is None else unit.doc, "lease": lease,
            "head": await load_header(self._renewals, ask.tenant_id, resident.property_id),
            "rules": await self._rules(ask, resident.property_id),
            "deliveries": events[:EVENTS], "more_events": len(events) > EVENTS,
        }  # fmt: skip

    async def _runs(self, ask: PageRequest, scores: Sequence[RiskScore]) -> dict[datetime, str]:
        """The id of each score's run, for a link to the property as it was."""
        if not scores:
            return {}
        finished = self._renewals.portfolio(ask.tenant_id).runs
        runs, _ = await finished.all(
            scores[0].property_id, until=scores[0].calculated_at, limit=RUNS_LOOKED_AT
        )
        return {one.calculated_at: one.job_id for one in runs}

    async def _lease(self, store: Store, resident_id: str, scores: Sequence[RiskScore]) -> LeaseRow | None:
        """The lease that was scored; the newest where no run has scored the resident."""
        if scores:
            lease = await store.get(LeaseRow, scores[0].lease_id)
            return None if lease is None else lease.doc
        query = Query(LeaseRow).where("resident_id", "==", resident_id).order_by("-lease_start_date")
        leases = (await store.query(query.limit(1))).docs
        return leases[0] if leases else None

    async def _rules(self, ask: PageRequest, property_id: str) -> PropertyRules:
        return await rules_of(self._renewals.store(ask.tenant_id), property_id)

    async def what_if(self, ask: PageRequest) -> Mapping[str, Any]:
        """The query string alone decides, so that nothing is stored and a link shows the same."""
        head = await load_header(self._renewals, ask.tenant_id, ask.path["property_id"])
        rules = await self._rules(ask, head.property.id)
        given = _given(ask, rules)
        data: dict[str, Any] = {
            "title": f"What if, at {head.property.name}", "head": head, "given": given, "weights": WEIGHTS,
            "thresholds": THRESHOLDS, "result": None, "fault": "", "asked": bool(ask.query), "order": None,
        }  # fmt: skip
        if head.run is None:
            return data
        try:
            weights, thresholds = _parse(given)
        except msgspec.ValidationError as fault:
            return {**data, "fault": f"{str(fault).partition(' - at')[0]}.".capitalize()}
        portfolio = self._renewals.portfolio(ask.tenant_id)
        result = await portfolio.what_if(head.property.id, weights=weights, thresholds=thresholds)
        own = rules.request()
        order = msgspec.structs.replace(own, weights=weights, thresholds=thresholds)
        return {**data, "result": result, "order": None if order == own else msgspec.to_builtins(order)}

    async def rules(self, ask: PageRequest) -> Mapping[str, Any]:
        """The property's rules beside the defaults."""
        head = await load_header(self._renewals, ask.tenant_id, ask.path["property_id"])
        rules, defaults = await self._rules(ask, head.property.id), RulesRequest()
        return {
            "title": f"Rules of {head.property.name}", "head": head, "weights": WEIGHTS,
            "thresholds": THRESHOLDS, "rules": rules, "defaults": defaults,
            "own": rules.request() != defaults, "tolerance_max": TOLERANCE_CENTS_MAX, "sendings": SENDINGS,
            "encoded": {name: _camel(name) for name in WEIGHTS},
        }  # fmt: skip

    async def calibration(self, ask: PageRequest) -> Mapping[str, Any]:
        store, property_id = self._renewals.store(ask.tenant_id), ask.text("property")
        head = await load_header(self._renewals, ask.tenant_id, property_id) if property_id else None
        judged = await self._renewals.outcomes(ask.tenant_id).calibration(property_id or None)
        return {
            "found": judged, "property_id": property_id, "properties": await choices(store, head),
            "head": head,
        }  # fmt: skip


def _given(ask: PageRequest, rules: PropertyRules) -> dict[str, int]:
    """Each number from the address, or the property's own."""
    own = {name: getattr(rules.weights, name) for name in WEIGHTS}
    own |= {name: getattr(rules.thresholds, name) for name in THRESHOLDS}
    return {name: ask.number(name, value, high=100) for name, value in own.items()}


def _parse(given: Mapping[str, int]) -> tuple[Weights, Thresholds]:
    weights = {_camel(name): given[name] for name in WEIGHTS}
    limits = {name: given[name] for name in THRESHOLDS}
    return msgspec.convert(weights, Weights), msgspec.convert(limits, Thresholds)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def pages(renewals: Renewals) -> list[Page]:
    shown = CalibrationPages(renewals)
    return [
        Page(path="/calibration", title="Calibration", template="calibration.html", data=shown.calibration),
        Page(
            path="/properties/{property_id}/what-if", title="What if", template="what_if.html",
            data=shown.what_if, nav=False,
        ),
        Page(
            path="/properties/{property_id}/rules", title="Rules", template="rules.html", data=shown.rules,
            live=("renewals",), nav=False,
        ),
        Page(
            path="/residents/{resident_id}", title="Resident", template="resident.html", data=shown.resident,
            live=("renewals",), nav=False,
        ),
    ]  # fmt: skip
