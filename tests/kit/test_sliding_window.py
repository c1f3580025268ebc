"""A sliding window: never more than n in any period, all at once if they come so."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import EPOCH
from holdfast.errors import TooManyRequestsError
from holdfast.kit.rate_limit import RateWindow, SlidingWindow, WindowQuota
from holdfast.kit.rate_limit.sliding_window import counted
from holdfast.store import Store
from holdfast.testing import ManualClock

DOCUMENTS = [RateWindow]
SIGN_IN = WindowQuota(name="sign-in", count=10, period_s=900)


async def test_ten_at_once_are_admitted_and_the_next_waits_for_the_first_to_leave_the_window(
    kit_store: Store, clock: ManualClock
) -> None:
    windows = [SlidingWindow(kit_store, SIGN_IN) for _ in range(2)]
    await windows[0].admit("203.0.113.7")
    await clock.advance(60)
    await asyncio.gather(*(windows[n % 2].admit("203.0.113.7") for n in range(9)))
    for window in windows:
        with pytest.raises(TooManyRequestsError, match="at most 10 in 900 s; wait 840 s") as refused:
            await window.admit("203.0.113.7")
        assert refused.value.after_s == 840
    await windows[0].admit("203.0.113.8")
    await clock.advance(840)
    await windows[0].admit("203.0.113.7")
    with pytest.raises(TooManyRequestsError):
        await windows[1].admit("203.0.113.7")


async def test_of_many_at_once_exactly_the_quota_is_admitted(kit_store: Store) -> None:
    window = SlidingWindow(kit_store, WindowQuota(name="few", count=3, period_s=60))
    outcomes = await asyncio.gather(*(window.admit("one") for _ in range(8)), return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, BaseException)]
    assert len(refused) == 5
    assert all(isinstance(one, TooManyRequestsError) for one in refused)


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(1, 5))
def test_no_period_has_more_than_the_quota_however_attempts_come(pauses: list[int], count: int) -> None:
    quota, now = WindowQuota(name="q", count=count, period_s=900), EPOCH
    kept, admitted = list[datetime](), list[datetime]()
    for pause in pauses:
        now += timedelta(seconds=pause)
        kept = counted(kept, quota, now=now)
        if len(kept) < count:
            kept.append(now)
            admitted.append(now)
    for first, last in zip(admitted, admitted[count:], strict=False):
        assert (last - first).total_seconds() >= quota.period_s


def test_an_attempt_from_the_far_future_locks_nobody_out() -> None:
    assert counted([EPOCH + timedelta(days=3)], SIGN_IN, now=EPOCH) == []
