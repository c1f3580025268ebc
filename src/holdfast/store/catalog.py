"""The document classes of one store, under one environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.errors import DeclarationError
from holdfast.model.document import Document, schema_of
from holdfast.model.schema import Schema

VIEW_PREFIX: Final = "view_"


class Catalog:
    """The schemas of a store and the names of their collections; refuses names that clash."""

    def __init__(self, classes: Iterable[type[Document]], env: str = "dev") -> None:
        self.env = env
        self.schemas: tuple[Schema[Any], ...] = tuple(schema_of(cls) for cls in dict.fromkeys(classes))
        self._known = frozenset(self.schemas)
        self._tables: dict[str, Schema[Any]] = {}
        groups: dict[str, Schema[Any]] = {}
        for schema in self.schemas:
            other = self._tables.setdefault(self.table(schema).lower(), schema)
            if other is not schema:
                raise DeclarationError(
                    f"{schema.name} and {other.name} share the collection {self.table(schema)!r}"
                )
            group = schema.path.group(env)
            other = groups.setdefault(group, schema)
            if other is not schema and (schema.path.nested or other.path.nested):
                raise DeclarationError(
                    f"{schema.name} and {other.name} share the collection name {group!r}, so a query across "
                    "parents would mix them; rename one"
                )

        for name, schema in self._tables.items():
            if (taken := self._tables.get(f"{VIEW_PREFIX}{name}")) is not None:
                raise DeclarationError(
                    f"{taken.name}'s collection has the name of the view of {schema.name}'s; rename one"
                )

    def table(self, schema: Schema[Any]) -> str:
        return schema.path.table(self.env)

    def __contains__(self, schema: Schema[Any]) -> bool:
        return schema in self._known
