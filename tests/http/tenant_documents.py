"""One document of each class for a tenant, with the tenant's marker in every text that can hold it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from msgspec import NODEFAULT
from msgspec import inspect as mi

from holdfast.errors import HoldfastError
from holdfast.model import Document, ProvidedId, schema_of
from holdfast.model.columns import enum_values
from holdfast.store import Store, create

NOW: Final = datetime(2026, 11, 16, tzinfo=UTC)


async def seed(
    store: Store, classes: Iterable[type[Document]], tenant_id: str, marker: str
) -> dict[str, str]:
    """Store what can be made of each class; the last part of each id, by the class's name."""
    ids: dict[str, str] = {}
    for cls in classes:
        schema = schema_of(cls)
        if schema.tenant is None:
            continue
        try:
            made = sample_document(cls, tenant_id, marker)
            await store.tenant(tenant_id).commit(create(made))
        except (HoldfastError, LookupError, TypeError, ValueError):
            continue
        ids[schema.name] = str(getattr(made, schema.path.parameters[-1]))
    return ids


def sample_document(cls: type[Document], tenant_id: str, marker: str) -> Document:
    schema = schema_of(cls)
    values = {name: _value(field.type, marker) for name, field in schema.fields.items() if _filled(field)}
    identity, last = schema.declared.id, schema.path.parameters[-1]
    if last == schema.declared.tenant:
        values[last] = tenant_id
    elif isinstance(identity, ProvidedId):
        values[last] = _id(identity.pattern, marker)
    else:
        values[last] = ""  # made of the other fields, or of the time
    if schema.lifecycle is not None:
        values[schema.lifecycle.field] = sorted(schema.lifecycle.initial)[0]
    if schema.declared.tenant is not None:
        values[schema.declared.tenant] = tenant_id
    return cls(**values)


def _filled(field: mi.Field) -> bool:
    """What must be given, and every text; a time or number that may be missing stays missing."""
    return field.default is NODEFAULT or isinstance(_bare(field.type), (mi.StrType, mi.AnyType))


def _bare(kind: mi.Type) -> mi.Type:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    if isinstance(kind, mi.UnionType):
        known = [one for one in map(_bare, kind.types) if not isinstance(one, mi.NoneType)]
        return next((one for one in known if isinstance(one, mi.StrType)), known[0])
    return kind


def _value(kind: mi.Type, marker: str) -> Any:
    kind = _bare(kind)
    values = enum_values(kind)
    if values is not None:
        return values[0]
    match kind:
        case mi.StrType(pattern=pattern):
            return marker if pattern is None else _id(pattern, marker)
        case mi.IntType() | mi.FloatType():
            return 1
        case mi.BoolType():
            return False
        case mi.DateTimeType():
            return NOW
        case mi.DateType():
            return NOW.date()
        case mi.DecimalType():
            return Decimal(1)
        case mi.BytesType():
            return marker.encode()
        case mi.ListType() | mi.VarTupleType() | mi.SetType():
            return [_value(kind.item_type, marker)]
        case mi.DictType():
            return {_value(kind.key_type, marker): _value(kind.value_type, marker)}
        case mi.StructType():
            return kind.cls(**{one.name: _value(one.type, marker) for one in kind.fields if _filled(one)})
        case _:
            return marker


def _id(pattern: str | None, marker: str) -> str:
    digest = hashlib.sha256(marker.encode())
    coded = base64.b32encode(digest.digest()).decode().lower()
    candidates = [marker, marker.lower(), digest.hexdigest(), digest.hexdigest()[:32], coded[:16]]
    candidates += [str(int(digest.hexdigest()[:6], 16)), f"{marker.lower()}@people.example", "2026-11-16"]
    candidates += [f"gh-repo-{int(digest.hexdigest()[:6], 16)}"]
    fitting = [one for one in candidates if pattern is None or re.fullmatch(pattern, one)]
    return fitting[0]
