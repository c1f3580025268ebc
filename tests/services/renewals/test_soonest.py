"""A run's residents by when their leases end: whole, in order, page by page, on every engine."""

from __future__ import annotations

import pytest

from holdfast.errors import BadCursorError
from holdfast.services.renewals import soonest
from holdfast.services.renewals.models import RiskScore
from holdfast.services.renewals.sampling import Plan, keep
from holdfast.services.renewals.scoring import FLAGGED, TIERS, Tier
from holdfast.services.renewals.soonest import Place, Soonest, ending
from holdfast.services.renewals.triggering import scores_of_run
from holdfast.store import Store
from tests.services.renewals.bed import AS_OF
from tests.services.renewals.calculations import opened, working

PROPERTY, RESIDENTS = "property-0001", 60


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soonest, "STRETCH", 7)


async def fill(store: Store) -> None:
    plan = Plan(residents=RESIDENTS, as_of=AS_OF, tenant_id="-", per_property=RESIDENTS)
    async for _ in keep(store.tenant("-"), plan):
        pass


def in_order(scores: list[RiskScore], tiers: tuple[Tier, ...] = TIERS) -> list[str]:
    """Whom a person would name in turn."""
    chosen = [one for one in scores if one.risk_tier in tiers]
    anytime = sorted(one.resident_id for one in chosen if one.days_to_expiry is None)
    dated = sorted((one.days_to_expiry, one.resident_id) for one in chosen if one.days_to_expiry is not None)
    return anytime + [id for _, id in dated]


async def all_pages(order: Soonest, tiers: tuple[Tier, ...], *, limit: int) -> list[str]:
    found, cursor = list[str](), None
    while True:
        page = await order.page(tiers, limit=limit, cursor=cursor)
        found += [one.resident_id for one in page.docs]
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)
async def test_everybody_is_listed_once_the_soonest_to_end_first(url: str) -> None:
    async with opened(url) as store:
        await fill(store)
        async with working(store, page=25) as jobs:
            job = await jobs.ended((await jobs.start(PROPERTY, as_of=AS_OF)).id, within_s=60)
        home = store.tenant("-")
        scores = await scores_of_run(home, PROPERTY, job.calculated_at, tiers=TIERS)
        order = Soonest(home, PROPERTY, job.calculated_at)
        assert {one.days_to_expiry is None for one in scores} == {True, False}
        for tiers in (TIERS, FLAGGED, ("high",), ("low",)):
            for limit in (1, 4, 7, 100):
                assert await all_pages(order, tiers, limit=limit) == in_order(scores, tiers)


async def test_a_cursor_of_another_question_is_refused(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await fill(store)
        async with working(store) as jobs:
            job = await jobs.ended((await jobs.start(PROPERTY, as_of=AS_OF)).id, within_s=60)
            later = await jobs.ended((await jobs.start(PROPERTY, as_of=AS_OF)).id, within_s=60)
        order = Soonest(store.tenant("-"), PROPERTY, job.calculated_at)
        cursor = (await order.page(TIERS, limit=3)).cursor
        for other, tiers in (
            (order, FLAGGED),
            (Soonest(store.tenant("-"), PROPERTY, later.calculated_at), TIERS),
            (Soonest(store.tenant("-"), "property-0002", job.calculated_at), TIERS),
            (Soonest(store.tenant("acme"), PROPERTY, job.calculated_at), TIERS),
        ):
            with pytest.raises(BadCursorError, match="belongs to another"):
                await other.page(tiers, limit=3, cursor=cursor)
        for broken in ("", "x", "ä", "kMQ", "////", "A" * 10_000):
            with pytest.raises(BadCursorError):
                await order.page(TIERS, limit=3, cursor=broken)


async def test_an_order_that_is_written_again_is_the_same(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        endings = [ending(n % 5 or None, f"r-{n:02}", TIERS[n % 3]) for n in range(20)]
        then = store.clock.now()
        for _ in range(2):
            await home.commit(*Soonest(home, PROPERTY, then).writes(reversed(endings)))
        kept = [one async for one in Soonest(home, PROPERTY, then)._from(Place(), TIERS)]
        assert len(kept) == len({id for id, _ in kept}) == 20
