"""Exports of declarations. One pure function per format: schemas in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.model.export.firestore_indexes import firestore_indexes
from holdfast.model.export.firestore_rules import firestore_rules
from holdfast.model.export.json_schema import json_schema
from holdfast.model.export.markdown import markdown
from holdfast.model.export.typescript import typescript
from holdfast.model.schema import Schema

FORMATS: Final[dict[str, Callable[[Sequence[Schema[Any]], str], str]]] = {
    "firestore-indexes": firestore_indexes,
    "firestore-rules": firestore_rules,
    "json-schema": json_schema,
    "typescript": typescript,
    "markdown": markdown,
}


def export(schemas: Iterable[Schema[Any]], format: str, *, env: str = "dev") -> str:
    """Return the declarations in one of `FORMATS`; the same declarations always give the same text.

    Example: `export([schema_of(Run)], "typescript")`
    """
    write = FORMATS.get(format)
    if write is None:
        raise ConfigError(f"unknown export format {format!r}; use {', '.join(FORMATS)}", "format")
    return write(list(schemas), env)
