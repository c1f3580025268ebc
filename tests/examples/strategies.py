"""Hypothesis strategies for any declared document, read off its types."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET
from msgspec import inspect as mi

from holdfast.model import Document, ProvidedId, TimestampId, schema_of
from holdfast.model.columns import enum_values
from holdfast.model.plain_fields import may_miss

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_WHOLE = st.integers(-(2**63), 2**63 - 1)
_FRACTIONAL = st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _WHOLE | _FRACTIONAL | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_PLAIN: dict[type[mi.Type], st.SearchStrategy[Any]] = {
    mi.BoolType: st.booleans(),
    mi.NoneType: st.none(),
    mi.BytesType: st.binary(max_size=12),
    mi.DateTimeType: st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC)),
    mi.AnyType: _JSON,
}


def documents(cls: type[Document]) -> st.SearchStrategy[Any]:
    """Documents that the declaration takes."""
    schema = schema_of(cls)
    fields = dict(schema.fields)
    name = schema.path.parameters[-1]
    made = {field.name: _field(field) for field in fields.values()}
    identity = schema.declared.id
    if isinstance(identity, ProvidedId) and identity.pattern:
        made[name] = st.from_regex(f"^(?:{identity.pattern})$", fullmatch=True)
    elif isinstance(identity, TimestampId):
        made[name] = st.from_regex(rf"^{identity.prefix}-[a-z0-9]+$", fullmatch=True)
    else:
        made[name] = st.from_regex(r"^[a-z0-9]{1,9}$", fullmatch=True)
    return st.builds(cls, **made)


def _field(field: mi.Field) -> st.SearchStrategy[Any]:
    strategy = _value(field.type)
    return st.just(UNSET) | strategy if may_miss(field) else strategy


def _value(kind: mi.Type) -> st.SearchStrategy[Any]:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    values = enum_values(kind)
    if values is not None:
        return st.sampled_from(values)
    if isinstance(kind, mi.IntType):
        return st.integers(
            -(2**63) if kind.ge is None else kind.ge, 2**63 - 1 if kind.le is None else kind.le
        )
    if isinstance(kind, mi.FloatType):
        return _FRACTIONAL
    if isinstance(kind, mi.StrType):
        return st.from_regex(kind.pattern, fullmatch=True) if kind.pattern else _text(kind)
    if isinstance(kind, mi.ListType):
        return st.lists(_value(kind.item_type), max_size=3)
    if isinstance(kind, mi.DictType):
        return st.dictionaries(_TEXT, _value(kind.value_type), max_size=3)
    if isinstance(kind, mi.UnionType):
        return st.one_of(*(_value(one) for one in kind.types))
    if isinstance(kind, mi.StructType):
        return st.builds(kind.cls, **{field.name: _field(field) for field in kind.fields})
    return _PLAIN[type(kind)]


def _text(kind: mi.StrType) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=kind.min_length or 0, max_size=12)
