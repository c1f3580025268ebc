"""A run's residents by when their leases end: whole, in order, page by page, on every engine."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.errors import BadCursorError, RetryLaterError
from holdfast.services.renewals.domain.scoring import FLAGGED, TIERS, Tier
from holdfast.services.renewals.models import RiskScore, RunOrder, Summary
from holdfast.services.renewals.queries import lease_end_order, portfolio
from holdfast.services.renewals.queries.lease_end_order import LeaseEndOrder, OrderPosition, ending
from holdfast.services.renewals.queries.portfolio import Portfolio
from holdfast.services.renewals.queries.scores import scores_of_run
from holdfast.services.renewals.sample_data import SamplePlan, keep
from holdfast.store import Committed, Store, Write, delete
from tests.services.renewals.calculation_fixtures import opened, working
from tests.services.renewals.server import AS_OF

PROPERTY, RESIDENTS = "property-0001", 60


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_end_order, "STRETCH", 7)


async def fill(store: Store) -> None:
    plan = SamplePlan(residents=RESIDENTS, as_of=AS_OF, tenant_id="-", per_property=RESIDENTS)
    async for _ in keep(store.tenant("-"), plan):
        pass


def in_order(scores: list[RiskScore], tiers: tuple[Tier, ...] = TIERS) -> list[str]:
    """Whom a person would name in turn."""
    chosen = [one for one in scores if one.risk_tier in tiers]
    anytime = sorted(one.resident_id for one in chosen if one.days_to_expiry is None)
    dated = sorted((one.days_to_expiry, one.resident_id) for one in chosen if one.days_to_expiry is not None)
    return anytime + [id for _, id in dated]


async def all_pages(order: LeaseEndOrder, tiers: tuple[Tier, ...], *, limit: int) -> list[str]:
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
            job = await jobs.wait((await jobs.start(PROPERTY, as_of=AS_OF)).id, within_s=60)
        home = store.tenant("-")
        scores = await scores_of_run(home, PROPERTY, job.calculated_at, tiers=TIERS)
        order = LeaseEndOrder(home, PROPERTY, job.calculated_at)
        assert {one.days_to_expiry is None for one in scores} == {True, False}
        for tiers in (TIERS, FLAGGED, ("high",), ("low",)):
            for limit in (1, 4, 7, 100):
                assert await all_pages(order, tiers, limit=limit) == in_order(scores, tiers)


async def test_a_cursor_of_another_question_is_refused(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await fill(store)
        async with working(store) as jobs:
            job = await jobs.wait((await jobs.start(PROPERTY, as_of=AS_OF)).id, within_s=60)
            later = await jobs.wait((await jobs.start(PROPERTY, as_of=AS_OF)).id, within_s=60)
        order = LeaseEndOrder(store.tenant("-"), PROPERTY, job.calculated_at)
        cursor = (await order.page(TIERS, limit=3)).cursor
        for other, tiers in (
            (order, FLAGGED),
            (LeaseEndOrder(store.tenant("-"), PROPERTY, later.calculated_at), TIERS),
            (LeaseEndOrder(store.tenant("-"), "property-0002", job.calculated_at), TIERS),
            (LeaseEndOrder(store.tenant("acme"), PROPERTY, job.calculated_at), TIERS),
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
            await home.commit(*LeaseEndOrder(home, PROPERTY, then).writes(reversed(endings)))
        kept = [one async for one in LeaseEndOrder(home, PROPERTY, then)._from(OrderPosition(), TIERS)]
        assert len(kept) == len({id for id, _ in kept}) == 20


@pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)
async def test_a_run_from_before_orders_were_written_down_is_listed_in_order_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolio, "WRITES_AT_ONCE", 2)
    async with opened(url) as store:
        mine, run = await without_order(store)
        scores = await scores_of_run(store.tenant("-"), PROPERTY, run.calculated_at, tiers=TIERS)
        first, both = await asyncio.gather(
            *(mine.risk(run, PROPERTY, sort="days", tiers=FLAGGED, limit=4) for _ in range(2))
        )
        assert [one.resident_id for one in first.docs] == in_order(scores, FLAGGED)[:4]
        assert both.docs == first.docs
        rest = await mine.risk(run, PROPERTY, sort="days", tiers=FLAGGED, limit=100, cursor=first.cursor)
        assert [one.resident_id for one in rest.docs] == in_order(scores, FLAGGED)[4:]


async def test_an_order_that_was_written_half_is_not_taken_for_the_whole(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolio, "WRITES_AT_ONCE", 2)
    async with opened(sqlite_url) as store:
        mine, run = await without_order(store)
        commit, landed = Store.commit, 0

        async def dies(self: Store, *writes: Write) -> Committed:
            nonlocal landed
            landed += 1
            if landed > 2:
                raise RetryLaterError("the process dies here")
            return await commit(self, *writes)

        monkeypatch.setattr(Store, "commit", dies)
        with pytest.raises(RetryLaterError):
            await mine.risk(run, PROPERTY, sort="days", limit=100)
        monkeypatch.setattr(Store, "commit", commit)
        page = await mine.risk(run, PROPERTY, sort="days", limit=100)
        assert len(page.docs) == RESIDENTS == run.total_residents


async def without_order(store: Store) -> tuple[Portfolio, Summary]:
    """A finished run as it was before orders were written."""
    await fill(store)
    home = store.tenant("-")
    async with working(store) as jobs:
        await jobs.wait((await jobs.start(PROPERTY, as_of=AS_OF)).id, within_s=60)
    mine = Portfolio(home)
    run = await mine.runs.latest(PROPERTY)
    assert run is not None
    at = msgspec.to_builtins(run.calculated_at)
    for number in range(-(-RESIDENTS // 7)):
        await home.commit(delete(RunOrder, f"{at}_{PROPERTY}_{number}"))
    return mine, run
