"""SQLite's SQL: times are whole microseconds; text compares by its UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.clock import from_us, to_us
from holdfast.model.columns import Kind, ReadableKind
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.views import InspectedView, View, ViewColumn
from holdfast.store.sqlite import views

_DERIVED: Mapping[ReadableKind, str] = {"integer": "INTEGER", "number": "REAL", "boolean": "INTEGER"}


class SqliteDialect:
    types: Mapping[Kind, str] = {
        "integer": "INTEGER", "number": "REAL", "boolean": "INTEGER", "text": "TEXT", "time": "INTEGER",
        "bytes": "BLOB", "open": "BLOB",
    }  # fmt: skip
    key_type = "TEXT"
    version_type = "INTEGER"
    body_type = "TEXT"
    names_bytes_max = 200
    row_id = "_rowid_"
    concurrently = ""
    unbind: Mapping[Kind, Callable[[Any], Any]] = {"time": from_us, "boolean": bool}

    def derived(self, name: str, kind: ReadableKind) -> tuple[str, str]:
        path = _path(name)
        in_body, in_patch = f"json_extract(_body, {path})", f"json_extract(_patch, {path})"
        value = f"iif(json_type(_patch, {path}) IS NULL, {in_body}, {in_patch})"
        return _DERIVED.get(kind, "TEXT"), f"AS ({value}) VIRTUAL"

    def view_type(self, column: ViewColumn) -> str:
        return ""

    def create_view(self, view: View, existing: InspectedView | None = None) -> list[str]:
        return views.create_view(view)

    def detach_view(self, view: View, existing: InspectedView) -> list[str]:
        return []

    def placeholder(self, position: int) -> str:
        return "?"

    def bind(self, value: Any) -> Any:
        return to_us(value) if isinstance(value, datetime) else value

    def ordered(self, name: str, descending: bool) -> str:
        return f"{name} DESC" if descending else name

    def use_index(self, name: str) -> str:
        # Without statistics the planner may prefer an index that needs a sort; here it has no choice.
        return f" INDEXED BY {quote(name)}"

    def mark(self, key: str, index: str) -> str:
        return ""

    def tie(self, key: str) -> str:
        return key

    def body_bytes(self, name: str) -> str:
        return f"octet_length({name})"

    def merged_patch(self, stored: str, new: str, names: Sequence[str]) -> str:
        # json_patch would drop fields that are null, and merge structs field by field.
        sets = ", ".join(f"{path}, {new} -> {path}" for path in map(_path, names))
        return f"iif({stored} IS NULL, {new}, json_set({stored}, {sets}))"


def _path(name: str) -> str:
    return "'$.\"" + name.replace("'", "''") + "\"'"


DIALECT = SqliteDialect()
