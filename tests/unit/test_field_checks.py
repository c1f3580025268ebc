"""Checks that are run together find what each field's own check finds, and what is skipped was valid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec import inspect as mi

from holdfast.errors import HoldfastError, InvalidError, WrongTypeError
from holdfast.model import Document, Index, document, schema_of
from holdfast.model.schema import _validation_error
from holdfast.model.values import FieldChecks, check_for
from holdfast.store import create, create_many

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Place(Struct, frozen=True):
    floor: int
    height: float | None = None


class Visit(Struct):
    at: datetime
    number: int = 0
    place: Place | None = None
    notes: list[int] | UnsetType = UNSET


class Route(Struct, frozen=True):
    start: Place
    length: float = 1.0
    seen_at: datetime | None = None


@document("plain/{id}")
class Plain(Document, rename="camel"):
    id: str
    count: int = 0
    last_count: int | None = None
    level: Annotated[int, Meta(ge=0)] = 0
    share: Annotated[int, Meta(ge=0, le=100)] = 0
    weight: float = 0.0
    seen_at: datetime | None = None
    made_at: datetime = NOON
    due_at: datetime | UnsetType = UNSET
    left: int | UnsetType = UNSET


@document("nested/{id}", indexes=[Index("number")])
class Nested(Document):
    id: str
    number: int = 0
    place: Place = Place(1)
    route: Route | None = None
    straight: Route = Route(Place(1))
    visits: list[Visit] = []
    counts: dict[str, int] = {}
    by_name: dict[str, Visit] = {}
    anything: Any = None
    several: int | str | list[int] | None = None
    last: int = 0


@document("binary/{id}", indexes=[Index("digest"), Index("state")])
class Binary(Document, rename="camel"):
    id: str
    body: bytes
    second: bytes = b""
    digest: bytes = b""
    short: Annotated[bytes, Meta(max_length=3)] = b""
    maybe: bytes | None = None
    state: Literal["new", "old"] = "new"
    count: int = 0
    visits: list[Visit] = []


@document("single/{id}")
class Single(Document):
    id: str
    body: bytes = b"unless it is given"
    text: str = ""


ZONES = st.sampled_from(
    [
        None,
        UTC,
        ZoneInfo("UTC"),
        ZoneInfo("Asia/Tokyo"),
        timezone(timedelta(hours=-5)),
        timezone(timedelta(0), "X"),
    ]
)
TIMES = st.datetimes(timezones=ZONES) | st.just(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))
EDGES = [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 0, 7]
INTEGERS = st.integers(-(2**65), 2**65) | st.sampled_from(EDGES)
PLACES = st.builds(Place, floor=INTEGERS, height=st.none() | st.floats())
VISITS = st.builds(
    Visit,
    at=TIMES,
    number=INTEGERS,
    place=st.none() | PLACES,
    notes=st.just(UNSET) | st.lists(INTEGERS, max_size=2),
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.just(UNSET), st.booleans(), INTEGERS, st.floats(), TIMES, st.text(max_size=3),
    st.binary(max_size=5),
    st.sampled_from(["new", "old", "YWJj", [], {}, (), set(), Place(2), bytearray(b"x"), 10**400]),
    st.lists(INTEGERS, max_size=3), st.lists(VISITS, max_size=2), PLACES, VISITS,
    st.builds(Route, start=PLACES, length=st.floats(), seen_at=TIMES | st.none()),
    st.dictionaries(st.text(max_size=2), INTEGERS | st.none() | VISITS, max_size=3),
)  # fmt: skip


OF_KIND: dict[type[mi.Type], st.SearchStrategy[Any]] = {
    mi.IntType: INTEGERS, mi.DateTimeType: TIMES, mi.BytesType: st.binary(max_size=5), mi.StructType: PLACES,
    mi.DictType: st.dictionaries(st.text(max_size=2), st.sampled_from([*EDGES, 1.5, None]), max_size=3),
    mi.FloatType: st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 7, 10**400]),
}  # fmt: skip


_FIXED: dict[type[Document], dict[str, Any]] = {
    cls: {"id": "1", "body": b"\x00\xffbody"} for cls in (Binary, Single)
}


def documents(cls: type[Document], *names: str) -> st.SearchStrategy[Document]:
    """Documents with these fields, or up to three others, replaced by values that fit or do not."""
    fields = schema_of(cls).fields.values()
    # Half of them of the field's own kind: `|` alone would give each kind of value the same share.
    any_value = VALUES.map(lambda value: value)
    values = {f.name: OF_KIND.get(_kind(f.type), VALUES).map(lambda v: v) | any_value for f in fields}
    fixed = _FIXED.get(cls, {"id": "1"})
    pairs = [st.tuples(st.just(name), value) for name, value in values.items() if name != "id"]
    changes = (
        st.fixed_dictionaries({name: values[name] for name in names})
        if names
        else st.lists(st.one_of(pairs), max_size=3).map(dict)
    )
    return changes.map(lambda changed: cls(**fixed | changed))


def _kind(kind: mi.Type) -> type[mi.Type]:
    while isinstance(kind, mi.Metadata | mi.UnionType):
        kind = kind.type if isinstance(kind, mi.Metadata) else kind.types[0]
    return type(kind)


CLASSES: list[type[Document]] = [Plain, Nested, Binary, Single]
# Each field by itself, and documents with several errors, of which the first one counts.
CASES = [
    (cls, *names)
    for cls in CLASSES
    for names in [(), *((name,) for name in schema_of(cls).fields if name != "id")]
]


def one_by_one(struct: Any, fields: Iterable[mi.Field]) -> dict[str, Any]:
    """What each field's own check makes of its value."""
    changed = {}
    for field in fields:
        old, check = getattr(struct, field.name), check_for(field.type)
        if check is None or old is UNSET:
            continue
        new = _inner(old, field) if isinstance(field.type, mi.StructType) else check(old, field.encode_name)
        if new is not old:
            changed[field.name] = new
    return changed


def _inner(struct: Any, field: mi.Field) -> Any:
    assert isinstance(field.type, mi.StructType)
    try:
        changed = one_by_one(struct, field.type.fields)
    except InvalidError as fault:
        raise type(fault)(fault.message, f"{field.encode_name}.{fault.path}") from None
    return msgspec.structs.replace(struct, **changed) if changed else struct


def outcome(act: Any, *arguments: Any) -> Any:
    try:
        return act(*arguments)
    except (HoldfastError, TypeError, AttributeError) as fault:
        return type(fault), str(fault), getattr(fault, "path", None)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_checks_that_are_run_together_find_what_each_finds(case: tuple[Any, ...]) -> None:
    cls = case[0]
    fields = list(schema_of(cls).fields.values())
    checks = FieldChecks(fields)

    @given(documents(*case))
    def compare(given: Document) -> None:
        # By their texts, because NaN equals nothing.
        assert repr(outcome(lambda: checks.changes(given) or {})) == repr(outcome(one_by_one, given, fields))

    compare()


def expected(given: Document) -> Any:
    """What a document becomes by each field's own check, encoded once and decoded as declared."""
    schema = schema_of(type(given))
    for name, value in one_by_one(given, schema.fields.values()).items():
        setattr(given, name, value)
    body = msgspec.json.encode(given)
    return body, schema.values(msgspec.json.decode(body, type=type(given)))


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_document_is_prepared_exactly_where_all_of_it_is_valid(case: tuple[Any, ...]) -> None:
    cls = case[0]
    schema = schema_of(cls)

    @given(documents(*case))
    def compare(given: Document) -> None:
        try:
            wanted = expected(deepcopy(given))
        except InvalidError as fault:
            wanted = type(fault), str(fault), fault.path
        except (msgspec.ValidationError, TypeError, AttributeError) as fault:
            better = _decoding_error(given) or fault
            refused = _validation_error(better, cls.__name__)
            wanted = WrongTypeError, str(refused), refused.path
        made = outcome(schema.prepare, given)
        assert wanted == (made if isinstance(made, tuple) else (made.body, made.values))

    compare()


def _decoding_error(given: Document) -> Exception | None:
    """The decoder's error, which says more than a check that stumbled over a value of another type."""
    try:
        msgspec.json.decode(msgspec.json.encode(given), type=type(given))
    except (msgspec.ValidationError, TypeError) as fault:
        return fault
    return None


def test_changes_are_checked_as_the_document_that_they_make() -> None:
    schema = schema_of(Nested)

    @given(
        documents(Nested),
        st.sets(st.sampled_from(["number", "place", "visits", "counts", "several", "last"])),
    )
    def compare(given: Document, names: set[str]) -> None:
        for field in schema.fields.values():
            if field.name not in {"id", *names}:
                setattr(given, field.name, getattr(Nested(id="1"), field.name))
        changed = outcome(schema.prepare_changed, deepcopy(given), "1", sorted(names))
        assert changed == outcome(schema.prepare, given)

    compare()


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_documents_that_are_checked_together_are_checked_as_each_alone(case: tuple[Any, ...]) -> None:
    cls = case[0]

    # Mostly of valid ones, so that no error of another document hides what is found in one.
    @given(st.lists(documents(*case) | st.just(cls(**_FIXED.get(cls, {"id": "1"}))), max_size=4))
    def compare(given: list[Document]) -> None:
        alone, together = deepcopy(given), deepcopy(given)
        wanted = outcome(lambda: [create(one) for one in alone])
        assert outcome(create_many, together) == wanted
        assert repr(together) == repr(alone), "what is stored in place of a value is the document's, too"
        none_changes = all(outcome(schema_of(cls).checks.changes, one) is None for one in given)
        assert none_changes or not _change_none(cls, given)

    compare()


def _change_none(cls: type[Document], given: list[Document]) -> bool:
    try:
        return schema_of(cls).checks.change_none(given)
    except (HoldfastError, TypeError, AttributeError):
        return False


def test_a_time_of_another_zone_becomes_one_in_utc_and_an_error_changes_nothing() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=2)))
    given = Plain(id="1", made_at=east)
    schema_of(Plain).prepare(given)
    assert given.made_at.tzinfo is UTC
    wrong = Plain(id="1", made_at=east, weight=math.nan, seen_at=datetime(2026, 1, 1))
    with pytest.raises(WrongTypeError, match="NaN and infinity"):
        schema_of(Plain).prepare(wrong)
    assert wrong.made_at is east


def test_a_list_inside_that_may_be_missing_may_be_missing() -> None:
    given = Nested(id="1", visits=[Visit(NOON)], by_name={"a": Visit(NOON, notes=[1])})
    assert b'"notes"' in schema_of(Nested).prepare(given).body


@pytest.mark.parametrize("value", ["text that is no base64", "YWJj", None, 7, bytearray(b"x")])
def test_a_field_of_bytes_takes_nothing_else_unseen(value: Any) -> None:
    given = Single(id="1", body=value)
    wanted = _decoding_error(given)
    made = outcome(schema_of(Single).prepare, given)
    assert (wanted is None) == (not isinstance(made, tuple))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_an_integer_just_outside_64_bits_is_refused_with_its_path(value: int) -> None:
    given: dict[str, Document] = {
        "count": Plain(id="1", count=value),
        "lastCount": Plain(id="1", last_count=value),
        "place.floor": Nested(id="1", place=Place(value)),
        "straight.start.floor": Nested(id="1", straight=Route(Place(value))),
        "counts.b": Nested(id="1", counts={"a": 1, "b": value}),
        "visits[1].number": Nested(id="1", visits=[Visit(NOON), Visit(NOON, number=value)]),
    }
    for path, one in given.items():
        with pytest.raises(WrongTypeError, match="an integer must fit 64 bits") as refused:
            schema_of(type(one)).prepare(one)
        assert refused.value.path == path
