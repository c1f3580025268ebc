"""What people type for a value, and what to type for one: the one undoes the other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidError
from holdfast.model import Document, Index, document, schema_of
from holdfast.model.columns import Column
from holdfast.runtime.document_browser.values import read_value, write_value


@document(
    "typed/{id}",
    indexes=[
        Index("text"),
        Index("none"),
        Index("count"),
        Index("part"),
        Index("yes"),
        Index("at"),
        Index("any"),
    ],
)
class Typed(Document):
    id: str
    text: str = ""
    none: str | None = None
    count: int = 0
    part: float = 0.0
    yes: bool = False
    at: datetime
    any: int | str | None = None


def _column(name: str) -> Column:
    column = schema_of(Typed).column(name)
    assert column is not None
    return column


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_WHOLE = st.integers(-(2**63), 2**63 - 1)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": _TEXT, "none": st.none() | _TEXT, "count": _WHOLE, "yes": st.booleans(),
    "part": st.floats(allow_nan=False, allow_infinity=False),
    "at": st.datetimes(timezones=st.just(UTC)), "any": st.none() | _WHOLE | _TEXT,
}  # fmt: skip


@pytest.mark.parametrize("name", list(_VALUES))
def test_what_is_told_to_type_is_read_as_the_value_it_was_told_for(name: str) -> None:
    @given(_VALUES[name])
    def comes_back(value: Any) -> None:
        column = _column(name)
        typed = write_value(column, value)
        assert typed
        assert read_value(column, typed.strip()) == value

    comes_back()


@pytest.mark.parametrize(
    ("name", "typed"),
    [("count", "1.5"), ("count", "null"), ("yes", "1"), ("at", "12:00"), ("part", "much"), ("at", "null")],
)
def test_what_does_not_fit_is_told_with_what_would(name: str, typed: str) -> None:
    with pytest.raises(InvalidError, match=f"{name} takes"):
        read_value(_column(name), typed)
