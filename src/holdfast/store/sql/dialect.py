"""Where the SQL engines differ: types, placeholders, how a value is bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.model.columns import Kind


class Dialect(Protocol):
    """One engine's way of writing SQL."""

    types: Mapping[Kind, str]
    key_type: str
    version_type: str
    body_type: str
    names_bytes_max: int

    def placeholder(self, position: int) -> str:
        """The mark of the n-th bound value, counted from 1."""
        ...

    def bind(self, value: Any) -> Any:
        """A column's value as the driver takes it."""
        ...

    def ordered(self, name: str, descending: bool) -> str:
        """An ORDER BY term in which null comes first ascending and last descending."""
        ...

    def use_index(self, name: str) -> str:
        """Words after a table's name that hold the planner to an index, or nothing."""
        ...

    def mark(self, key: str, index: str) -> str:
        """A condition true of every row that only this index and its queries carry, or nothing.

        Where there are no words to hold the planner to an index, such a mark leaves it no other.
        """
        ...

    def tie(self, key: str) -> str:
        """The key as declared indexes order it, so that the primary key can't stand in for them."""
        ...


class Bound:
    """Collects the values of one statement and hands out their placeholders."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.values: list[Any] = []

    def add(self, value: Any) -> str:
        self.values.append(self._dialect.bind(value))
        return self._dialect.placeholder(len(self.values))


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
