"""Index declarations: every query needs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from holdfast.errors import DeclarationError
from holdfast.model.columns import Column

Across = Literal["nothing", "parents", "tenants"]


@dataclass(frozen=True, init=False)
class Index:
    """Fields in order; a leading `-` is descending, a trailing `[]` indexes the items of a list.

    A query is served by the index whose fields are its equality fields (in any order) followed by
    its order. `across` widens it: `"parents"` over all sub-collections of that name inside one tenant,
    `"tenants"` over everything, for privileged handles. A `sparse` one leaves out documents in which this
    field is null or empty text: they cost no entry, and only queries that exclude them use it.

    Example: `Index("status", "-created_at")`, `Index("labels[]", "-score", across="tenants")`
    """

    fields: tuple[str, ...]
    across: Across = "nothing"
    sparse: str = ""

    def __init__(self, *fields: str, across: Across = "nothing", sparse: str = "") -> None:
        for name in fields:
            if not name.strip("-[]") or name.count("[]") > 1:
                raise DeclarationError(f"Index({name!r}): use a field name, with '-' before or '[]' after it")
        if sum(name.endswith("[]") for name in fields) > 1:
            raise DeclarationError(f"Index{fields}: only one list field can be in an index")
        object.__setattr__(self, "fields", fields)
        if sparse and sparse not in [name.removeprefix("-") for name in fields]:
            raise DeclarationError(f"Index{fields}: sparse={sparse!r} is none of its fields, or a list")
        object.__setattr__(self, "across", across)
        object.__setattr__(self, "sparse", sparse)

    def __str__(self) -> str:
        words = [f'"{name}"' for name in self.fields]
        if self.across != "nothing":
            words.append(f'across="{self.across}"')
        if self.sparse:
            words.append(f'sparse="{self.sparse}"')
        return f"Index({', '.join(words)})"

    __repr__ = __str__


class IndexField(msgspec.Struct, frozen=True, eq=False):
    column: Column
    descending: bool = False
    member: bool = False


class ResolvedIndex(msgspec.Struct, frozen=True, eq=False):
    """A declared index with its columns looked up."""

    name: str
    fields: tuple[IndexField, ...]
    across: Across
    declared: Index
    sparse: Column | None = None

    def leaves_out(self, value: object) -> bool:
        """Whether documents with this value in the field by which the index is sparse are not in it."""
        return self.sparse is not None and (value is None or value == "")

    @property
    def member(self) -> IndexField | None:
        return next((f for f in self.fields if f.member), None)

    @property
    def key_descending(self) -> bool:
        """The id breaks ties in the direction of the last field."""
        return bool(self.fields) and self.fields[-1].descending
