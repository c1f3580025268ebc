"""Waits that grow with each failure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.backoff import BackOff


def test_waits_double_up_to_their_limit() -> None:
    waits = [BackOff(first_s=0.5, wait_s_max=3.0).wait_s(failures) for failures in (1, 2, 3, 4, 10_000)]
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_jitter_takes_away_no_more_than_its_share(failures: int, jitter: float) -> None:
    plain, spread = BackOff(), BackOff(jitter=jitter)
    longest_s = plain.wait_s(failures)
    assert longest_s * (1 - jitter) - 1e-9 <= spread.wait_s(failures) <= longest_s + 1e-9
    assert spread.wait_s(failures, 1.0) == longest_s
