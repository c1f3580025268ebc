"""The `@document` decorator: one class declares everything about one collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, dataclass_transform

import msgspec

from holdfast.errors import DeclarationError
from holdfast.model.access import Access, Membership
from holdfast.model.claim import Claim
from holdfast.model.declaration import Declaration, Upgrade
from holdfast.model.identity import PROVIDED, Identity
from holdfast.model.index import Index
from holdfast.model.lifecycle import Lifecycle
from holdfast.model.retention import Retention
from holdfast.model.schema import Schema

D = TypeVar("D", bound="Document")


@dataclass_transform(field_specifiers=(msgspec.field,), kw_only_default=True)
class DocumentMeta(msgspec.StructMeta):
    """Makes fields keyword-only, so that required ones may follow optional ones."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        options.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **options)


# On the class as well: type checkers look at a parent class before a metaclass.
@dataclass_transform(field_specifiers=(msgspec.field,), kw_only_default=True)
class Document(msgspec.Struct, metaclass=DocumentMeta):
    """The base of document classes. Subclass it, annotate the fields, decorate it with `@document`."""


def document(
    path: str,
    *,
    id: Identity = PROVIDED,
    tenant: str | None = None,
    indexes: Iterable[Index] = (),
    lifecycle: Lifecycle | None = None,
    immutable: Iterable[str] = (),
    append_only: bool = False,
    retention: Retention | None = None,
    access: Access | None = None,
    membership: Membership | None = None,
    claim: Claim | None = None,
    path_only: Iterable[str] = (),
    all_columns: bool = False,
    counters: Iterable[str] = (),
    columns: Iterable[str] = (),
    upgrades: Mapping[int, Upgrade] | None = None,
) -> Callable[[type[D]], type[D]]:
    """Declare where and how a document is stored; an error in the declaration raises here, at import.

    `path` names collections and the fields that hold the ids: `"runs/{run_id}/steps/{id}"`; `{env}-` in
    front of a name is the environment's prefix. `tenant` is the field that names the owning tenant; a
    tenant's own document names its id there. `path_only` fields are known from the path and not stored
    again. With `all_columns` every field is a column on the SQL engines, for those who read the table with
    SQL. `counters` are whole numbers that upserts add to: columns, though no index holds them. `columns` are
    other such fields, as those by which processes of an earlier release still look. Without `access` only the
    service itself may read and write. `membership` marks the collection that gives people their roles.
    `upgrades[n]` turns the stored fields of version n into version n + 1 when a document is read.

    Example:
        @document("watchChannels/{channel_id}", indexes=[Index("status", "expiration")])
        class WatchChannel(Document, rename="camel"):
            channel_id: str
            status: Literal["active", "expired", "stopped"] = "active"
            expiration: int
    """

    def declare(cls: type[D]) -> type[D]:
        declared = Declaration(
            path=path, id=id, tenant=tenant, indexes=tuple(indexes), lifecycle=lifecycle,
            immutable=tuple(immutable), append_only=append_only, retention=retention, access=access,
            membership=membership, claim=claim, path_only=tuple(path_only), all_columns=all_columns,
            counters=tuple(counters), columns=tuple(columns), upgrades=dict(upgrades or {}),
        )  # fmt: skip
        _SCHEMAS[cls] = Schema(cls, declared)
        return cls

    return declare


_SCHEMAS: dict[type, Schema[Any]] = {}


def declared_in(names: Mapping[str, object]) -> list[type[Document]]:
    """Return the declared document classes among a module's names (`vars(module)`), in their order."""
    classes = [value for value in names.values() if isinstance(value, type) and value in _SCHEMAS]
    return list(dict.fromkeys(classes))


def schema_of(cls: type[D]) -> Schema[D]:
    """Return the compiled declaration of a document class."""
    schema = _SCHEMAS.get(cls)
    if schema is None:
        raise DeclarationError(f"{cls.__name__} is not declared; decorate it with @document(...)")
    return schema
