"""The exported JSON Schema takes every stored document and refuses what the declaration refuses."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.errors import InvalidError
from holdfast.model import Document, document, schema_of
from holdfast.model.export import export
from holdfast.store import put
from tests.examples import gwi
from tests.examples.calendar_sync import WatchChannel
from tests.examples.gwi_runs import Run
from tests.examples.gwi_samples import SAMPLES
from tests.examples.strategies import documents

CLASSES: list[type[Document]] = [*gwi.COLLECTIONS, WatchChannel]
BUNDLE = json.loads(export([schema_of(cls) for cls in CLASSES], "json-schema"))


def _validator(cls: type[Document], bundle: dict[str, Any] = BUNDLE) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**bundle, "$ref": f"#/$defs/{cls.__name__}"})


def _stored(kept: Document) -> Any:
    return json.loads(schema_of(type(kept)).prepare(kept).body)


def test_the_bundle_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(BUNDLE)
    assert BUNDLE["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {cls.__name__ for cls in CLASSES} <= set(BUNDLE["$defs"])


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_stored_document_is_valid(cls: type[Document], data: st.DataObject) -> None:
    kept = data.draw(documents(cls))
    try:
        body = _stored(kept)
    except InvalidError:
        return
    _validator(cls).validate(body)


_WRONG: list[tuple[str, Any]] = [
    ("channelId", "has spaces"),
    ("channelId", "x" * 65),
    ("channelId", None),
    ("resourceId", ""),
    ("resourceId", 7),
    ("calendarId", "no address"),
    ("expiration", -1),
    ("expiration", 1.5),
    ("expiration", "1700000000000"),
    ("expiration", 2**63),
    ("registeredAt", True),
    ("status", "paused"),
    ("status", 1),
]


def _channel() -> dict[str, Any]:
    channel = WatchChannel(
        channel_id="calendar-sync-a-1", resource_id="r", calendar_id="a@example.org", expiration=1,
        registered_at=1, last_updated_at=1,
    )  # fmt: skip
    return dict(_stored(channel))


@pytest.mark.parametrize(("field", "value"), _WRONG)
def test_a_wrong_value_is_refused_with_the_fields_name(field: str, value: Any) -> None:
    validator = _validator(WatchChannel)
    assert validator.is_valid(_channel())
    faults = list(validator.iter_errors({**_channel(), field: value}))
    assert {tuple(fault.absolute_path) for fault in faults} == {(field,)}


def test_unknown_and_missing_fields_are_refused_also_inside() -> None:
    run = _stored(SAMPLES[Run]("gh-org-1", "me", mark=""))
    validator = _validator(Run)
    assert validator.is_valid(run)
    assert not validator.is_valid({**run, "colour": "red"})
    assert not validator.is_valid({**run, "trigger": {"source": "ui", "colour": "red"}})
    assert not validator.is_valid({**run, "trigger": {}})
    assert not validator.is_valid({key: value for key, value in run.items() if key != "tenantId"})
    assert validator.is_valid({key: value for key, value in run.items() if key != "steps"})


@pytest.mark.parametrize("value", ["2024-01-15", "2024-01-15T10:30:00", "2024-01-15T10:30:00+01:00", 5, None])
def test_a_time_is_text_in_utc_as_the_store_writes_it(value: Any) -> None:
    run = _stored(SAMPLES[Run]("gh-org-1", "me", mark=""))
    assert not _validator(Run).is_valid({**run, "createdAt": value})


_OTHERS: st.SearchStrategy[Any] = st.sampled_from([None, True, -10, -1, 0, 3, 0.5, "text", "pending", [], {}])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_replaced_value_is_refused_exactly_when_the_declaration_refuses_it(data: st.DataObject) -> None:
    run = SAMPLES[Run]("gh-org-1", "me", mark="")
    body = _stored(run)
    name = data.draw(st.sampled_from([field.encode_name for field in schema_of(Run).fields.values()]))
    body[name] = data.draw(_OTHERS)
    try:
        put(msgspec.convert(body, Run))
        taken = True
    except (msgspec.ValidationError, InvalidError):
        taken = False
    assert _validator(Run).is_valid(body) == taken, (name, body[name])


class Circle(Struct, tag=True):
    radius: float


class Square(Struct, tag=True):
    side: Annotated[float, Meta(gt=0, le=10)]


@document("shapes/{id}", path_only=["id"])
class Shape(Document):
    id: str
    outline: Circle | Square
    corners: Annotated[list[tuple[int, int]], Meta(max_length=2)] = []
    seal: bytes = b""
    names: dict[str, Literal[1, 2]] = {}
    seen: datetime | None = None
    note: str | UnsetType = UNSET


def test_unions_tuples_bytes_and_bounds_are_described() -> None:
    bundle = json.loads(export([schema_of(Shape)], "json-schema"))
    validator = _validator(Shape, bundle)
    kept = Shape(
        id="1", outline=Square(2.5), corners=[(1, 2)], seal=b"\x00\xff", names={"a": 1},
        seen=datetime(2024, 1, 1, microsecond=5, tzinfo=UTC),
    )  # fmt: skip
    body = _stored(kept)
    assert "id" not in body
    assert "id" not in bundle["$defs"]["Shape"]["properties"]
    validator.validate(body)
    for wrong in (
        {"outline": {"type": "Square", "side": 11}},
        {"outline": {"type": "Square", "side": 0}},
        {"outline": {"type": "Oval"}},
        {"corners": [[1]]},
        {"corners": [[1, 2]] * 3},
        {"seal": "%"},
        {"names": {"a": 3}},
        {"note": None},
        {"id": "1"},
    ):
        assert not validator.is_valid({**body, **wrong}), wrong


def test_structs_of_one_name_stay_apart() -> None:
    first, second = msgspec.defstruct("Inner", [("a", int)]), msgspec.defstruct("Inner", [("b", str)])

    @document("pairs/{id}")
    class Pair(Document):
        id: str
        one: first  # type: ignore[valid-type]
        two: second  # type: ignore[valid-type]

    bundle = json.loads(export([schema_of(Pair)], "json-schema"))
    assert set(bundle["$defs"]) == {"Pair", "Inner", "Inner2"}
    assert bundle["$defs"]["Pair"]["properties"]["two"] == {"$ref": "#/$defs/Inner2"}
    assert bundle["$defs"]["Inner2"]["required"] == ["b"]
