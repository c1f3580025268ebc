"""PostgreSQL's SQL: text compares by its UTF-8 bytes; the body is kept as the exact text written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.model.columns import Kind, ReadableKind
from holdfast.store.postgres import views
from holdfast.store.sql.views import InspectedView, View, ViewColumn

TEXT = 'TEXT COLLATE "C"'
_DERIVED: Mapping[ReadableKind, str] = {
    "integer": "BIGINT", "number": "DOUBLE PRECISION", "boolean": "BOOLEAN", "decimal": "NUMERIC",
    "json": "JSON",
}  # fmt: skip


class PostgresDialect:
    types: Mapping[Kind, str] = {
        "integer": "BIGINT", "number": "DOUBLE PRECISION", "boolean": "BOOLEAN", "text": TEXT,
        "time": "TIMESTAMPTZ", "bytes": "BYTEA", "open": "BYTEA",
    }  # fmt: skip
    key_type = TEXT
    version_type = "BIGINT"
    # jsonb would turn 1e22 into digits and refuse \u0000: json keeps what it was given.
    body_type = "JSON"
    names_bytes_max = 63
    row_id = ""
    concurrently = "CONCURRENTLY "
    unbind: Mapping[Kind, Callable[[Any], Any]] = {}

    def derived(self, name: str, kind: ReadableKind) -> tuple[str, str]:
        field = "'" + name.replace("'", "''") + "'"
        arrow = "->" if kind == "json" else "->>"
        in_body, in_patch = f"(_body {arrow} {field})", f"_patch {arrow} {field}"
        value = f"(CASE WHEN _patch -> {field} IS NULL THEN {in_body} ELSE {in_patch} END)"
        # A server before version 18 stores it instead: see the migration.
        derived = _DERIVED.get(kind, "TEXT")
        return derived, f"GENERATED ALWAYS AS ({value}::{derived.lower()}) VIRTUAL"

    def view_type(self, column: ViewColumn) -> str:
        return views.view_type(column)

    def create_view(self, view: View, existing: InspectedView | None = None) -> list[str]:
        return views.create_view(view, existing)

    def detach_view(self, view: View, existing: InspectedView) -> list[str]:
        return views.detach_view(view, existing)

    def placeholder(self, position: int) -> str:
        return f"${position}"

    def bind(self, value: Any) -> Any:
        return value

    def ordered(self, name: str, descending: bool) -> str:
        return f"{name} DESC NULLS LAST" if descending else f"{name} ASC NULLS FIRST"

    def use_index(self, name: str) -> str:
        return ""

    def mark(self, key: str, index: str) -> str:
        # Each index is partial by a condition of its own, always true because no id holds a
        # slash: a query that repeats it can use this index, and no statistics make it use another.
        return f"{key} <> '/{index}'"

    def tie(self, key: str) -> str:
        # The two collations order alike and are still not the same one to the planner.
        return f'{key} COLLATE "POSIX"'

    def body_bytes(self, name: str) -> str:
        return f"octet_length({name}::text)"

    def merged_patch(self, stored: str, new: str, names: Sequence[str]) -> str:
        # Of a repeated name every reader takes the last. Merging as jsonb would change values: 1e22, -0.0.
        fields = "ARRAY[" + ", ".join("'" + name.replace("'", "''") + "'" for name in names) + "]"
        replaced = f"{stored} IS NULL OR {stored}::jsonb - {fields} = '{{}}'"
        appended = f"(left({stored}::text, -1) || ',' || substr({new}::text, 2))::json"
        return f"CASE WHEN {replaced} THEN {new} ELSE {appended} END"


DIALECT = PostgresDialect()


def array_of(kind: Kind) -> str:
    """Return the type of an array of a column's values."""
    return DIALECT.types[kind].removesuffix(' COLLATE "C"').lower() + "[]"
