"""Who pays late, by the ledger: which months are due, which rows count, how months are counted."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.services.renewals.domain.dates import months_before, whole_months
from holdfast.services.renewals.domain.scoring import DELINQUENT, LeaseFacts, rent_due
from tests.services.renewals.scored_resident import Row, lease_from, payments, scored

LEDGERS: dict[str, tuple[list[Row], bool | None]] = {
    "no rows": ([], None),
    "six payments, no charges": (payments("1500"), False),
    "five payments, no charges": (payments("1500", how_many=5), True),
    "seven payments, no charges": (payments("1500", how_many=7), False),
    "charges and payments alike": ([Row("charge", "rent", "1500")] * 6 + payments("1500"), False),
    "charges, one payment missing": (
        [Row("charge", "rent", "1500")] * 6 + payments("1500", how_many=5), True,
    ),
    "charges alone": ([Row("charge", "rent", "1500")], True),
    "one charge, paid in parts": ([Row("charge", "rent", "1500"), *payments("750", how_many=2)], False),
    "one charge, a part missing": ([Row("charge", "rent", "1500"), *payments("700", how_many=2)], True),
    "a cent short is tolerated": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1499.99")], False),
    "the tolerance itself": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1499.00")], False),
    "a cent beyond it": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1498.99")], True),
    "overpaid": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1600")], False),
    "a late fee although all is paid": ([*payments("1500"), Row("charge", "late_fee", "50")], True),
    "a late fee alone": ([Row("charge", "late_fee", "50")], True),
    "a late fee that was paid": (
        [*payments("1500"), Row("charge", "late_fee", "50"), Row("payment", "late_fee", "50")], True,
    ),
    "paying a late fee is no rent": (
        [*payments("1500", how_many=5), Row("payment", "late_fee", "1500")], True,
    ),
    "payments for nothing named are rent": ([Row("payment", "", "1500")] * 6, False),
    "parking alone says nothing of rent": ([Row("charge", "parking", "90")], False),
    "parking is no rent": ([Row("charge", "parking", "90"), *payments("1500")], False),
    "parking unpaid is not rent unpaid": ([Row("charge", "parking", "90"), *payments("1500")], False),
    "paying parking is no rent": (
        [*payments("1500", how_many=5), Row("payment", "parking", "1500")], True,
    ),
    "a late fee taken back": (
        [*payments("1500"), Row("charge", "late_fee", "50"), Row("charge", "late_fee", "-50")], False,
    ),
    "a late fee of long ago taken back": ([*payments("1500"), Row("charge", "late_fee", "-50")], False),
    "a returned payment": ([*payments("1500"), Row("payment", "rent", "-1500")], True),
    "a charge taken back": (
        [Row("charge", "rent", "1500"), Row("charge", "rent", "-1500")], False,
    ),
    "cents add up exactly": (
        [Row("charge", "rent", "0.30"), *[Row("payment", "rent", "0.10")] * 3], False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEDGERS)
def test_a_ledger_shows_who_pays_late(case: str) -> None:
    rows, late = LEDGERS[case]
    found = scored(rows=rows).signals[DELINQUENT]
    assert (found.value, found.points) == (late, 25 if late else 0)


def test_without_ledger_rows_there_is_no_data() -> None:
    assert scored(rows=[]).signals[DELINQUENT].sentence.startswith("No data")


# As-of date, lease, months of rent that are due inside the six months before it.
MONTHS_DUE: dict[str, tuple[str, LeaseFacts, int]] = {
    "a lease as old as the window": ("2026-03-01", lease_from("2025-09-01", "2026-08-31"), 6),
    "a lease older than the window": ("2026-03-01", lease_from("2020-01-01", "2026-08-31"), 6),
    "as of the end of a long month": ("2026-08-31", lease_from("2020-01-01", "2026-12-31"), 6),
    "as of the end of February": ("2026-02-28", lease_from("2020-01-01", "2026-12-31"), 6),
    "as of leap day": ("2024-02-29", lease_from("2020-01-01", "2026-12-31"), 6),
    "six months after leap day": ("2024-08-29", lease_from("2020-01-01", "2026-12-31"), 6),
    "as of new year": ("2026-01-01", lease_from("2020-01-01", "2026-12-31"), 6),
    "begun two months ago": ("2026-03-01", lease_from("2026-01-01", "2026-12-31"), 2),
    "begun two months and a day ago": ("2026-03-02", lease_from("2026-01-01", "2026-12-31"), 2),
    "begun a day less than two months ago": ("2026-02-28", lease_from("2026-01-01", "2026-12-31"), 1),
    "begun on the 31st": ("2026-04-30", lease_from("2026-01-31", "2026-12-31"), 2),
    "begun today": ("2026-03-01", lease_from("2026-03-01", "2027-02-28"), 0),
    "begins tomorrow": ("2026-03-01", lease_from("2026-03-02", "2027-02-28"), 0),
    "ended a month ago": ("2026-03-01", lease_from("2020-01-01", "2026-02-01"), 5),
    "ended with the month before": ("2026-03-01", lease_from("2025-10-01", "2026-01-31"), 4),
    "ended yesterday": ("2026-03-01", lease_from("2025-03-01", "2026-02-28"), 6),
    "ended before the window": ("2026-03-01", lease_from("2020-01-01", "2025-06-30"), 0),
    "month to month past its first term": (
        "2026-03-01", lease_from("2020-01-01", "2021-01-01", type="month_to_month"), 6,
    ),
    "month to month without an end": ("2026-03-01", lease_from("2026-01-01", None, type="month_to_month"), 2),
}  # fmt: skip


@pytest.mark.parametrize("case", MONTHS_DUE)
def test_rent_is_due_for_the_months_of_the_lease_in_the_window(case: str) -> None:
    as_of, lease, months = MONTHS_DUE[case]
    assert rent_due(lease, date.fromisoformat(as_of)) == months * 100_000


BEFORE = [
    ("2026-08-31", 6, "2026-02-28"), ("2024-08-31", 6, "2024-02-29"), ("2024-02-29", 12, "2023-02-28"),
    ("2026-03-31", 1, "2026-02-28"), ("2026-01-15", 1, "2025-12-15"), ("2026-01-01", 0, "2026-01-01"),
    ("2026-05-31", 6, "2025-11-30"),
]  # fmt: skip


@pytest.mark.parametrize(("day", "months", "expected"), BEFORE)
def test_months_are_counted_back_to_a_day_that_exists(day: str, months: int, expected: str) -> None:
    assert months_before(date.fromisoformat(day), months) == date.fromisoformat(expected)


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(0, 120))
def test_counting_months_back_and_forth_agrees(day: date, months: int) -> None:
    assert whole_months(months_before(day, months), day) == months
