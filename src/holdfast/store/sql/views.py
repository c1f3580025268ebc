"""Views: one for each collection, with the fields of its documents as columns, for people and BI tools.

A view shows the stored documents with what claims and patches have changed since, as a read of the store
does. Fields declared `HIDDEN` are left out. Nothing is stored twice, so writes cost nothing more.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET
from msgspec import inspect as mi

from holdfast.model.columns import ReadableKind, readable_kind
from holdfast.model.schema import Schema


class ViewColumn(msgspec.Struct, frozen=True):
    """A field by its stored name: in a `column` of the table, in a `part` of the key, or in the body, where
    `default`, in JSON, stands in for a field that an older document lacks.
    """

    name: str
    kind: ReadableKind
    column: str = ""
    part: int | None = None
    default: str = ""

    @property
    def in_body(self) -> bool:
        return not self.column and self.part is None


class View(msgspec.Struct, frozen=True):
    """The view of a table as declared; `key_parts` counts the ids in the table's key."""

    name: str
    table: str
    columns: tuple[ViewColumn, ...]
    key_parts: int


class InspectedView(msgspec.Struct, frozen=True):
    """A view of the database: its columns and their types, and whether it is as declared.

    `users` are the views of others that read it and so, on some engines, keep it from being replaced.
    """

    columns: tuple[tuple[str, str], ...] = ()
    as_declared: bool = False
    users: tuple[str, ...] = ()


def view_of(schema: Schema[Any], name: str, table: str) -> View:
    """Return the view of a collection's table."""
    columns = tuple(
        _column(schema, field) for name, field in schema.fields.items() if name not in schema.hidden
    )
    return View(name, table, columns, len(schema.path.parameters))


def _column(schema: Schema[Any], field: mi.Field) -> ViewColumn:
    name, kind, parameters = field.encode_name, readable_kind(field.type), schema.path.parameters
    # Claims change columns only, and the rules of access look at the tenant's.
    own = {column.path: column.stored for column in (*schema.claim_columns, schema.tenant) if column}
    if field.name in own:
        return ViewColumn(name, kind, column=own[field.name])
    # A single id is the key, whose index serves whoever looks it up.
    if field.name in schema.declared.path_only or parameters == (field.name,):
        return ViewColumn(name, "text", part=parameters.index(field.name))
    return ViewColumn(name, kind, default=_default(field))


def _default(field: mi.Field) -> str:
    """Return the JSON of a default that says more than null does."""
    default = field.default
    if default is NODEFAULT and field.default_factory in (list, dict, set, frozenset, tuple):
        default = field.default_factory()
    return "" if default in (NODEFAULT, None, UNSET) else msgspec.json.encode(default).decode()
