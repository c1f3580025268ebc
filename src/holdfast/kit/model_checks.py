"""Checks of the document classes that a service gives to a part of the kit, made where they are declared."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import DeclarationError
from holdfast.model import Claim, CompositeId, Document, Index, schema_of


def check_model(
    cls: type[Document],
    fields: type[Document],
    *,
    path: Sequence[str] | None = None,
    id: CompositeId | None = None,
    indexes: Sequence[Index] = (),
    append_only: bool = False,
    claim: Claim | None = None,
) -> None:
    """Raise DeclarationError, with what to add, unless a class declares what a part of the kit relies on.

    `path` are the fields in its path and `id` the fields that its id is made of, whatever joins them. Stored
    names, further fields, indexes, retention and access are the service's own.
    """
    declared, missing = schema_of(cls).declared, list[str]()
    if not issubclass(cls, fields):
        raise DeclarationError(f"{cls.__name__} must be a subclass of {fields.__name__}")
    if declared.tenant != "tenant_id":
        missing.append('tenant="tenant_id"')
    if path is not None and schema_of(cls).path.parameters != tuple(path):
        missing.append(f"a path with the fields {', '.join(path)}, and no others")
    if id is not None and not (isinstance(declared.id, CompositeId) and declared.id.fields == id.fields):
        missing.append(f"id=CompositeId({', '.join(map(repr, id.fields))})")
    missing.extend(str(index) for index in indexes if index not in declared.indexes)
    if append_only and not declared.append_only:
        missing.append("append_only=True")
    if claim is not None and declared.claim != claim:
        missing.append(f"claim={claim}")
    if missing:
        raise DeclarationError(f"{cls.__name__} lacks {'; '.join(missing)}: add it to its @document(...)")


def check_separate(name: str, own: Sequence[type[Document]], kit: Sequence[type[Document]]) -> None:
    """Raise DeclarationError where a service's models have some of the kit's own classes among them."""
    shared = [cls.__name__ for cls in own if cls in kit]
    if 0 < len(shared) < len(own):
        raise DeclarationError(f"{name} shares {', '.join(shared)} with the kit: declare a subclass of each")
