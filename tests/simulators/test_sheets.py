"""A1 notation, as Sheets reads it."""

from __future__ import annotations

import pytest

from holdfast.simulators.google.refusals import Refusal
from holdfast.simulators.google.sheets import Spreadsheet, values

BOOK = Spreadsheet(
    {
        "User Mappings": [["a1", "b1", "c1"], ["a2"], ["", "b3", None, ""], [], [1.5, True]],
        "Bob's list": [["bob"]],
        "Plain": [["x", "y"], ["z"]],
    }
)


@pytest.mark.parametrize(
    ("asked", "covered", "found"),
    [
        ("User Mappings!A2:C", "'User Mappings'!A2:C1000", [["a2"], ["", "b3"], [], ["1.5", "TRUE"]]),
        ("'User Mappings'!A1:B1", "'User Mappings'!A1:B1", [["a1", "b1"]]),
        ("'Bob''s list'!A1", "'Bob''s list'!A1", [["bob"]]),
        ("Plain", "Plain!A1:Z1000", [["x", "y"], ["z"]]),
        ("Plain!B:B", "Plain!B1:B1000", [["y"]]),
        ("Plain!2:2", "Plain!A2:Z2", [["z"]]),
        ("a1:b2", "'User Mappings'!A1:B2", [["a1", "b1"], ["a2"]]),
    ],
)
def test_a_range_covers(asked: str, covered: str, found: list[list[str]]) -> None:
    assert values(BOOK, asked) == {"range": covered, "majorDimension": "ROWS", "values": found}


def test_a_range_without_values_has_none() -> None:
    assert "values" not in values(BOOK, "Plain!C1:D9")


def test_columns_come_ragged_too() -> None:
    assert values(BOOK, "Plain!A1:B2", dimension="COLUMNS")["values"] == [["x", "z"], ["y"]]


def test_unformatted_values_keep_their_types() -> None:
    assert values(BOOK, "User Mappings!A5:B5", render="UNFORMATTED_VALUE")["values"] == [[1.5, True]]


@pytest.mark.parametrize(
    "asked", ["", "Nope!A1", "'Plain", "Plain!", "Plain!A0", "Plain!!A1", "Plain!B2:A1", "Plain!AAAA1"]
)
def test_a_range_that_cannot_be_is_refused(asked: str) -> None:
    with pytest.raises(Refusal) as raised:
        values(BOOK, asked)
    assert raised.value.status == 400
