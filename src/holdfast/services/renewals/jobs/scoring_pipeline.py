"""Residents read and scored, page by page: the part of a calculation that needs a processor, and only reads.

It runs in the process that calculates, or in one beside it; what it gives is the same: for each resident
the score as JSON, ready to be kept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import date, datetime
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from holdfast.service import SubprocessTask, SubprocessWorker, WorkerLostError
from holdfast.services.renewals.domain.dates import zone_named
from holdfast.services.renewals.domain.scoring import Rules, Tier, assess
from holdfast.services.renewals.jobs.resident_facts import PAGE, Known, Moment, Reading
from holdfast.services.renewals.models import LeaseRow, LedgerRow, OfferRow, Resident, RiskScore, UnitPricing
from holdfast.store import Store, encoded

T = TypeVar("T")
# How many residents are scored before others on the event loop get their turn.
TURN: Final = 200
log: Final = structlog.get_logger("holdfast.renewals")


class Assignment(msgspec.Struct, frozen=True):
    """Who is to be scored: the residents of a property behind `after`, by which rules, for which run."""

    tenant_id: str
    property_id: str
    zone: str
    as_of: date
    rules: Rules
    calculated_at: datetime
    after: str = ""
    page: int = PAGE

    @property
    def moment(self) -> Moment:
        return Moment(self.property_id, self.as_of, zone_named(self.zone))

    def reading(self, store: Store) -> Reading:
        return Reading(store, self.moment, page=self.page)

    def rest(self, after: str) -> bytes:
        """What is left behind a resident, for another process."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, after=after))


class Scored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A resident, and their score as it is kept with the days to the lease's end; none without a lease."""

    resident_id: str
    score: bytes | None = None
    tier: Tier = "low"
    days: int | None = None


_PAGE: Final = msgspec.msgpack.Decoder(list[Scored])
_ASSIGNMENT: Final = msgspec.msgpack.Decoder(Assignment)


async def scored_pages(
    store: Store, assignment: Assignment, *, worker: SubprocessWorker | None = None
) -> AsyncGenerator[list[Scored], None]:
    """Every resident's score in id order: from the companion as soon as it is ready, otherwise made here."""
    pages = _Pages(store, assignment)
    async with contextlib.aclosing(pages.made_here(until=worker)) as made:
        async for page in made:
            yield page
    if worker is None or not worker.ready:
        return
    try:
        async with contextlib.aclosing(pages.made_by(worker)) as made:
            async for page in made:
                yield page
        return
    except WorkerLostError as lost:
        log.warning("scoring goes on here", because=str(lost), property=assignment.property_id)
    async with contextlib.aclosing(pages.made_here()) as made:
        async for page in made:
            yield page


class _Pages:
    """One assignment's scores, wherever they are made: always those behind the last that were given."""

    def __init__(self, store: Store, assignment: Assignment) -> None:
        self._assignment, self._reading = assignment, assignment.reading(store)
        self._after = assignment.after

    async def made_here(self, *, until: SubprocessWorker | None = None) -> AsyncGenerator[list[Scored], None]:
        """All that are left, or those until the companion is ready."""
        if until is not None and until.ready:
            return
        async with contextlib.aclosing(_Ahead(self._reading.pages(self._after))) as pages:
            async for known in pages:
                yield await _score_all(known, self._assignment)
                self._after = known[-1].resident_id
                if until is not None and until.ready:
                    return

    async def made_by(self, worker: SubprocessWorker) -> AsyncGenerator[list[Scored], None]:
        rest = self._assignment.rest(self._after)
        async with contextlib.aclosing(_Ahead(worker.stream(rest))) as frames:
            async for frame in frames:
                page = _PAGE.decode(frame)
                yield page
                self._after = page[-1].resident_id


async def _score_all(page: list[Known], assignment: Assignment) -> list[Scored]:
    made: list[Scored] = []
    for number, known in enumerate(page, 1):
        if number % TURN == 0:
            await asyncio.sleep(0)
        made.append(_score(known, assignment))
    return made


def _score(known: Known, assignment: Assignment) -> Scored:
    facts = known.facts
    if facts is None:
        return Scored(known.resident_id)
    found = assess(facts, as_of=assignment.as_of, rules=assignment.rules)
    score = encoded(RiskScore(
        tenant_id=assignment.tenant_id, property_id=assignment.property_id, resident_id=known.resident_id,
        lease_id=facts.lease.id, unit_id=known.unit_id, name=known.name, notice_given=known.notice_given,
        as_of_date=assignment.as_of, risk_score=found.score, risk_tier=found.tier,
        days_to_expiry=found.days_to_expiry, signals=found.signals, calculated_at=assignment.calculated_at,
    ))  # fmt: skip
    return Scored(known.resident_id, score, found.tier, found.days_to_expiry)


class _Ahead(Generic[T]):
    """The same items, the next one being made while the present one is worked on; the first one at once."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._coming = asyncio.ensure_future(anext(items, None))

    async def __aiter__(self) -> AsyncIterator[T]:
        while (item := await self._coming) is not None:
            self._coming = asyncio.ensure_future(anext(self._items, None))
            yield item

    async def aclose(self) -> None:
        self._coming.cancel()
        await asyncio.gather(self._coming, return_exceptions=True)
        await self._items.aclose()


async def _score_in_subprocess(store: Store, given: bytes) -> AsyncIterator[bytes]:
    assignment = _ASSIGNMENT.decode(given)
    reading = assignment.reading(store.tenant(assignment.tenant_id))
    async with contextlib.aclosing(_Ahead(reading.pages(assignment.after))) as pages:
        async for known in pages:
            yield msgspec.msgpack.encode(await _score_all(known, assignment))


PART: Final = SubprocessTask(
    documents=[Resident, LeaseRow, LedgerRow, OfferRow, UnitPricing], act=_score_in_subprocess
)
PART_NAME: Final = f"{__name__}:PART"
