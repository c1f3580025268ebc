"""A document of any declared class, read off its types: the same for the same number."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import NODEFAULT, UNSET
from msgspec import inspect as mi

from holdfast.model import Document, schema_of
from holdfast.model.columns import enum_values
from holdfast.model.plain_fields import may_miss
from holdfast.store import Store, Write
from holdfast.store.commit import Commit, Committed

_TEXTS = ("", "plain", "zwölf Boxkämpfer", "鍵", "😀 astral", 'it\'s "quoted" \\ /')
_WHOLE = (0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63))
_FRACTIONS = (0.0, 0.5, -1.25, 1e22, 1e-9, 3.0)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def sample(cls: type[Document], number: int) -> Any:
    """A document that the declaration takes, in any of its states."""
    schema, chance = schema_of(cls), random.Random(f"{cls.__name__} {number}")
    fields = {field.name: _field(field, chance) for field in schema.fields.values()}
    for name in schema.path.parameters:
        fields[name] = f"{name[:3]}-{chance.choice('aZ~é')}{number:04}"
    if schema.tenant is not None and schema.tenant.path != schema.path.parameters[-1]:
        fields[schema.tenant.path] = chance.choice(("acme", "hoge", "-"))
    if "schema_version" in fields:
        fields["schema_version"] = schema.version
    if schema.claim is not None:
        fields[schema.claim.fence] = chance.randrange(1_000)
    if schema.claim is not None and schema.claim.lane:
        fields[schema.claim.lane] = chance.choice(("left", "right"))
    document = cls(**fields)
    schema.prepare(document)
    return document


async def fill(store: Store, classes: list[type[Document]], count: int) -> None:
    """So many documents of each class, as if they had got there by their own ways."""
    for cls in classes:
        schema = schema_of(cls)
        prepared = [schema.prepare(sample(cls, number)) for number in range(count)]
        commits = [Commit((Write("put", schema, one.key, None, one),), restoring=True) for one in prepared]
        outcomes = await store.engine.commit(commits)
        assert all(isinstance(outcome, Committed) for outcome in outcomes), outcomes


def _field(field: mi.Field, chance: random.Random) -> Any:
    if may_miss(field) and chance.random() < 0.3:
        return UNSET
    if field.default is not NODEFAULT and chance.random() < 0.1:
        return field.default
    return _value(field.type, chance)


def _value(kind: mi.Type, chance: random.Random) -> Any:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    values = enum_values(kind)
    if values is not None:
        return chance.choice(sorted(values, key=str))
    match kind:
        case mi.BoolType():
            return chance.random() < 0.5
        case mi.NoneType():
            return None
        case mi.BytesType():
            return chance.randbytes(chance.randrange(9))
        case mi.DateTimeType():
            return _EPOCH + timedelta(microseconds=chance.randrange(10**14))
        case mi.IntType():
            return _bounded(kind, chance)
        case mi.FloatType():
            return chance.choice((0.25, 0.5) if kind.ge is not None or kind.gt is not None else _FRACTIONS)
        case mi.StrType():
            return _text(kind, chance)
        case mi.ListType() | mi.VarTupleType():
            return [_value(kind.item_type, chance) for _ in range(chance.randrange(3))]
        case mi.DictType():
            return {
                key: _value(kind.value_type, chance) for key in chance.sample("cabé", chance.randrange(4))
            }
        case mi.UnionType():
            return _value(
                chance.choice([one for one in kind.types if not isinstance(one, mi.CustomType)]), chance
            )
        case mi.StructType():
            return kind.cls(**{field.name: _field(field, chance) for field in kind.fields})
        case mi.AnyType():
            return {"z": [1, 2.5, "x", None], "a": {"deep": chance.random() < 0.5}}
    raise NotImplementedError(f"no sample for {kind}")


def _bounded(kind: mi.IntType, chance: random.Random) -> int:
    if kind.ge is None and kind.gt is None and kind.le is None:
        return chance.choice(_WHOLE)
    return chance.randint(max(kind.ge or 0, (kind.gt or 0) + 1), min(kind.le or 90, 90))


def _text(kind: mi.StrType, chance: random.Random) -> str:
    text = chance.choice(_TEXTS)
    return text if len(text) >= (kind.min_length or 0) else "x" * (kind.min_length or 0)
