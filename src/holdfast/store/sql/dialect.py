"""What differs between the SQL engines in the text of a statement: types, placeholders, index hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from holdfast.model.columns import Kind, ReadableKind
from holdfast.store.sql.views import InspectedView, View, ViewColumn


class Dialect(Protocol):
    """One engine's SQL."""

    types: Mapping[Kind, str]
    key_type: str
    version_type: str
    body_type: str
    names_bytes_max: int
    row_id: str  # the name of a row's own number, empty where there is none
    concurrently: str  # what builds an index without blocking writers, empty where nothing does
    unbind: Mapping[Kind, Callable[[Any], Any]]  # undoes `bind` for the kinds the driver returns as bound

    def derived(self, name: str, kind: ReadableKind) -> tuple[str, str]:
        """Return the type and the definition of a column derived from a field of the patch or the body."""
        ...

    def view_type(self, column: ViewColumn) -> str:
        """Return the type of a view's column as inspected, empty where the database has none."""
        ...

    def create_view(self, view: View, existing: InspectedView | None = None) -> list[str]:
        """Return the statements that create the view, or replace the existing one."""
        ...

    def detach_view(self, view: View, existing: InspectedView) -> list[str]:
        """Return what must precede the drop of a column that the existing view uses."""
        ...

    def placeholder(self, position: int) -> str:
        """Return the placeholder of the n-th bound value, counted from 1."""
        ...

    def bind(self, value: Any) -> Any:
        """Return a column's value as the driver takes it."""
        ...

    def ordered(self, name: str, descending: bool) -> str:
        """Return an ORDER BY term in which null comes first ascending and last descending."""
        ...

    def use_index(self, name: str) -> str:
        """Return the index hint that follows a table's name, or nothing."""
        ...

    def mark(self, key: str, index: str) -> str:
        """Return a condition true of every row that only this index and its queries carry, or nothing.

        Without index hints, such a condition leaves the planner no other index.
        """
        ...

    def tie(self, key: str) -> str:
        """Return the key as declared indexes order it, so that the primary key can't replace them."""
        ...

    def body_bytes(self, name: str) -> str:
        """Return the expression for the size of a JSON column."""
        ...

    def merged_patch(self, stored: str, new: str, names: Sequence[str]) -> str:
        """Return the expression for a patch, which may be null, with the fields of a new one in place of
        its own, every value as the exact text that was written. `names` are the new one's fields.
        """
        ...


class Bound:
    """Collects the values of one statement and returns their placeholders."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.values: list[Any] = []

    def add(self, value: Any) -> str:
        self.values.append(self._dialect.bind(value))
        return self._dialect.placeholder(len(self.values))


@cache
def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
