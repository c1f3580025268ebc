"""Ids that are made of other fields."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

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
