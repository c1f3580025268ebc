"""Views on PostgreSQL: each reads with the rights of whoever asks, so that row-level security holds.

A view's comment has the digest of its definition, by which the next migration sees whether to replace it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast.model.columns import ReadableKind
from holdfast.model.path import JOINT
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import BODY, KEY, PATCH
from holdfast.store.sql.views import InspectedView, View, ViewColumn

SERVER_MIN: Final = 15  # the first release with security_invoker
READERS: Final = ("holdfast_app", "holdfast_service")
INCOMPLETE: Final = " incomplete"  # follows the digest of a view that keeps columns for views of others
_TYPES: Final[Mapping[ReadableKind, str]] = {
    "integer": "bigint", "number": "double precision", "boolean": "boolean", "text": "text",
    "decimal": "numeric", "json": "jsonb", "time": "timestamp with time zone", "date": "date",
    "bytes": "bytea",
}  # fmt: skip


def view_type(column: ViewColumn) -> str:
    """Return the type of a view's column, as the inspection tells it."""
    collated = column.kind == "text" and not column.in_body
    return _TYPES[column.kind] + (' COLLATE "C"' if collated else "")


def digest_of(view: View) -> str:
    return hashlib.blake2b(_create(view, ()).encode(), digest_size=12).hexdigest()


def create_view(view: View, existing: InspectedView | None = None) -> list[str]:
    """Return the statements that create a view, or replace the existing one.

    A view that only gains columns is replaced in place, which keeps grants and the views of others that use
    it. Any other change takes a new view with the old one's grants. While others use the old one, it stays:
    what is gone or of another type is null there.
    """
    kept = existing.columns if existing else ()
    types = {column.name: view_type(column) for column in view.columns}
    only_adds = all(types.get(name) == kind for name, kind in kept)
    if existing is None or only_adds or existing.users:
        mark = digest_of(view) + ("" if only_adds else INCOMPLETE)
        return [_create(view, kept), _comment(view, mark), grant_view(view)]
    return [_replace(view), _comment(view, digest_of(view))]


def detach_view(view: View, existing: InspectedView) -> list[str]:
    """Return the statements after which a view uses no column of its table, so that they can be dropped."""
    return [_create(View(view.name, view.table, (), 0), existing.columns), _comment(view, "")]


def grant_view(view: View) -> str:
    """Return the statement that lets people's logins read the view, where both exist."""
    exist = [f"to_regclass({_literal(quote(view.name))})", *(f"to_regrole('{role}')" for role in READERS)]
    grant = f"GRANT SELECT ON {quote(view.name)} TO {', '.join(READERS)}"
    return f"DO $do$ BEGIN IF num_nulls({', '.join(exist)}) = 0 THEN {grant}; END IF; END $do$"


def _create(view: View, kept: Sequence[tuple[str, str]]) -> str:
    """Return the statement for a view that begins with these columns and types."""
    values = {column.name: (view_type(column), _value(view, column)) for column in view.columns}
    shown = {name: f"NULL::{kind}" for name, kind in kept}
    shown |= {name: value for name, (kind, value) in values.items() if dict(kept).get(name, kind) == kind}
    columns = ",\n  ".join(f"{value} AS {quote(name)}" for name, value in shown.items())
    return (
        f"CREATE OR REPLACE VIEW {quote(view.name)} WITH (security_invoker = true) AS SELECT\n  {columns}\n"
        f"FROM {quote(view.table)} t{_record(view)}"
    )


def _replace(view: View) -> str:
    """Return the statement for a new view in place of the old one, readable by the same roles."""
    name = quote(view.name)
    acl = f"(SELECT relacl FROM pg_class WHERE oid = {_literal(name)}::regclass)"
    return (
        f"DO $do$ DECLARE acl aclitem[] := {acl}; reader text; BEGIN DROP VIEW {name}; {_create(view, ())};"
        " FOR reader IN SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END"
        " FROM aclexplode(acl) WHERE privilege_type = 'SELECT'"
        f" LOOP EXECUTE {_literal(f'GRANT SELECT ON {name} TO ')} || reader; END LOOP; END $do$"
    )


def _comment(view: View, text: str) -> str:
    return f"COMMENT ON VIEW {quote(view.name)} IS {_literal(text)}"


def _value(view: View, column: ViewColumn) -> str:
    if column.column:
        return f"t.{quote(column.column)}"
    if column.part is not None:
        key = f"t.{quote(KEY)}"
        return key if view.key_parts == 1 else f"split_part({key}, chr({ord(JOINT)}), {column.part + 1})"
    value = f"d.{quote(column.name)}"
    return f"decode({value}, 'base64')" if column.kind == "bytes" else value


def _record(view: View) -> str:
    """Return the join that parses a document once, after its defaults and before its patch."""
    fields = [column for column in view.columns if column.in_body]
    if not fields:
        return ""
    types = ", ".join(
        f"{quote(one.name)} {'text' if one.kind == 'bytes' else _TYPES[one.kind]}" for one in fields
    )
    defaults = {one.name: msgspec.Raw(one.default.encode()) for one in fields if one.default}
    before = f"{_literal(msgspec.json.encode(defaults).decode())}::jsonb || " if defaults else ""
    document = f"{before}{_BODY} || coalesce(t.{PATCH}::jsonb, '{{}}')"
    return f"\nCROSS JOIN LATERAL jsonb_to_record({document}) AS d({types})"


# Neither text nor jsonb can have U+0000: one such character must not break a query of the whole table.
_TEXT: Final = f"t.{BODY}::text"
_BODY: Final = (
    rf"(CASE strpos({_TEXT}, '\u0000') WHEN 0 THEN {_TEXT}"
    rf" ELSE regexp_replace({_TEXT}, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g') END)::jsonb"
)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
