"""Ids that are made of other fields."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import WrongTypeError
from holdfast.model import CompositeId, Document, document
from holdfast.model.document import schema_of
from holdfast.store import create, put

NOON = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)


@document("readings/{id}", id=CompositeId("at", "day", "number", "name"))
class Reading(Document):
    at: datetime
    day: date
    number: int
    name: str
    id: str = ""


def reading(at: datetime) -> Reading:
    return Reading(at=at, day=date(2026, 3, 1), number=7, name="n")


def test_an_id_is_the_same_whatever_zone_its_time_is_given_in() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=2)))
    made = [create(reading(at)).key for at in (NOON, east, NOON)]
    assert made == ["2026-03-01T12:00:00.000005Z_2026-03-01_7_n"] * 3


def test_a_document_keeps_its_id_when_it_is_written_again_as_it_was_read() -> None:
    written = create(reading(NOON.astimezone(timezone(timedelta(hours=-5)))))
    assert written.prepared is not None
    read = schema_of(Reading).load(written.prepared.body, (written.key,))
    assert put(read).key == written.key


@document("pairs/{id}", id=CompositeId("left", "right"))
class Pair(Document):
    id: str = ""
    left: str
    right: str


@given(st.text(), st.text())
def test_an_id_of_texts_is_what_the_declaration_makes_of_them(left: str, right: str) -> None:
    pair = Pair(left=left, right=right)
    schema_of(Pair).assign_id(pair)
    assert pair.id == schema_of(Pair).declared.id.make(pair.__getattribute__)


def test_an_id_of_what_is_no_text_is_made_as_declared_and_then_refused() -> None:
    pair = Pair(left="a", right=7)  # type: ignore[arg-type]
    schema_of(Pair).assign_id(pair)
    assert pair.id == "a_7"
    with pytest.raises(WrongTypeError, match=r"Pair\.right: expected str, got int"):
        schema_of(Pair).prepare(pair)
