"""Values that engines have been known to disagree about, and any others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from holdfast.model.limits import INTEGER_MAX, INTEGER_MIN
from holdfast.store.contract.models import NOON, Spot

Values = st.SearchStrategy[Any]

_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

text: Values = st.sampled_from(
    [
        "",
        "a",
        "A",
        "ab",
        "b",
        "é",
        "e\u0301",
        "ż",
        "\uff5e",
        "\uffff",
        "\U0001f41c",
        "\U0010ffff",
        "2",
        "\x7f",
        "\x01",
    ]
) | st.text(_CHARACTERS, max_size=3)
whole: Values = st.sampled_from(
    [0, 1, 2, -1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, INTEGER_MAX, INTEGER_MAX - 1, INTEGER_MIN]
) | st.integers(-3, 3)
part: Values = st.sampled_from(
    [0.0, -0.0, 0.5, 1.0, 2.0, -1.5, 0.1, 1e308, -1e308, 5e-324, -5e-324, 2.0**53, 2.0**53 + 2, 9.2e18, 1e-7]
) | st.floats(allow_nan=False, allow_infinity=False)
at: Values = st.sampled_from([
    NOON, NOON + timedelta(microseconds=1), NOON - timedelta(microseconds=1), datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]) | st.datetimes(timezones=st.just(UTC))  # fmt: skip
blob: Values = st.sampled_from([b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\xff", b"a"]) | st.binary(
    max_size=3
)
flag: Values = st.booleans()
mixed: Values = st.one_of(st.none(), flag, whole, part, text)
moment: Values = st.one_of(st.none(), flag, whole, at)
level: Values = st.none() | st.integers(-5, 5) | st.sampled_from([INTEGER_MAX, INTEGER_MIN])
amount: Values = st.integers(-4000, 4000).map(lambda quarters: quarters / 4)
label: Values = st.sampled_from(["x", "y", "z", "", "é"])
score: Values = st.sampled_from([None, True, False, 1, 1.0, 2, 2.5, "1", "", -0.0, 0, 2**53 + 1, 2.0**53])
spot: Values = st.none() | st.builds(Spot, st.sampled_from(["Rome", "Oslo", ""]), st.none() | text)
name: Values = st.sampled_from(
    ["", "a", "a.b", "`", "__name__", "a/b", "ż", " ", "0", "\\", "_x", "__x__", "a b"]
)
anything: Values = st.recursive(
    mixed | st.just("a\x00b"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(name, inner, max_size=3),
    max_leaves=5,
)

FIELDS: dict[str, Values] = {
    "text": text, "whole": whole, "part": part, "flag": flag, "at": st.none() | at, "blob": blob,
    "mixed": mixed, "moment": moment, "maybe": st.one_of(st.just(UNSET), st.none(), whole, text),
    "level": level, "amount": amount, "spot": spot, "labels": st.lists(label, max_size=3),
    "scores": st.lists(score, max_size=4), "anything": anything,
    "table": st.dictionaries(name | text, anything, max_size=3),
}  # fmt: skip

REFUSED: dict[str, Values] = {
    "whole": st.sampled_from([2**63, "1", 1.5, None]),
    "part": st.sampled_from([float("nan"), float("inf"), "x"]),
    "text": st.sampled_from(["\x00", "\ud800", 5, "x" * 3000]),
    "at": st.sampled_from([datetime(2026, 1, 1), "now"]),
    "anything": st.sampled_from([b"", 2**64, {1: 2}, NOON]),
    "labels": st.sampled_from([[1], None, ["x" * 3000]]),
    "mixed": st.sampled_from([[], {}, b"", 2**63, float("nan")]),
}

# What a question compares each indexed field with: its own values, and others where the field is open.
OPERANDS: dict[str, Values] = {
    "text": text, "whole": whole, "part": part | st.integers(-2, 2), "flag": flag, "at": at, "blob": blob,
    "mixed": mixed.filter(lambda v: v is not None), "moment": moment.filter(lambda v: v is not None),
    "maybe": whole | text, "level": st.integers(-5, 5), "amount": amount,
    "spot.city": st.sampled_from(["Rome", "Oslo", ""]), "labels": label,
    "scores": score.filter(lambda v: v is not None), "points": st.integers(-3, 9),
    "state": st.sampled_from(["new", "active", "gone"]), "ends_at": at, "joined": st.integers(0, 1),
    "size": st.integers(-2, 5) | st.sampled_from([0.5, 2.0]), "color": st.sampled_from(["red", "", "é"]),
    "status": st.sampled_from(["waiting", "working", "done"]), "due": at, "fence": st.integers(0, 3),
}  # fmt: skip
NULLABLE = frozenset({"at", "mixed", "moment", "maybe", "level", "ends_at", "color", "due"})
