"""What scoring needs is read in sets, whichever way a property's ids are strewn."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from holdfast.services.renewals.domain.dates import zone_named
from holdfast.services.renewals.domain.money import amount_of
from holdfast.services.renewals.jobs.resident_facts import PRICES_EACH_MAX, Moment, Reading
from holdfast.services.renewals.models import LeaseRow, Property, Resident, UnitPricing
from holdfast.store import Store, create
from tests.services.renewals.calculation_fixtures import opened
from tests.services.renewals.server import AS_OF, TENANT, P

PAGE = 2
UNITS = 3 * PRICES_EACH_MAX * PAGE
# Where each resident lives: beside the one before, or far away from them.
NEIGHBOURS = [0, 1, 2, 3, 4, 5]
STREWN = [0, UNITS - 1, 2, 0, UNITS - 1, 0]


async def _fill(store: Store, units: list[int]) -> None:
    kept = [create(Property(id=P, name="House", time_zone="UTC"))]
    for number, unit in enumerate(units):
        id, unit_id = f"r{number}", f"u{unit:03}"
        kept.append(create(Resident(
            id=id, property_id=P, unit_id=unit_id, first_name="A", last_name="B", status="active",
        )))  # fmt: skip
        kept.append(create(LeaseRow(
            id=f"l{number}", property_id=P, resident_id=id, unit_id=unit_id, lease_start_date=AS_OF,
            lease_end_date=AS_OF + timedelta(days=90), monthly_rent=amount_of(100_000), status="active",
        )))  # fmt: skip
    for unit in range(UNITS):
        for day, rent in ((AS_OF - timedelta(days=40), 1), (AS_OF, 2), (AS_OF + timedelta(days=1), 3)):
            kept.append(create(_price(unit, day, rent)))
    await store.commit(*kept)


def _price(unit: int, day: date, rent: int) -> UnitPricing:
    return UnitPricing(
        id=f"{unit}-{day}", property_id=P, unit_id=f"u{unit:03}", base_rent=amount_of(1), effective_date=day,
        market_rent=amount_of(1_000 * unit + rent),
    )  # fmt: skip


@pytest.mark.parametrize("units", [NEIGHBOURS, STREWN], ids=["neighbours", "strewn"])
@pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)
async def test_each_unit_has_its_latest_price_of_the_day(url: str, units: list[int]) -> None:
    async with opened(url) as store:
        await _fill(store.tenant(TENANT), units)
        reading = Reading(store.tenant(TENANT), Moment(P, AS_OF, zone_named("")), page=PAGE)
        known = [one async for page in reading.pages() for one in page]
        rents = [one.facts and one.facts.market_rent for one in known]
        assert rents == [1_000 * unit + 2 for unit in units]
        # Only who lives far from one another needs all of the property's prices.
        assert (reading._all_prices is None) == (units is NEIGHBOURS)


async def test_a_unit_without_a_price_has_none(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await _fill(store.tenant(TENANT), [UNITS + 1, UNITS + 2])
        reading = Reading(store.tenant(TENANT), Moment(P, AS_OF, zone_named("")), page=PAGE)
        known = [one async for page in reading.pages() for one in page]
        assert [one.facts and one.facts.market_rent for one in known] == [None, None]
