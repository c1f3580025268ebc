"""Documents that come encoded, perhaps from another process, are checked as any other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import pytest

from holdfast.errors import BadIdError, HoldfastError, TooLargeError, WrongTypeError
from holdfast.model import CompositeId, Document, Index, Lifecycle, document, schema_of
from holdfast.store import create, create_encoded, encoded

THEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@document(
    "readings/{id}",
    id=CompositeId("sensor", "at"),
    tenant="tenant_id",
    indexes=[Index("sensor", "-level")],
    lifecycle=Lifecycle("state", initial=["new"], moves={"new": ["seen"]}),
)
class Reading(Document):
    id: str = ""
    tenant_id: str
    sensor: str
    at: datetime
    level: Annotated[int, msgspec.Meta(ge=0, le=9)]
    state: str = "new"
    text: str = ""


def reading(**changes: object) -> Reading:
    return Reading(**{"tenant_id": "acme", "sensor": "s1", "at": THEN, "level": 3} | changes)  # type: ignore[arg-type]


def test_what_comes_encoded_is_written_like_the_document_itself() -> None:
    write, same = create(reading()), create_encoded(Reading, encoded(reading()))
    assert same == write
    assert same.prepared is not None
    schema, id = schema_of(Reading), "s1_2026-03-01T12:00:00Z"
    assert schema.document_of(same.prepared) == reading(id=id)
    assert (schema.state_of(same.prepared), same.key) == ("new", id)


def test_a_time_of_another_zone_is_kept_in_utc() -> None:
    body = encoded(reading()).replace(b'"at":"2026-03-01T12:00:00Z"', b'"at":"2026-03-01T13:00:00+01:00"')
    assert create_encoded(Reading, body) == create(reading())


@pytest.mark.parametrize(
    ("old", "new", "error", "path"),
    [
        (b'"level":3', b'"level":10', WrongTypeError, "level"),
        (b'"level":3', b'"level":"3"', WrongTypeError, "level"),
        (b'"sensor":"s1"', b'"sensor":null', WrongTypeError, "sensor"),
        (b'"tenant_id":"acme"', b'"tenant_id":""', WrongTypeError, "tenant_id"),
        (b'"at":"2026-03-01T12:00:00Z"', b'"at":"2026-03-01T12:00:00"', BadIdError, "id"),
        (b'"id":"s1', b'"id":"s2', BadIdError, "id"),
        (b'"id":"s1_2026-03-01T12:00:00Z"', b'"id":""', BadIdError, "id"),
        (b"{", b"", WrongTypeError, None),
    ],
)
def test_what_does_not_fit_is_refused(
    old: bytes, new: bytes, error: type[HoldfastError], path: str | None
) -> None:
    body = encoded(reading())
    assert body.count(old) == 1
    with pytest.raises(error) as refused:
        create_encoded(Reading, body.replace(old, new))
    assert getattr(refused.value, "path", None) == path


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(TooLargeError):
        create_encoded(Reading, encoded(reading(text="x" * 1_100_000)))


def test_what_can_not_be_encoded_is_refused_before() -> None:
    with pytest.raises(WrongTypeError):
        encoded(reading(text="\ud800"))
