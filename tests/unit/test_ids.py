from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from holdfast.clock import from_us
from holdfast.ids import TimestampIdSource, UlidSource, join_segments, timestamp_id, ulid, zero_padded
from holdfast.testing import ManualClock

_CROCKFORD = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def test_a_ulid_is_26_crockford_characters() -> None:
    assert _CROCKFORD.fullmatch(ulid())


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)))
def test_a_ulid_tells_its_millisecond_to_any_other_reader(made_at: datetime) -> None:
    clock = ManualClock(made_at.replace(tzinfo=UTC))
    read = ULID.from_str(UlidSource(clock).make())
    assert read.milliseconds == clock.now_us() // 1_000
    assert str(read) == str(ULID.from_bytes(read.bytes))


@given(st.lists(st.integers(-5_000, 5_000), min_size=1, max_size=50))
def test_ulids_grow_whatever_the_clock_does(jumps_ms: list[int]) -> None:
    clock = ManualClock()
    source = UlidSource(clock)
    made = [source.make()]
    for jump in jumps_ms:
        clock.set(clock.now() + timedelta(milliseconds=jump))
        made += [source.make(), source.make()]
    assert all(earlier < later for earlier, later in pairwise(made))


def test_ulids_of_one_millisecond_follow_each_other_by_one() -> None:
    source = UlidSource(ManualClock())
    first, second = (int(ULID.from_str(source.make())) for _ in range(2))
    assert second == first + 1


def test_a_full_random_part_carries_into_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: 2**bits - 1)
    clock = ManualClock()
    source = UlidSource(clock)
    last, carried = source.make(), source.make()
    assert last < carried
    assert ULID.from_str(carried).milliseconds == clock.now_us() // 1_000 + 1


def test_threads_never_share_a_ulid_and_each_sees_its_own_grow() -> None:
    with ThreadPoolExecutor(4) as threads:
        lists = list(threads.map(lambda _: [ulid() for _ in range(5_000)], range(4)))
    assert len(set().union(*lists)) == 20_000
    assert all(made == sorted(made) for made in lists)


def test_a_stamped_id_is_prefix_time_and_random() -> None:
    assert re.fullmatch(r"run-[0-9a-z]{8}-[0-9a-z]{8}", timestamp_id("run"))


@given(st.integers(0, 36**8 - 1), st.integers(0, 36**8 - 1))
def test_stamped_ids_sort_by_time_as_text(one_ms: int, other_ms: int) -> None:
    earlier_ms, later_ms = sorted((one_ms, other_ms))
    earlier, later = (
        TimestampIdSource(ManualClock(from_us(ms * 1_000))).make("run") for ms in (earlier_ms, later_ms)
    )
    assert (earlier[:12] < later[:12]) == (earlier_ms < later_ms)
    assert int(earlier.split("-")[1], 36) == earlier_ms


def test_stamped_ids_of_one_instant_differ() -> None:
    source = TimestampIdSource(ManualClock())
    assert len({source.make("run") for _ in range(1_000)}) == 1_000


@given(st.integers(0, 10**10 - 1), st.integers(0, 10**10 - 1))
def test_padded_numbers_sort_as_numbers(one: int, other: int) -> None:
    assert (zero_padded(one) < zero_padded(other)) == (one < other)
    assert int(zero_padded(one)) == one
    assert len(zero_padded(one)) == 10


@pytest.mark.parametrize(("number", "width"), [(-1, 10), (10**10, 10), (1000, 3)])
def test_a_number_that_would_sort_wrongly_is_refused(number: int, width: int) -> None:
    with pytest.raises(ValueError, match="sort it wrongly"):
        zero_padded(number, width)


def test_joined_ids_name_their_parts() -> None:
    assert join_segments("abc123", "gh-org-12345678") == "abc123_gh-org-12345678"
    assert join_segments("a", "b", separator=":") == "a:b"


@pytest.mark.parametrize("parts", [(), ("",), ("a", "")])
def test_a_joined_id_with_a_missing_part_is_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="every part"):
        join_segments(*parts)
