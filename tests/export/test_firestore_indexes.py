"""`firestore.indexes.json`: the format the tools take, and every declared index in it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import jsonschema
import pytest

from holdfast.model import Claim, Document, Index, Retention, document, schema_of
from holdfast.model.export import export
from tests.examples import gwi
from tests.examples.calendar_sync import WatchChannel

CLASSES: list[type[Document]] = [*gwi.COLLECTIONS, WatchChannel]
SCOPE = {"enum": ["COLLECTION", "COLLECTION_GROUP"]}
ORDER = {"enum": ["ASCENDING", "DESCENDING"]}
MODES = [{"required": ["order"]}, {"required": ["arrayConfig"]}]
FORMAT = {
    "type": "object",
    "required": ["indexes", "fieldOverrides"],
    "additionalProperties": False,
    "properties": {
        "indexes": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "required": ["collectionGroup", "queryScope", "fields"],
                "additionalProperties": False,
                "properties": {
                    "collectionGroup": {"type": "string", "pattern": "^[^/]+$"},
                    "queryScope": SCOPE,
                    "fields": {
                        "type": "array",
                        "minItems": 2,
                        "items": {
                            "type": "object",
                            "required": ["fieldPath"],
                            "additionalProperties": False,
                            "oneOf": MODES,
                            "properties": {
                                "fieldPath": {"type": "string", "minLength": 1},
                                "order": ORDER,
                                "arrayConfig": {"const": "CONTAINS"},
                            },
                        },
                    },
                },
            },
        },
        "fieldOverrides": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "required": ["collectionGroup", "fieldPath", "indexes"],
                "additionalProperties": False,
                "properties": {
                    "collectionGroup": {"type": "string", "pattern": "^[^/]+$"},
                    "fieldPath": {"type": "string", "minLength": 1},
                    "ttl": {"type": "boolean"},
                    "indexes": {
                        "type": "array",
                        "uniqueItems": True,
                        "items": {
                            "type": "object",
                            "required": ["queryScope"],
                            "additionalProperties": False,
                            "oneOf": MODES,
                            "properties": {
                                "queryScope": SCOPE,
                                "order": ORDER,
                                "arrayConfig": {"const": "CONTAINS"},
                            },
                        },
                    },
                },
            },
        },
    },
}


def _exported(*classes: type[Document]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(export([schema_of(cls) for cls in classes], "firestore-indexes"))
    jsonschema.validate(content, FORMAT)
    return content


def _composites(content: dict[str, Any]) -> set[str]:
    """Each as one line: `gwi_runs COLLECTION tenantId+ createdAt-`."""
    marks = {"ASCENDING": "+", "DESCENDING": "-"}
    return {
        f"{index['collectionGroup']} {index['queryScope']} "
        + " ".join(f["fieldPath"] + marks.get(f.get("order", ""), "[]") for f in index["fields"])
        for index in content["indexes"]
    }


def _override(content: dict[str, Any], group: str, path: str) -> dict[str, Any]:
    (one,) = (o for o in content["fieldOverrides"] if (o["collectionGroup"], o["fieldPath"]) == (group, path))
    return dict(one)


@pytest.mark.parametrize(
    "line",
    [
        "gwi_runs COLLECTION tenantId+ createdAt-",
        "gwi_runs COLLECTION tenantId+ repoId+ createdAt-",
        "gwi_runs COLLECTION tenantId+ status+ createdAt-",
        "gwi_memberships COLLECTION userId+ status+",
        "gwi_memberships COLLECTION tenantId+ status+",
        "signals COLLECTION_GROUP status+ receivedAt+",
        "signals COLLECTION status+ receivedAt+",
        "signals COLLECTION context.labels[] receivedAt+",
        "steps COLLECTION_GROUP tenantId+ agent+ status+",
        "steps COLLECTION tenantId+ startedAt+",
        "watchChannels COLLECTION status+ expiration+",
        "watchChannels COLLECTION calendarId+ expiration+",
        "watchChannels COLLECTION status+ lastUpdatedAt+",
    ],
)
def test_the_indexes_the_queries_need_are_listed(line: str) -> None:
    assert line in _composites(_exported(*CLASSES))


def test_every_declared_index_is_listed_or_automatic() -> None:
    content = _exported(*CLASSES)
    composites = _composites(content)
    for schema in map(schema_of, CLASSES):
        for index in schema.indexes:
            marks = [
                f.column.stored + ("[]" if f.member else "-" if f.descending else "+") for f in index.fields
            ]
            own = schema.tenant is not None and not schema.tenant_is_parent and index.across != "tenants"
            fields = [f"{schema.tenant.stored}+", *marks] if schema.tenant and own else marks
            group = schema.path.nested and index.across != "nothing"
            scope = "COLLECTION_GROUP" if group else "COLLECTION"
            if len(fields) > 1:
                assert f"{schema.path.group('dev')} {scope} {' '.join(fields)}" in composites
            elif group:
                override = _override(content, schema.path.group("dev"), index.fields[0].column.stored)
                assert {"order": "ASCENDING", "queryScope": scope} in override["indexes"]


def test_an_index_is_listed_with_its_mirror_since_firestore_walks_one_way() -> None:
    lines = _composites(_exported(*CLASSES))
    assert "gwi_runs COLLECTION tenantId+ createdAt+" in lines
    assert "watchChannels COLLECTION status- expiration-" in lines
    assert "signals COLLECTION context.labels[] receivedAt-" in lines


def test_claims_have_their_indexes() -> None:
    claim = Claim(due="next_at", lane="endpoint")

    @document("calls/{id}", tenant="tenant", claim=claim)
    class Call(Document, rename="camel"):
        id: str
        tenant: str
        next_at: datetime | None
        endpoint: str
        fence: int = 0

    @document("tenants/{tenant}/visits/{id}", tenant="tenant", claim=Claim(due="next_at"))
    class Visit(Document, rename="camel"):
        id: str
        tenant: str
        next_at: datetime | None
        fence: int = 0

    content = _exported(Call, Visit)
    assert _composites(content) == {
        "calls COLLECTION endpoint+ nextAt+",
        "calls COLLECTION tenant+ nextAt+",
        "calls COLLECTION tenant+ endpoint+ nextAt+",
    }
    assert _override(content, "visits", "nextAt")["indexes"][-1] == {
        "order": "ASCENDING",
        "queryScope": "COLLECTION_GROUP",
    }


def test_a_privileged_handle_under_one_parent_has_its_index_without_the_tenant() -> None:
    @document("runs/{run}/lines/{id}", tenant="tenant", indexes=[Index("level", "-at")])
    class Line(Document):
        id: str
        run: str
        tenant: str
        level: str
        at: datetime

    lines = _composites(_exported(Line))
    assert {"lines COLLECTION tenant+ level+ at-", "lines COLLECTION level+ at-"} <= lines


def test_single_fields_are_left_to_firestore_inside_one_collection() -> None:
    content = _exported(WatchChannel)
    assert not any(len(index["fields"]) == 1 for index in content["indexes"])
    assert content["fieldOverrides"] == []


def test_a_single_field_across_parents_is_an_override_that_keeps_the_automatic_ones() -> None:
    override = _override(_exported(*CLASSES), "steps", "status")
    assert "ttl" not in override
    assert override["indexes"] == [
        {"order": "ASCENDING", "queryScope": "COLLECTION"},
        {"order": "DESCENDING", "queryScope": "COLLECTION"},
        {"arrayConfig": "CONTAINS", "queryScope": "COLLECTION"},
        {"order": "ASCENDING", "queryScope": "COLLECTION_GROUP"},
        {"order": "DESCENDING", "queryScope": "COLLECTION_GROUP"},
    ]


def test_a_time_that_is_itself_the_end_becomes_a_ttl_policy() -> None:
    assert _override(_exported(*CLASSES), "gwi_idempotency", "expiresAt")["ttl"] is True


def test_a_retention_firestore_can_not_keep_by_itself_makes_no_ttl_policy() -> None:
    @document("late/{id}", retention=Retention("at", after_s=60))
    class Late(Document):
        id: str
        at: datetime

    @document("some/{id}", retention=Retention("at", when={"done": True}))
    class Some(Document):
        id: str
        at: datetime
        done: bool

    @document("counted/{id}", retention=Retention("at_ms"))
    class Counted(Document):
        id: str
        at_ms: int

    assert _exported(Late, Some, Counted)["fieldOverrides"] == []


def test_names_that_are_no_identifiers_are_quoted_and_environments_prefixed() -> None:
    @document("{env}-odd/{id}", indexes=[Index("a", "b")])
    class Odd(Document, rename={"a": "first-name"}):
        id: str
        a: str
        b: str

    content = json.loads(export([schema_of(Odd)], "firestore-indexes", env="prod"))
    assert content["indexes"][0]["collectionGroup"] == "prod-odd"
    assert content["indexes"][0]["fields"][0]["fieldPath"] == "`first-name`"
