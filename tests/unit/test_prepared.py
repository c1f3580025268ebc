"""A document checked in one process is written by another as if it had been checked there."""

from __future__ import annotations

from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from holdfast.model import Document, Index, Joined, Lifecycle, Prepared, document, schema_of
from holdfast.store import create, create_prepared


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@document(
    "readings/{sensor}/values/{id}",
    id=Joined("sensor", "at"),
    tenant="tenant_id",
    indexes=[
        Index("level", "share", "-at"),
        Index("on_day", "colour", "open"),
        Index("raw", "device", "seen"),
        Index("words[]", "maybe"),
    ],
    lifecycle=Lifecycle("state", initial=["new"], moves={"new": ["seen"]}),
)
class Reading(Document):
    id: str = ""
    tenant_id: str
    sensor: str
    at: datetime
    level: int
    share: float
    on_day: date
    colour: Colour
    open: int | str | None
    raw: bytes
    device: UUID
    seen: bool
    words: list[str]
    maybe: str | UnsetType = UNSET
    state: str = "new"


def over_there(prepared: Prepared) -> Prepared:
    """What is left of it after the way to another process."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(prepared), type=Prepared)


whole = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
readings = st.builds(
    Reading,
    tenant_id=st.just("acme"), sensor=st.just("s1"), level=whole,
    at=st.datetimes(timezones=st.just(UTC)), share=st.floats(allow_nan=False, allow_infinity=False),
    on_day=st.dates(), colour=st.sampled_from(Colour), open=st.none() | whole | texts,
    raw=st.binary(max_size=20), device=st.builds(uuid4), seen=st.booleans(),
    words=st.lists(texts, max_size=3), maybe=texts | st.just(UNSET),
)  # fmt: skip


def kinds(values: Any) -> list[type]:
    return [type(value) for value in values]


@given(readings)
def test_nothing_of_a_prepared_document_changes_on_the_way(reading: Reading) -> None:
    write, schema = create(reading), schema_of(Reading)
    assert write.prepared is not None
    same = create_prepared(Reading, over_there(write.prepared))
    assert same == write
    assert same.prepared is not None
    # Equal is not enough: 1, 1.0 and True are.
    assert kinds(same.prepared.values) == kinds(write.prepared.values)
    assert schema.document_of(same.prepared) == reading
    assert schema.state_of(same.prepared) == "new"
