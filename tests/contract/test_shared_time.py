"""One time for all processes on a store, whatever their machines' clocks say."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.app import open_store
from holdfast.clock import SharedClock, SystemClock
from holdfast.errors import ConfigError
from holdfast.store import Store
from holdfast.store.sqlite.shared_time import ALONE_S, SLEW, _SharedOffset, next_offset_us

HOUR_S = 3_600.0


class ShiftedClock(SystemClock):
    """A machine's clock that is wrong, and can be set."""

    def __init__(self, shift_s: float = 0.0) -> None:
        self.shift_s = shift_s

    def now_us(self) -> int:
        return super().now_us() + round(self.shift_s * 1e6)


@pytest.fixture(params=["sqlite_url", "postgres_url", "firestore_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@contextlib.asynccontextmanager
async def opened(url: str, local: ShiftedClock) -> AsyncIterator[Store]:
    store = await open_store(url, [], clock=SharedClock(local))
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("shift_s", [90.0, HOUR_S, -HOUR_S])
async def test_two_processes_whose_clocks_differ_share_one_time(url: str, shift_s: float) -> None:
    async with opened(url, ShiftedClock()) as right, opened(url, ShiftedClock(shift_s)) as wrong:
        assert abs(right.clock.now() - wrong.clock.now()) < timedelta(seconds=1)
        assert isinstance(wrong.clock, SharedClock)
        assert wrong.clock.skew_s == pytest.approx(shift_s, abs=1)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_setting_a_machines_clock_does_not_move_the_time(url: str, jump_s: float) -> None:
    local = ShiftedClock()
    async with opened(url, ShiftedClock()), opened(url, local) as store:
        before = store.clock.now()
        local.shift_s = jump_s
        assert timedelta() <= store.clock.now() - before < timedelta(seconds=1)
        assert isinstance(store.clock, SharedClock)
        await store.clock.sync(store.engine.now_us)
        assert abs(store.clock.now() - before) < timedelta(seconds=1)


async def test_a_clock_that_is_days_off_is_refused_where_a_server_has_the_time(postgres_url: str) -> None:
    with pytest.raises(ConfigError, match="72 h ahead of the store's; set the clock"):
        await open_store(postgres_url, [], clock=SharedClock(ShiftedClock(72 * HOUR_S)))


MINUTE_US = 60_000_000
offsets = st.integers(-(10**16), 10**16)


@given(stored=offsets, local=offsets, passed_us=st.integers(-MINUTE_US, int(ALONE_S * 1e6)))
def test_a_live_offset_moves_towards_the_wall_clock_and_never_faster_than_its_slew(
    stored: int, local: int, passed_us: int
) -> None:
    shared = _SharedOffset("boot", stored, 0)
    after = next_offset_us(shared, local, since_boot_us=passed_us, boot_id="boot")
    assert abs(after - stored) <= max(0, passed_us) * SLEW
    assert min(stored, local) <= after <= max(stored, local)


@given(stored=offsets, local=offsets)
def test_after_a_boot_or_when_nobody_lives_the_wall_clock_counts(stored: int, local: int) -> None:
    shared = _SharedOffset("boot", stored, 0)
    assert next_offset_us(shared, local, since_boot_us=MINUTE_US, boot_id="another") == local
    assert next_offset_us(None, local, since_boot_us=0, boot_id="boot") == local
    late = int(ALONE_S * 1e6) + 1
    assert next_offset_us(shared, local, since_boot_us=late, boot_id="boot") == local
