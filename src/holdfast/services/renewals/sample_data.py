"""Residents that nobody is: a portfolio of any size, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import msgspec

from holdfast.errors import AlreadyExistsError, HoldfastError
from holdfast.model import Document
from holdfast.services.renewals.domain.dates import local_date, months_before, zone_named
from holdfast.services.renewals.domain.money import amount_of
from holdfast.services.renewals.domain.names import name_key
from holdfast.services.renewals.models import (
    LeaseRow,
    LedgerRow,
    OfferRow,
    Property,
    PropertyName,
    Resident,
    Unit,
    UnitPricing,
    UnitType,
)
from holdfast.store import Store, create

BATCH: Final = 1_000
PER_PROPERTY: Final = 5_000
TIME_ZONE: Final = "America/Chicago"
_FIRST: Final = ("Ada", "Ben", "Chloé", "Dmitri", "Elif", "Fatima", "Grace", "Hiro", "Inés", "Jonas", "Łucja")
_LAST: Final = ("Arnold", "Baker", "Costa", "Dvořák", "Evans", "Fischer", "García", "Hansen", "Ito", "Kim")
_PLACES: Final = ("Harbour", "Mill", "Orchard", "Park", "River", "Station")
_KINDS: Final = ("Court", "Gardens", "House", "Lofts", "Place")


class SamplePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How large a portfolio, as of which day; `per_property` residents live in each property."""

    residents: int
    as_of: date
    tenant_id: str
    per_property: int = PER_PROPERTY
    seed: int = 1


def today(now: datetime) -> date:
    """The date where the sample's properties are."""
    return local_date(now, zone_named(TIME_ZONE))


def sample(plan: SamplePlan) -> Iterator[list[Document]]:
    """The portfolio, in lists: a property first, then each resident with all that belongs to them."""
    dice = random.Random(plan.seed)
    for first in range(0, plan.residents, plan.per_property):
        number = first // plan.per_property + 1
        yield _property(plan, number)
        for n in range(first, min(first + plan.per_property, plan.residents)):
            yield _Resident(plan, dice, f"property-{number:04}", n + 1).documents()


def _property(plan: SamplePlan, number: int) -> list[Document]:
    id = f"property-{number:04}"
    name = f"{_PLACES[number % len(_PLACES)]} {_KINDS[number % len(_KINDS)]} {number}"
    made = Property(
        id=id, tenant_id=plan.tenant_id, name=name, address=f"{number} {_PLACES[0]} Street",
        city="Springfield", state="IL", zip_code="62701", time_zone=TIME_ZONE,
    )  # fmt: skip
    flat = UnitType(
        id=f"{id}-flat", tenant_id=plan.tenant_id, property_id=id, name="Two rooms", bedrooms=1,
        bathrooms=1.0, square_footage=640,
    )  # fmt: skip
    key = name_key(name, plan.tenant_id)
    return [made, PropertyName(name_key=key, tenant_id=plan.tenant_id, property_id=id), flat]


class _Resident:
    """One resident with unit, price, lease, ledger and perhaps an offer."""

    def __init__(self, plan: SamplePlan, dice: random.Random, property_id: str, number: int) -> None:
        self._plan, self._dice, self._property_id = plan, dice, property_id
        self._id = f"resident-{number:07}"
        self._unit_id, self._lease_id = f"unit-{number:07}", f"lease-{number:07}"
        self._number = number
        self._rent = dice.randrange(900, 2_600) * 100
        self._runs_on = dice.random() < 0.12

    def documents(self) -> list[Document]:
        return [self._unit(), self._price(), self._person(), self._lease(), *self._ledger(), *self._offer()]

    def _unit(self) -> Unit:
        return Unit(
            id=self._unit_id, tenant_id=self._plan.tenant_id, property_id=self._property_id,
            unit_type_id=f"{self._property_id}-flat", unit_number=f"{self._number % 10_000 + 100}",
            floor=self._number % 12, status="occupied",
        )  # fmt: skip

    def _price(self) -> UnitPricing:
        market = self._rent * self._dice.randrange(92, 126) // 100
        return UnitPricing(
            id=f"price-{self._number:07}", tenant_id=self._plan.tenant_id, property_id=self._property_id,
            unit_id=self._unit_id, base_rent=amount_of(self._rent), market_rent=amount_of(market),
            effective_date=months_before(self._plan.as_of, self._dice.randrange(1, 9)),
        )  # fmt: skip

    def _person(self) -> Resident:
        dice = self._dice
        gives_notice = dice.random() < 0.03
        return Resident(
            id=self._id, tenant_id=self._plan.tenant_id, property_id=self._property_id, unit_id=self._unit_id,
            first_name=dice.choice(_FIRST), last_name=dice.choice(_LAST), email=f"{self._id}@example.com",
            status="notice_given" if gives_notice else "active",
        )  # fmt: skip

    def _lease(self) -> LeaseRow:
        days = self._dice.randrange(-10, 355)
        end = self._plan.as_of + timedelta(days=days)
        return LeaseRow(
            id=self._lease_id, tenant_id=self._plan.tenant_id, property_id=self._property_id,
            resident_id=self._id, unit_id=self._unit_id, lease_start_date=months_before(end, 12 * 2),
            lease_end_date=None if self._runs_on else end, monthly_rent=amount_of(self._rent),
            lease_type="month_to_month" if self._runs_on else "fixed",
        )  # fmt: skip

    def _ledger(self) -> list[LedgerRow]:
        dice = self._dice
        missing = dice.randrange(1, 7) if dice.random() < 0.15 else 0
        paid = [months for months in range(6, 0, -1) if months != missing]
        rows = [self._row("payment", "rent", self._rent, months) for months in paid]
        if missing and dice.random() < 0.5:
            rows.append(self._row("charge", "late_fee", 7_500, missing))
        return rows

    def _row(self, kind: str, code: str, cents: int, months: int) -> LedgerRow:
        return LedgerRow(
            id=f"entry-{self._number:07}-{months}-{code}", tenant_id=self._plan.tenant_id,
            property_id=self._property_id, resident_id=self._id,
            transaction_type="payment" if kind == "payment" else "charge", charge_code=code,
            amount=amount_of(cents),
            transaction_date=months_before(self._plan.as_of, months),
        )  # fmt: skip

    def _offer(self) -> list[OfferRow]:
        if self._dice.random() > 0.4:
            return []
        made = self._plan.as_of - timedelta(days=self._dice.randrange(1, 90))
        offer = OfferRow(
            id=f"offer-{self._number:07}", tenant_id=self._plan.tenant_id, property_id=self._property_id,
            resident_id=self._id, lease_id=self._lease_id, proposed_rent=amount_of(self._rent * 103 // 100),
            offer_expiration_date=made + timedelta(days=60),
            status=self._dice.choices(["pending", "accepted", "declined", "expired"], [5, 2, 2, 1])[0],  # type: ignore[arg-type]
            created_at=datetime.combine(made, time(15), UTC),
        )  # fmt: skip
        return [offer]


async def keep(store: Store, plan: SamplePlan) -> AsyncIterator[int]:
    """Keep the portfolio; tells from time to time how many residents are in. Again, it adds nothing."""
    residents, waiting = 0, list[Document]()
    for documents in sample(plan):
        waiting += documents
        residents += isinstance(documents[0], Unit)
        if len(waiting) >= BATCH:
            await _create(store, waiting)
            waiting.clear()
            yield residents
    await _create(store, waiting)
    yield residents


async def _create(store: Store, documents: list[Document]) -> None:
    for outcome in await store.settle([create(document)] for document in documents):
        if isinstance(outcome, HoldfastError) and not isinstance(outcome, AlreadyExistsError):
            raise outcome
