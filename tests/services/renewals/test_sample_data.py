"""The sample's days: a property's today is not everywhere the same."""

from __future__ import annotations

from datetime import UTC, date, datetime

from holdfast.services.renewals.domain.dates import local_date, zone_named
from holdfast.services.renewals.models import Property
from holdfast.services.renewals.sample_data import SamplePlan, sample, today


def test_a_sample_is_never_of_a_day_that_has_not_begun_where_its_properties_are() -> None:
    now = datetime(2026, 11, 17, 2, tzinfo=UTC)
    plan = SamplePlan(residents=2, as_of=today(now), tenant_id="-", per_property=1)
    properties = [one for group in sample(plan) for one in group if isinstance(one, Property)]
    assert plan.as_of == date(2026, 11, 16)
    assert [local_date(now, zone_named(one.time_zone)) for one in properties] == [plan.as_of] * 2
