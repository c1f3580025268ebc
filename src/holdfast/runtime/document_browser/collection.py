"""One collection, and the ways to look through it."""

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
from holdfast.runtime.document_browser.redaction import names_secret, redact_value
from holdfast.runtime.document_browser.values import read_value, write_value
from holdfast.store import Query, Snapshot
from holdfast.store.plan import resolve

BY_ID: Final = "id"
SHOWN_MAX: Final = 4
_ANY_ID: Final = "x"


class BrowseFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a way whose value may be given: `among` are all values it can have, where they are few."""

    field: str
    kind: str
    needed: bool
    among: Sequence[str] = ()


class BrowseIndex(msgspec.Struct, frozen=True, kw_only=True):
    """One way to look through a collection. `parents` are the ids of the document it is asked under."""

    name: str
    label: str
    parents: tuple[str, ...] = ()
    filters: tuple[BrowseFilter, ...] = ()
    index: ResolvedIndex | None = None


class BrowsedDocument(msgspec.Struct, frozen=True):
    """A document in a list: its ids by the names of the path, and some of its fields."""

    ids: dict[str, str]
    fields: dict[str, Any]


class Collection:
    """One collection as its declaration has it; `hidden` are the fields that are never shown.

    Example: `collection.question(collection.way("status_createdAt_desc"), values={"status": "failed"})`
    """

    def __init__(self, schema: Schema[Any], name: str, *, owner: str, hidden: frozenset[str]) -> None:
        self.schema, self.name, self.owner = schema, name, owner
        self._hidden = hidden
        self.summary = (schema.cls.__doc__ or "").strip().partition("\n")[0]
        self.indexes = {way.name: way for way in self._ways()}

    # -- asking -----------------------------------------------------------------------------------

    def find_index(self, name: str) -> BrowseIndex | None:
        """The way of this name; the first where none is named, None where there is none at all."""
        if not name:
            return next(iter(self.indexes.values()), None)
        if name not in self.indexes:
            there = (
                f"the ways are {', '.join(self.indexes)}" if self.indexes else "only ids lead to a document"
            )
            raise InvalidError(f"{self.name} can't be looked through by {name[:100]!r}; {there}", "by")
        return self.indexes[name]

    def query(
        self,
        way: BrowseIndex,
        *,
        parents: Mapping[str, str] | None = None,
        values: Mapping[str, str] | None = None,
    ) -> Query[Any]:
        """The query that looks so; what is given wrongly raises `InvalidError` with what to give."""
        query: Query[Any] = Query(self.schema.cls)
        if way.parents:
            query = query.under(*(required_id(parents or {}, name) for name in way.parents))
        if way.index is None:
            return query
        if way.index.across == "parents":
            query = query.across_parents()
        fixed = _leading(way.index, values or {})
        for field, text in fixed:
            value = read_value(field.column, text)
            query = query.where(field.column.path, "array-contains" if field.member else "==", value)
        rest = way.index.fields[len(fixed) :]
        return query.order_by(*(f"{'-' if one.descending else ''}{one.column.path}" for one in rest))

    # -- showing ----------------------------------------------------------------------------------

    def columns(self, way: BrowseIndex) -> list[str]:
        """Fields worth a column: those of the way, then those of other indexes."""
        indexes = [index for index in (way.index, *self.schema.indexes) if index is not None]
        fields = [field.column for index in indexes for field in index.fields if not field.member]
        names = [column.stored for column in fields if not self._secret(column)]
        ids = {self.schema.fields[name].encode_name for name in self.schema.path.parameters}
        return [name for name in dict.fromkeys(names) if name not in ids][:SHOWN_MAX]

    def redact(self, found: Snapshot[Any]) -> dict[str, Any]:
        """The document as JSON knows it, without its secrets."""
        shown: dict[str, Any] = redact_value(self.schema.to_fields(found.doc), self._hidden)
        return shown

    def ids(self, found: Snapshot[Any]) -> dict[str, str]:
        return dict(zip(self.schema.path.parameters, split_key(found.key), strict=True))

    def row(self, found: Snapshot[Any], columns: Sequence[str]) -> BrowsedDocument:
        """Its ids and these fields; times stay times, for lists that say how long ago they were."""
        stored, shown = self.schema.to_fields(found.doc), self.redact(found)
        times = {name: at for name in columns if isinstance(at := _at(stored, name), datetime)}
        return BrowsedDocument(self.ids(found), {name: times.get(name, _at(shown, name)) for name in columns})

    def prefix_values(self, way: BrowseIndex, found: Snapshot[Any]) -> dict[str, dict[str, str]]:
        """For each field of the way, the values to give for the documents that agree with this one so far."""
        narrowing: dict[str, dict[str, str]] = {}
        typed: dict[str, str] = {}
        for column in () if way.index is None else [field.column for field in way.index.fields]:
            value = column.read(found.doc)
            if value is UNSET or column.kind in ("list", "bytes"):
                break
            typed = {**typed, column.stored: write_value(column, value)}
            narrowing[column.stored] = typed
        return narrowing

    # -- ways -------------------------------------------------------------------------------------

    def _ways(self) -> list[BrowseIndex]:
        ways = [way for index in self.schema.indexes if (way := self._by(index)) is not None]
        return [*ways, *self._by_ids()]

    def _by_ids(self) -> list[BrowseIndex]:
        """Ids in order, where the store can walk one tenant's."""
        query: Query[Any] = Query(self.schema.cls)
        if self._parents:
            query = query.under(*(_ANY_ID for _ in self._parents))
        try:
            resolve(query, tenant=NO_TENANT, privileged=False)
        except UnindexedQueryError:
            return []
        return [BrowseIndex(name=BY_ID, label="ids in order", parents=self._parents)]

    def _by(self, index: ResolvedIndex) -> BrowseIndex | None:
        if index.across == "tenants" or any(self._secret(field.column) for field in index.fields):
            return None
        given = tuple(self._given(field) for field in index.fields)
        parents = self._parents if index.across == "nothing" else ()
        said = ", ".join(f"{one.column.stored}{' ↓' if one.descending else ''}" for one in index.fields)
        return BrowseIndex(name=index.name, label=said, parents=parents, filters=given, index=index)

    @property
    def _parents(self) -> tuple[str, ...]:
        """The ids a sub-collection is asked under; a tenant's own is known."""
        return () if self.schema.tenant_is_parent else self.schema.path.parameters[:-1]

    def _given(self, field: IndexField) -> BrowseFilter:
        column = field.column
        _, kind, _ = find_field(column.path, self.schema.fields, self.schema.name)
        among = ("true", "false") if column.kind == "boolean" else tuple(map(str, enum_values(kind) or ()))
        return BrowseFilter(field=column.stored, kind=column.kind, needed=field.member, among=among)

    def _secret(self, column: Column) -> bool:
        return column.stored.partition(".")[0] in self._hidden or names_secret(column.stored)


def required_id(ids: Mapping[str, str], name: str) -> str:
    """The id of this name, which must be given."""
    value = ids.get(name, "")
    if not value:
        raise InvalidError(f"say which {name}", name)
    return value


def _leading(index: ResolvedIndex, values: Mapping[str, str]) -> list[tuple[IndexField, str]]:
    """The fields whose values are given: the first of the index, with none left out between."""
    known = [field.column.stored for field in index.fields]
    stray = next((name for name in values if name not in known), None)
    if stray is not None:
        raise InvalidError(f"this way asks for {', '.join(known)}, not for {stray[:100]!r}", "by")
    given = [(field, values.get(field.column.stored, "")) for field in index.fields]
    count = max((n for n, (field, text) in enumerate(given, 1) if text or field.member), default=0)
    for field, text in given[:count]:
        if not text:
            name = field.column.stored
            raise InvalidError(f"say which {name}: the index asks for it before what follows", name)
    return given[:count]


def _at(shown: Mapping[str, Any], path: str) -> Any:
    """The value at a stored path; None where there is none."""
    value: Any = shown
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
