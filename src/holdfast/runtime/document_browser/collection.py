"""One collection, and the indexes to browse it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET

from holdfast.errors import InvalidError, UnindexedQueryError
from holdfast.kit import NO_TENANT
from holdfast.model.columns import Column, enum_values, find_field
from holdfast.model.index import IndexField, ResolvedIndex
from holdfast.model.path import split_key
from holdfast.model.schema import Schema
from holdfast.outside_text import names_secret
from holdfast.runtime.document_browser.redaction import redact_value
from holdfast.runtime.document_browser.values import read_value, write_value
from holdfast.store import Query, Snapshot
from holdfast.store.plan import resolve

BY_ID: Final = "id"
SHOWN_MAX: Final = 4
_ANY_ID: Final = "x"


class BrowseFilter(msgspec.Struct, frozen=True, kw_only=True):
    """An index field that can be filtered; `among` are all its values, where they are few."""

    field: str
    kind: str
    needed: bool
    among: Sequence[str] = ()


class BrowseIndex(msgspec.Struct, frozen=True, kw_only=True):
    """One index to browse a collection by. `parents` are the ids of the parent document."""

    name: str
    label: str
    parents: tuple[str, ...] = ()
    filters: tuple[BrowseFilter, ...] = ()
    index: ResolvedIndex | None = None


class BrowsedDocument(msgspec.Struct, frozen=True):
    """A document in a list: its ids by the names of the path, its tenant, and some of its fields."""

    tenant_id: str
    ids: dict[str, str]
    fields: dict[str, Any]


class Collection:
    """One collection by its declaration; `hidden` are fields that are never shown.

    A `wide` one is browsed over all tenants, by the indexes that serve this.

    Example: `collection.query(collection.find_index("status_createdAt_desc"), values={"status": "failed"})`
    """

    def __init__(
        self, schema: Schema[Any], name: str, *, owner: str, hidden: frozenset[str], wide: bool = False
    ) -> None:
        self.schema, self.name, self.owner = schema, name, owner
        self._hidden, self._wide = hidden, wide and schema.tenant is not None
        self.summary = (schema.cls.__doc__ or "").strip().partition("\n")[0]
        self.indexes = {way.name: way for way in self._build_indexes()}

    def find_index(self, name: str) -> BrowseIndex | None:
        """The index of this name, the first one where none is named; None where there is none at all."""
        if not name:
            return next(iter(self.indexes.values()), None)
        if name not in self.indexes:
            hint = (
                f"the indexes are {', '.join(self.indexes)}"
                if self.indexes
                else "documents can only be opened by id"
            )
            hint += "; others list one tenant's alone" if self._wide else ""
            raise InvalidError(f"{self.name} can't be browsed by {name[:100]!r}; {hint}", "by")
        return self.indexes[name]

    def query(
        self,
        way: BrowseIndex,
        *,
        parents: Mapping[str, str] | None = None,
        values: Mapping[str, str] | None = None,
    ) -> Query[Any]:
        """The query over this index; `InvalidError` says what to give instead of a wrong value."""
        query: Query[Any] = Query(self.schema.cls)
        if way.parents:
            query = query.under(*(required_id(parents or {}, name) for name in way.parents))
        elif self._wide or (way.index is not None and way.index.across == "parents"):
            query = query.across_parents() if self.schema.path.nested else query
        if way.index is None:
            return query
        fixed = _leading(way.index, values or {})
        for field, text in fixed:
            value = read_value(field.column, text)
            query = query.where(field.column.path, "array-contains" if field.member else "==", value)
        rest = way.index.fields[len(fixed) :]
        return query.order_by(*(f"{'-' if one.descending else ''}{one.column.path}" for one in rest))

    def columns(self, way: BrowseIndex) -> list[str]:
        """Fields to show as columns: those of the index, then those of others."""
        indexes = [index for index in (way.index, *self.schema.indexes) if index is not None]
        fields = [field.column for index in indexes for field in index.fields if not field.member]
        names = [column.stored for column in fields if not self._secret(column)]
        ids = {self.schema.fields[name].encode_name for name in self.schema.path.parameters}
        return [name for name in dict.fromkeys(names) if name not in ids][:SHOWN_MAX]

    def redact(self, found: Snapshot[Any]) -> dict[str, Any]:
        """The document as JSON values, secrets redacted."""
        shown: dict[str, Any] = redact_value(self.schema.to_fields(found.doc), self._hidden)
        return shown

    def ids(self, found: Snapshot[Any]) -> dict[str, str]:
        return dict(zip(self.schema.path.parameters, split_key(found.key), strict=True))

    def row(self, found: Snapshot[Any], columns: Sequence[str]) -> BrowsedDocument:
        """Its ids and these fields; times stay datetimes, for relative display."""
        stored, shown = self.schema.to_fields(found.doc), self.redact(found)
        times = {name: at for name in columns if isinstance(at := _at(stored, name), datetime)}
        fields = {name: times.get(name, _at(shown, name)) for name in columns}
        return BrowsedDocument(self.tenant_of(found), self.ids(found), fields)

    def tenant_of(self, found: Snapshot[Any]) -> str:
        """The document's tenant; the platform's own where it has none."""
        tenant = self.schema.tenant
        return NO_TENANT if tenant is None else str(tenant.read(found.doc))

    def prefix_values(self, way: BrowseIndex, found: Snapshot[Any]) -> dict[str, dict[str, str]]:
        """For each index field, the filter values that select documents equal to this one so far."""
        prefixes: dict[str, dict[str, str]] = {}
        typed: dict[str, str] = {}
        for column in () if way.index is None else [field.column for field in way.index.fields]:
            value = column.read(found.doc)
            if value is UNSET or column.kind in ("list", "bytes"):
                break
            typed = {**typed, column.stored: write_value(column, value)}
            prefixes[column.stored] = typed
        return prefixes

    def _build_indexes(self) -> list[BrowseIndex]:
        ways = [way for index in self.schema.indexes if (way := self._browse_index(index)) is not None]
        return [*ways, *self._id_index()]

    def _id_index(self) -> list[BrowseIndex]:
        """Browsing by id, where the store can scan one tenant's, or all."""
        query: Query[Any] = Query(self.schema.cls)
        if self._parents:
            query = query.under(*(_ANY_ID for _ in self._parents))
        elif self._wide and self.schema.path.nested:
            query = query.across_parents()
        try:
            resolve(query, tenant=None if self._wide else NO_TENANT, privileged=self._wide)
        except UnindexedQueryError:
            return []
        return [BrowseIndex(name=BY_ID, label="ids in order", parents=self._parents)]

    def _browse_index(self, index: ResolvedIndex) -> BrowseIndex | None:
        if not self._serves(index) or any(self._secret(field.column) for field in index.fields):
            return None
        given = tuple(self._filter(field) for field in index.fields)
        parents = self._parents if index.across == "nothing" else ()
        said = ", ".join(f"{one.column.stored}{' ↓' if one.descending else ''}" for one in index.fields)
        return BrowseIndex(name=index.name, label=said, parents=parents, filters=given, index=index)

    def _serves(self, index: ResolvedIndex) -> bool:
        if index.sparse is not None:
            return False  # it would leave documents out
        if not self._wide:
            return index.across != "tenants"
        # A parent has one tenant, so an index below it serves also those who name none.
        return index.across == "tenants" or (index.across == "nothing" and bool(self._parents))

    @property
    def _parents(self) -> tuple[str, ...]:
        """The parent ids of a sub-collection; a tenant's own is known."""
        return () if self.schema.tenant_is_parent else self.schema.path.parameters[:-1]

    def _filter(self, field: IndexField) -> BrowseFilter:
        column = field.column
        _, kind, _ = find_field(column.path, self.schema.fields, self.schema.name)
        among = ("true", "false") if column.kind == "boolean" else tuple(map(str, enum_values(kind) or ()))
        return BrowseFilter(field=column.stored, kind=column.kind, needed=field.member, among=among)

    def _secret(self, column: Column) -> bool:
        return column.stored.partition(".")[0] in self._hidden or names_secret(column.stored)


def required_id(ids: Mapping[str, str], name: str) -> str:
    value = ids.get(name, "")
    if not value:
        raise InvalidError(f"give {name}", name)
    return value


def _leading(index: ResolvedIndex, values: Mapping[str, str]) -> list[tuple[IndexField, str]]:
    """The fields with values: a prefix of the index."""
    known = [field.column.stored for field in index.fields]
    unknown = next((name for name in values if name not in known), None)
    if unknown is not None:
        raise InvalidError(f"this index has {', '.join(known)}, not {unknown[:100]!r}", "by")
    given = [(field, values.get(field.column.stored, "")) for field in index.fields]
    count = max((n for n, (field, text) in enumerate(given, 1) if text or field.member), default=0)
    for field, text in given[:count]:
        if not text:
            name = field.column.stored
            raise InvalidError(f"give {name}: it precedes the next field in the index", name)
    return given[:count]


def _at(shown: Mapping[str, Any], path: str) -> Any:
    """The value at a stored path, or None."""
    value: Any = shown
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
