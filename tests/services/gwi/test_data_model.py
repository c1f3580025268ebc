"""Every collection, id, field, enumeration, index and access rule of the data model is declared."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
from msgspec import inspect as mi

from holdfast.model import Document, schema_of
from holdfast.model.columns import enum_values
from holdfast.model.export.firestore_indexes import firestore_indexes
from holdfast.services.gwi.models import DOCUMENTS
from holdfast.services.gwi.models.records import RunEventType, UsageDaily
from tests.services.gwi.data_model import ACCESS, COLLECTIONS, FIELDS, IDS, INDEXES, Given

CLASSES: dict[str, type[Document]] = {"/".join(schema_of(cls).path.names): cls for cls in DOCUMENTS}
BY_GROUP = {schema_of(cls).path.names[-1]: cls for cls in DOCUMENTS}
# Where the declaration differs, and why.
DIFFERENT = {
    ("gwi_audit_events", "eventType"): "operations record actions of their own besides those of runs",
    ("gwi_usage_events", "metrics"): "a map of the metrics that the sums have",
    ("gwi_run_locks", "expiresAt"): "null while nobody holds the lock",
}
PRIMITIVES: dict[str, tuple[type[mi.Type], ...]] = {
    "string": (mi.StrType, mi.LiteralType),
    "number": (mi.IntType, mi.FloatType),
    "boolean": (mi.BoolType,),
    "Timestamp": (mi.DateTimeType,),
}
ROLES = {"Members": "viewer", "Admin": "admin", "Admin+": "admin", "Service": "service", "Self": "self"}


def test_the_text_of_the_data_model_was_read() -> None:
    assert len([name for name in COLLECTIONS if name in FIELDS]) == 19
    assert {name: len(fields) for name, fields in FIELDS.items() if name in ("gwi_tenants", "gwi_runs")} == {
        "gwi_tenants": 16, "gwi_runs": 21,
    }  # fmt: skip
    assert FIELDS["gwi_tenants"]["plan"][1].values == ("free", "team", "pro", "enterprise")
    assert (len(IDS), len(ACCESS), len(INDEXES)) == (12, 19, 7)


def test_every_collection_is_declared() -> None:
    assert set(COLLECTIONS) - CLASSES.keys() == set()


@pytest.mark.parametrize("collection", FIELDS)
def test_every_field_is_declared_with_its_type(collection: str) -> None:
    declared = {field.encode_name: field for field in schema_of(CLASSES[collection]).fields.values()}
    wrong = [
        fault
        for name, (optional, given) in FIELDS[collection].items()
        if (collection, name) not in DIFFERENT
        for fault in _faults(name, declared.get(name), optional, given)
    ]
    assert wrong == []


def _faults(name: str, field: mi.Field | None, optional: bool, given: Given) -> list[str]:
    if field is None:
        return [f"{name} is missing"]
    kind, nullable = _bare(field.type)
    if nullable and not optional:
        return [f"{name} may be null"]
    if optional and field.required and not nullable:
        return [f"{name} may not be missing"]
    return _unlike(name, kind, given)


def _unlike(name: str, kind: mi.Type, given: Given) -> list[str]:
    """What differs between a declared type and the given one."""
    if given.kind == "enum":
        values = set(enum_values(kind) or ())
        return [] if values == set(given.values) else [f"{name}: {sorted(values)}"]
    if given.kind in PRIMITIVES:
        return [] if isinstance(kind, PRIMITIVES[given.kind]) else [f"{name}: {type(kind).__name__}"]
    if given.kind == "list":
        if not isinstance(kind, mi.ListType):
            return [f"{name} is no list"]
        return _unlike(f"{name}[]", _bare(kind.item_type)[0], given.item)
    if given.kind == "map":
        return [] if isinstance(kind, mi.DictType) else [f"{name} is no map"]
    if given.kind == "object":
        if not isinstance(kind, mi.StructType):
            return [f"{name} is no struct"]
        inner = {field.encode_name: field for field in kind.fields}
        return [
            fault
            for part, (optional, one) in given.fields.items()
            for fault in _faults(f"{name}.{part}", inner.get(part), optional, one)
        ]
    # `unknown`, and names that the text does not explain.
    return []


def _bare(kind: mi.Type) -> tuple[mi.Type, bool]:
    nullable = False
    while True:
        if isinstance(kind, mi.Metadata):
            kind = kind.type
        elif isinstance(kind, mi.UnionType) and any(isinstance(one, mi.NoneType) for one in kind.types):
            rest = [one for one in kind.types if not isinstance(one, mi.NoneType)]
            kind, nullable = (rest[0] if len(rest) == 1 else mi.UnionType(tuple(rest))), True
        else:
            return kind, nullable


def test_what_differs_holds_what_was_given() -> None:
    events = FIELDS["gwi_audit_events"]["eventType"][1].values
    assert set(get_args(RunEventType)) == set(events)
    metrics = FIELDS["gwi_usage_events"]["metrics"][1].fields
    counted = {field.encode_name for field in schema_of(UsageDaily).fields.values()}
    assert metrics.keys() <= counted


@pytest.mark.parametrize(("collection", "pattern", "example"), IDS)
def test_ids_are_made_and_taken_as_given(collection: str, pattern: str, example: str) -> None:
    schema = schema_of(BY_GROUP[collection])
    identity: Any = schema.declared.id
    if "{timestamp36}" in pattern:
        prefix = pattern.partition("-")[0]
        made = identity.make(lambda name: "")
        assert re.fullmatch(rf"{prefix}-[0-9a-z]{{8}}-[0-9a-z]{{8}}", made)
        identity.check(example, "id")
    elif pattern.startswith("{"):
        values = dict(zip(re.findall(r"\{(\w+)\}", pattern), example.split("_"), strict=True))
        stored = {field.name: field.encode_name for field in schema.fields.values()}
        assert identity.make(lambda name: values[stored[name]]) == example
    else:
        identity.check(example, "id")


@pytest.mark.parametrize(("collection", "fields", "scope"), INDEXES)
def test_indexes_are_exported_as_given(collection: str, fields: list[tuple[str, str]], scope: str) -> None:
    directions = {"ASC": "ASCENDING", "DESC": "DESCENDING"}
    wanted = [(name, directions[direction]) for name, direction in fields]
    exported = [
        [(one["fieldPath"], one["order"]) for one in index["fields"] if "order" in one]
        for index in json.loads(firestore_indexes(map(schema_of, DOCUMENTS), "dev"))["indexes"]
        if index["collectionGroup"] == collection and index["queryScope"] == scope
    ]
    assert wanted in exported


@pytest.mark.parametrize("collection", ACCESS)
def test_access_is_declared_as_given(collection: str) -> None:
    access = schema_of(BY_GROUP[collection]).access
    for words, given in zip((access.read, access.create), ACCESS[collection], strict=True):
        # The service reads what it writes.
        declared = {word.partition(":")[0] for word in words} | {"service"}
        assert declared == {ROLES[word] for word in given.split("/")} | {"service"}
    assert access.create == access.update == access.delete
