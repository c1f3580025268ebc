"""How the rows of a batch are bound to its statement."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.store.postgres.column_binding import INDEXED_MAX
from holdfast.store.postgres.statement import TableChange, Verb, render
from holdfast.store.sql.shared_columns import SHARED_MIN

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NAMES = ("_key", "made_at", "due_at", "number")
ARRAYS = ("text[]", "timestamptz[]", "timestamptz[]", "bigint[]")


def bound(rows: list[tuple[Any, ...]]) -> tuple[str, list[Any]]:
    change = TableChange("try", "things", NAMES, ARRAYS)
    change.rows = rows
    text, values = render([change], 1, "note")
    assert values[:2] == [1, "note"]
    return text, values[2:]


def rows(count: int, *, made_at: datetime | None = NOON, step_s: int = 0) -> list[tuple[Any, ...]]:
    return [(f"k{n}", made_at, NOON + timedelta(seconds=n * step_s), n) for n in range(count)]


@pytest.mark.parametrize("made_at", [NOON, None])
def test_a_time_that_many_rows_share_is_bound_once(made_at: datetime | None) -> None:
    text, (keys, first, second, numbers) = bound(rows(SHARED_MIN, made_at=made_at, step_s=1))
    assert first == made_at
    assert len(second) == SHARED_MIN
    assert numbers == "{" + ",".join(map(str, range(SHARED_MIN))) + "}"
    assert keys.count("k") == SHARED_MIN
    assert "SELECT a0, $4::timestamptz, a2, a3 FROM unnest($3::text::text[], $5::timestamptz[]" in text
    assert "$6::text::bigint[]" in text


def test_few_rows_and_times_that_differ_are_bound_as_arrays() -> None:
    _, (_, first, second, _) = bound(rows(SHARED_MIN - 1))
    assert len(first) == len(second) == SHARED_MIN - 1
    text, (_, first, second, _) = bound(rows(SHARED_MIN, step_s=1))
    assert (first, len(second)) == (NOON, SHARED_MIN)
    assert "$4::timestamptz," in text
    assert "$5::timestamptz[]" in text


def test_a_few_times_are_bound_once_with_the_number_of_each_row_s() -> None:
    one_differs = [*rows(SHARED_MIN), ("last", None, NOON, 1)]
    text, (_, first, second, _, numbers) = bound(one_differs)
    assert (first, second) == ([NOON, None], NOON)
    assert numbers == "{" + "1," * SHARED_MIN + "2}"
    assert "($4::timestamptz[])[a1]" in text
    assert "$7::text::int[]" in text
    several = [(f"k{n}", NOON + timedelta(seconds=n % INDEXED_MAX), NOON, n) for n in range(40)]
    _, (_, first, _, _, numbers) = bound(several)
    assert [first[int(n) - 1] for n in numbers[1:-1].split(",")] == [row[1] for row in several]


@pytest.mark.parametrize("verb", ["try", "patch"])
def test_other_columns_are_bound_once_until_their_rows_have_differed(verb: Verb) -> None:
    names = ("_key", "kind", "number", "_patch")

    def bound_kinds(*numbers: int) -> tuple[Any, Any]:
        change = TableChange(verb, f"things_{verb}", names, ("text[]", "text[]", "bigint[]", "json[]"))
        change.rows = [(f"k{n}", "a", numbers[n % len(numbers)], b"{}") for n in range(SHARED_MIN)]
        _, (_, _, _, kinds, given, bodies) = render([change], 1, "note")
        assert bodies == (b"{}",) * SHARED_MIN
        return kinds, given

    assert bound_kinds(7) == ("a", 7)
    assert bound_kinds(7, 8) == ("a", "{7" + ",8,7" * (SHARED_MIN // 2 - 1) + ",8}")
    assert bound_kinds(7) == ("a", "{7" + ",7" * (SHARED_MIN - 1) + "}"), (
        "not one statement for each combination"
    )


def test_batches_of_any_size_share_their_statement() -> None:
    assert len({bound(rows(count))[0] for count in (SHARED_MIN, 100, 500)}) == 1
