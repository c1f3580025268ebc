"""All that scoring needs of a property's residents, in sets: no question is asked for one resident alone.

    residents, a page in id order ──► leases, ledger, offers between its first and its last id
                                  ──► prices between its first and its last unit; where those are
                                      many others' too, the prices of the property, once

Only fields that indexes hold are read, so that no document is opened. Memory is that of one page
and at most of the prices of one property.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import date, datetime
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from holdfast.services.renewals.domain.dates import local_date, months_before
from holdfast.services.renewals.domain.scoring import (
    WINDOW_MONTHS,
    Facts,
    LeaseFacts,
    LedgerTotals,
    Offer,
    counts,
    current_lease,
)
from holdfast.services.renewals.models import LeaseRow, LedgerRow, OfferRow, Resident, UnitPricing
from holdfast.store import Query, Store

PAGE: Final = 2_000
# Where a page's units lie among so many prices each, they lie all over the property.
PRICES_EACH_MAX: Final = 5
_ROWS: Final = 10_000
_LIVING: Final = ("active", "notice_given")


class Known(msgspec.Struct, frozen=True, gc=False):
    """A resident and what is known of them; no facts where there is no active lease."""

    resident_id: str
    unit_id: str
    name: str
    notice_given: bool
    facts: Facts | None


class Moment(NamedTuple):
    """Whose residents are read, as of which day, in whose time."""

    property_id: str
    as_of: date
    zone: ZoneInfo


class Reading:
    """Reads one property's residents as of one day.

    Example: `async for page in Reading(store, moment).pages(after=""): ...`
    """

    def __init__(self, store: Store, moment: Moment, *, page: int = PAGE) -> None:
        self._store, self._moment, self._page = store, moment, page
        self._all_prices: dict[str, int] | None = None

    async def count(self) -> int:
        """How many residents live there."""
        return await self._store.count(self._residents().where("status", "in", _LIVING))

    async def pages(self, after: str = "") -> AsyncGenerator[list[Known], None]:
        """Those who live there, in id order, from `after` on."""
        while rows := await self._residents_behind(after):
            living = [row for row in rows if row[5] in _LIVING]
            if living:
                yield await self._known(living)
            after = rows[-1][1]

    async def _residents_behind(self, after: str) -> list[tuple[Any, ...]]:
        # Each page is a question of its own: an id is all there is to go on from.
        residents = self._residents().where("id", ">", after) if after else self._residents()
        fields = ("id", "unit_id", "first_name", "last_name", "status")
        pages = self._store.select(residents.order_by(*fields).limit(self._page), *fields)
        async with contextlib.aclosing(pages):
            return await anext(pages)

    def _residents(self) -> Query[Resident]:
        return Query(Resident).where("property_id", "==", self._moment.property_id)

    async def _known(self, rows: list[tuple[Any, ...]]) -> list[Known]:
        first, last = rows[0][0], rows[-1][0]
        leases, ledgers, offers, prices = await asyncio.gather(
            self._read_leases(first, last), self._read_ledgers(first, last), self._read_offers(first, last),
            self._prices([row[2] for row in rows]),
        )  # fmt: skip
        as_of, known = self._moment.as_of, []
        for _, id, unit_id, first_name, last_name, status in rows:
            lease, facts = current_lease(leases.get(id, ()), as_of), None
            if lease is not None:
                made = offers.get(id)
                offered = made is not None and any(counts(offer, lease, as_of) for offer in made)
                facts = Facts(lease, ledgers.get(id) or LedgerTotals(), offered, prices.get(unit_id))
            name = f"{first_name} {last_name}".strip()
            known.append(Known(id, unit_id, name, status == "notice_given", facts))
        return known

    async def _prices(self, units: Sequence[str]) -> dict[str, int]:
        """The latest market rent of these units on the as-of date, perhaps of others too."""
        if self._all_prices is None:
            found = await self._read_prices(min(units), max(units), rows_max=PRICES_EACH_MAX * len(units))
            if found is not None:
                return found
            self._all_prices = await self._read_prices() or {}
        return self._all_prices

    # -- tables -----------------------------------------------------------------------------------

    async def _read_prices(
        self, first: str = "", last: str = "", *, rows_max: int | None = None
    ) -> dict[str, int] | None:
        """Of the units between two, or of all; None where that takes too many rows."""
        query = Query(UnitPricing).where("property_id", "==", self._moment.property_id)
        query = query.where("effective_date", "<=", self._moment.as_of)
        if last:
            query = query.where("unit_id", ">=", first).where("unit_id", "<=", last)
        fields = ("unit_id", "effective_date", "market_rent_cents")
        found: dict[str, int] = {}
        # In the order of days: of a unit's prices the last one stays.
        async for rows in self._store.select(query.order_by(*fields).limit(_ROWS), *fields):
            found.update({unit: rent for _, unit, _, rent in rows})
            if rows_max is not None and (rows_max := rows_max - len(rows)) < 0:
                return None
        return found

    async def _read_leases(self, first: str, last: str) -> dict[str, list[LeaseFacts]]:
        query = Query(LeaseRow).where("property_id", "==", self._moment.property_id)
        query = query.where("status", "==", "active")
        fields = ("resident_id", "lease_start_date", "lease_end_date", "lease_type", "monthly_rent_cents")
        found: dict[str, list[LeaseFacts]] = {}
        async for rows in self._select(query, fields, first, last):
            for id, resident, start, end, kind, rent in rows:
                ends = None if end is None else date.fromisoformat(end)
                lease = LeaseFacts(id, date.fromisoformat(start), ends, rent, kind)
                found.setdefault(resident, []).append(lease)
        return found

    async def _read_ledgers(self, first: str, last: str) -> dict[str, LedgerTotals]:
        as_of = self._moment.as_of
        query = Query(LedgerRow).where("property_id", "==", self._moment.property_id)
        query = query.where("transaction_date", ">=", months_before(as_of, WINDOW_MONTHS))
        query = query.where("transaction_date", "<=", as_of)
        query = query.where("resident_id", ">=", first).where("resident_id", "<=", last)
        by = ("resident_id", "transaction_type", "charge_code")
        query = query.order_by(*by, "transaction_date", "amount_cents")
        found: dict[str, LedgerTotals] = {}
        for resident, kind, code, rows, cents in await self._store.totals(query, *by, of="amount_cents"):
            ledger = found.get(resident)
            if ledger is None:
                ledger = found[resident] = LedgerTotals()
            ledger.add(kind, code, rows=rows, cents=cents)
        return found

    async def _read_offers(self, first: str, last: str) -> dict[str, list[Offer]]:
        query = Query(OfferRow).where("property_id", "==", self._moment.property_id)
        fields = ("resident_id", "lease_id", "status", "offer_expiration_date", "created_at")
        found: dict[str, list[Offer]] = {}
        async for rows in self._select(query, fields, first, last):
            for _, resident, lease, status, expires, made in rows:
                expires_on = None if expires is None else date.fromisoformat(expires)
                offer = Offer(lease, status, self._local(made), expires_on)
                found.setdefault(resident, []).append(offer)
        return found

    def _select(
        self, query: Query[Any], fields: tuple[str, ...], first: str, last: str
    ) -> AsyncIterator[list[tuple[Any, ...]]]:
        between = query.where("resident_id", ">=", first).where("resident_id", "<=", last)
        return self._store.select(between.order_by(*fields).limit(_ROWS), *fields)

    def _local(self, made: datetime | None) -> date | None:
        return None if made is None else local_date(made, self._moment.zone)
