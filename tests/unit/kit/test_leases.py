"""When a lease may be taken, as a rule without a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import to_us
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.leases.decision import Free, HeldLease, Sighting, decide, update_sighting

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def _lease(expires_in_s: float, *, fence: int = 7, ttl_s: float = 60.0) -> LeaseDocument:
    ends = NOW + timedelta(seconds=expires_in_s)
    return LeaseDocument(lock_id="x", acquired_at=NOW, expires_at=ends, ttl_s=ttl_s, fence=fence, held_by="a")


def test_a_name_never_held_is_free_and_its_number_begins_at_the_time() -> None:
    assert decide(None, now=NOW, monotonic_s=0.0, sighting=None) == Free(to_us(NOW))


@pytest.mark.parametrize("expires_in_s", [-1.0, 0.0])
def test_a_lease_whose_time_is_over_is_free_under_the_next_number(expires_in_s: float) -> None:
    assert decide(_lease(expires_in_s), now=NOW, monotonic_s=0.0, sighting=None) == Free(8)


def test_a_lease_within_its_time_is_held_for_what_is_left() -> None:
    assert decide(_lease(12.5), now=NOW, monotonic_s=0.0, sighting=None) == HeldLease(12.5)


def test_a_lease_that_stood_unrenewed_for_its_whole_length_is_free_whatever_the_clock_says() -> None:
    stored = _lease(86_400.0)
    seen = update_sighting(stored, None, 100.0)
    assert decide(stored, now=NOW, monotonic_s=130.0, sighting=seen) == HeldLease(30.0)
    assert decide(stored, now=NOW, monotonic_s=160.0, sighting=seen) == Free(8)


def test_a_renewal_starts_the_watching_over() -> None:
    seen = update_sighting(_lease(86_400.0), None, 100.0)
    renewed = _lease(86_420.0)
    assert decide(renewed, now=NOW, monotonic_s=160.0, sighting=seen) == HeldLease(86_420.0)
    assert update_sighting(renewed, seen, 160.0) == Sighting(7, renewed.expires_at, 160.0)


@given(
    expires_in_s=st.floats(0.001, 1e6), watched_s=st.floats(0, 1e6), ttl_s=st.floats(0.01, 1e5)
)  # fmt: skip
def test_no_lease_is_free_before_either_its_end_or_its_length_has_passed(
    expires_in_s: float, watched_s: float, ttl_s: float
) -> None:
    stored = _lease(expires_in_s, ttl_s=ttl_s)
    verdict = decide(stored, now=NOW, monotonic_s=watched_s, sighting=update_sighting(stored, None, 0.0))
    assert isinstance(verdict, Free) == (watched_s >= ttl_s)
