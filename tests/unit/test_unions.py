"""A field of several types keeps each value as it is and checks it by its own type."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from holdfast.errors import DeclarationError, WrongTypeError
from holdfast.model import Document, document, schema_of


class Circle(Struct, tag=True):
    radius: float


class Visit(Struct, tag=True):
    at: datetime
    number: int


@document("mixed/{id}")
class Mixed(Document):
    id: str
    held: str | int | list[int] | Circle | Visit | None = None
    tags: str | list[int] = ""


@pytest.mark.parametrize(
    "value",
    ["text", "", 7, [1, 2], Circle(1.5),
     Visit(datetime(2024, 1, 1, tzinfo=UTC), 3), None],
)  # fmt: skip
def test_each_value_comes_back_as_it_was(value: Any) -> None:
    schema = schema_of(Mixed)
    assert schema.load(schema.prepare(Mixed(id="1", held=value)).body, ("1",)).held == value


@pytest.mark.parametrize(
    "value",
    [2**63, [2**63], Circle(float("nan")), Visit(datetime(2024, 1, 1), 1)],
)
def test_each_value_is_checked_by_its_own_type(value: Any) -> None:
    with pytest.raises(WrongTypeError):
        schema_of(Mixed).prepare(Mixed(id="1", held=value))


def test_text_beside_a_list_stays_text() -> None:
    schema = schema_of(Mixed)
    assert schema.load(schema.prepare(Mixed(id="1", tags="a,b")).body, ("1",)).tags == "a,b"


def test_times_inside_are_kept_in_utc() -> None:
    east = datetime(2024, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    body = schema_of(Mixed).prepare(Mixed(id="1", held=Visit(east, 1))).body
    assert msgspec.json.decode(body)["held"]["at"] == "2024-01-01T00:00:00Z"


def test_a_union_no_decoder_can_tell_apart_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match="Unclear: Type unions"):

        @document("unclear/{id}")
        class Unclear(Document):
            id: str
            held: dict[str, int] | Circle
