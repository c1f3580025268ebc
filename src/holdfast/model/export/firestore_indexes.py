"""`firestore.indexes.json`, as the Firebase command line and gcloud take it.

Firestore maintains single-field indexes by itself, but only inside one collection; so the file lists
composites, and overrides for single fields that are queried across parents. The tenant of a handle is an
equality like any other, which makes most declared single fields composites. Firestore scans an index in one
direction only, and a declared index serves both, so each is listed with its reverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from holdfast.model.index import ResolvedIndex
from holdfast.model.schema import Schema

Scope = Literal["COLLECTION", "COLLECTION_GROUP"]
Json = dict[str, Any]

_SIMPLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# An override replaces the automatic indexes, so it must repeat them.
_AUTOMATIC: Final[tuple[Json, ...]] = (
    {"order": "ASCENDING", "queryScope": "COLLECTION"},
    {"order": "DESCENDING", "queryScope": "COLLECTION"},
    {"arrayConfig": "CONTAINS", "queryScope": "COLLECTION"},
)


class _Term(msgspec.Struct, frozen=True):
    path: str
    mode: Literal["ASCENDING", "DESCENDING", "CONTAINS"] = "ASCENDING"

    def reversed_(self) -> _Term:
        if self.mode == "CONTAINS":
            return self
        return _Term(self.path, "DESCENDING" if self.mode == "ASCENDING" else "ASCENDING")

    def config(self) -> Json:
        return {"arrayConfig": "CONTAINS"} if self.mode == "CONTAINS" else {"order": self.mode}


class _RequiredIndex(msgspec.Struct, frozen=True):
    group: str
    scope: Scope
    terms: tuple[_Term, ...]

    def composite(self) -> Json:
        fields = [{"fieldPath": term.path, **term.config()} for term in self.terms]
        return {"collectionGroup": self.group, "queryScope": self.scope, "fields": fields}


def firestore_indexes(schemas: Iterable[Schema[Any]], env: str) -> str:
    """Return the file as text."""
    wanted: dict[_RequiredIndex, None] = {}
    overrides: dict[tuple[str, str], Json] = {}
    for schema in schemas:
        wanted |= dict.fromkeys(_of(schema, env))
        ttl = _ttl_field(schema)
        if ttl:
            _override(overrides, schema.path.group(env), ttl)["ttl"] = True
    for one in wanted:
        if len(one.terms) == 1 and one.scope == "COLLECTION_GROUP":
            entry = {**one.terms[0].config(), "queryScope": one.scope}
            _override(overrides, one.group, one.terms[0].path)["indexes"].append(entry)
    content = {
        "indexes": [one.composite() for one in wanted if len(one.terms) > 1],
        "fieldOverrides": list(overrides.values()),
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _of(schema: Schema[Any], env: str) -> Iterator[_RequiredIndex]:
    group = schema.path.group(env)
    for index in schema.indexes:
        across = schema.path.nested and index.across != "nothing"
        scope: Scope = "COLLECTION_GROUP" if across else "COLLECTION"
        terms = tuple(_terms(index))
        backward = tuple(term.reversed_() for term in terms)
        for head in _heads(schema, index):
            yield _RequiredIndex(group, scope, (*head, *terms))
            yield _RequiredIndex(group, scope, (*head, *backward))
    yield from _claims(schema, group)


def _heads(schema: Schema[Any], index: ResolvedIndex) -> Iterator[tuple[_Term, ...]]:
    """Yield the leading terms: the tenant, or none for a privileged handle that names a parent."""
    if schema.tenant is None or schema.tenant_is_parent or index.across == "tenants":
        yield ()
        return
    yield (_Term(_field_path(schema.tenant.stored)),)
    if schema.path.nested and index.across == "nothing":
        yield ()


def _claims(schema: Schema[Any], group: str) -> Iterator[_RequiredIndex]:
    """Yield the indexes of a claim: by due time, of all or of one tenant, and the same by lane."""
    if schema.claim is None:
        return
    due, lane = schema.claim.due, schema.claim.lane
    orders = [(due,), (lane, due)] if lane else [(due,)]
    everything: Scope = "COLLECTION_GROUP" if schema.path.nested else "COLLECTION"
    reaches: list[tuple[Scope, tuple[_Term, ...]]] = [(everything, ())]
    if schema.tenant_is_parent:
        reaches.append(("COLLECTION", ()))
    elif schema.tenant:
        reaches.append((everything, (_Term(_field_path(schema.tenant.stored)),)))
    for scope, head in reaches:
        for order in orders:
            terms = (_Term(_field_path(schema.fields[name].encode_name)) for name in order)
            yield _RequiredIndex(group, scope, (*head, *terms))


def _terms(index: ResolvedIndex) -> Iterator[_Term]:
    for field in index.fields:
        path = _field_path(field.column.stored)
        if field.member:
            yield _Term(path, "CONTAINS")
        else:
            yield _Term(path, "DESCENDING" if field.descending else "ASCENDING")


def _field_path(stored: str) -> str:
    parts = stored.split(".")
    return ".".join(part if _SIMPLE.fullmatch(part) else f"`{part}`" for part in parts)


def _ttl_field(schema: Schema[Any]) -> str | None:
    """Return the field of Firestore's own TTL: a time that is the end itself, of a document by itself."""
    retention = schema.retention
    if retention is None or retention.after_s != 0 or retention.when or retention.dependents:
        return None
    column = schema.column(retention.field)
    return _field_path(column.stored) if column is not None and column.kind == "time" else None


def _override(overrides: dict[tuple[str, str], Json], group: str, path: str) -> Json:
    entry = {"collectionGroup": group, "fieldPath": path, "indexes": list(_AUTOMATIC)}
    return overrides.setdefault((group, path), entry)
