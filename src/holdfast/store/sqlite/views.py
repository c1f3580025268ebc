"""Views on SQLite: times are ISO 8601 text, decimals numbers, bytes Base64, lists and structs JSON text."""

from __future__ import annotations

import re
from typing import Final

from holdfast.model.path import JOINT
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import BODY, KEY, PATCH
from holdfast.store.sql.views import InspectedView, View, ViewColumn

_JOINT: Final = f"char({ord(JOINT)})"
_NAME: Final = re.compile(r'"((?:[^"]|"")+)"')


def create_view(view: View) -> list[str]:
    """Return the statements that create a view anew: SQLite does not alter views."""
    names = ", ".join(quote(column.name) for column in view.columns)
    values = ",\n  ".join(_value(view, column) for column in view.columns)
    return [
        f"DROP VIEW IF EXISTS {quote(view.name)}",
        f"CREATE VIEW {quote(view.name)} ({names}) AS SELECT\n  {values}\nFROM {quote(view.table)}",
    ]


def inspect_view(view: View, sql: str) -> InspectedView:
    """Return what the statement that created a view says of it."""
    _, *names = _NAME.findall(sql.partition(" AS SELECT")[0])
    columns = tuple((name.replace('""', '"'), "") for name in names)
    return InspectedView(columns, as_declared=sql == create_view(view)[-1])


def _value(view: View, column: ViewColumn) -> str:
    if column.column:
        name = quote(column.column)
        return _time(name) if column.kind == "time" else name
    if column.part is not None:
        return _part(column.part, view.key_parts)
    value = _body_value(column)
    return f"CAST({value} AS NUMERIC)" if column.kind == "decimal" else value


def _time(name: str) -> str:
    """Return the expression for whole microseconds as text, as the body has times."""
    rest = f"(({name} % 1000000 + 1000000) % 1000000)"
    seconds = f"strftime('%Y-%m-%dT%H:%M:%S', ({name} - {rest}) / 1000000, 'unixepoch')"
    return f"{seconds} || CASE {rest} WHEN 0 THEN '' ELSE printf('.%06d', {rest}) END || 'Z'"


def _body_value(column: ViewColumn) -> str:
    # In JSON an explicit null is not missing. Short texts: every connection parses the views of its file.
    name, default = _literal(column.name), f", {_literal(column.default)}" if column.default else ""
    return f"coalesce({PATCH}->{name}, {BODY}->{name}{default})->>'$'"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _part(position: int, count: int) -> str:
    rest = quote(KEY)
    for _ in range(position):
        rest = f"substr({rest}, instr({rest}, {_JOINT}) + 1)"
    return rest if position == count - 1 else f"substr({rest}, 1, instr({rest}, {_JOINT}) - 1)"
