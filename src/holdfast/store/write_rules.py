"""The rules of a write: the change it makes to what is stored, or the error that refuses it.

`decide` has all of them (tenancy, preconditions, lifecycle, immutable and append-only declarations) in one
pure function. Every engine reads, calls it and applies the change it returns, so all of them behave alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.errors import (
    AlreadyExistsError,
    AppendOnlyError,
    BadQueryError,
    ImmutableFieldError,
    LeaseLostError,
    NotFoundError,
    UnknownFieldError,
    VersionConflictError,
    WrongTenantError,
    WrongTypeError,
)
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Absent, Commit, Fence, Kind, Version, Write
from holdfast.store.transforms import TRANSFORMS


class Current(Protocol):
    """The stored document, as an engine presents it to `decide`."""

    @property
    def version(self) -> int: ...
    @property
    def tenant(self) -> str | None: ...
    def document(self) -> Any: ...


class Change(msgspec.Struct, frozen=True, gc=False):
    """What an engine must apply: the insert, update or delete of one document.

    A `blind` insert was decided without a read and replaces what may exist. `before` is what an update
    replaces, so that an engine can write the difference only.
    """

    kind: Literal["insert", "update", "delete"]
    schema: Schema[Any]
    key: str
    prepared: Prepared | None = None
    blind: bool = False
    before: Current | None = None


def needs_current(write: Write) -> bool:
    """Whether `decide` must see what is stored, or the engine's unique key is enough."""
    if write.kind == "create":
        return False
    return not (write.kind == "put" and write.expect is None and write.schema.tenant is None
                and not write.schema.moves_checked)  # fmt: skip


def decide(write: Write, current: Current | None, *, commit: Commit) -> Change | None:
    """Return the change that one write makes, or raise the error that refuses its commit. Pure."""
    schema, tenant = write.schema, commit.tenant
    if write.kind == "create":
        # First, because an engine may find an id taken only when it inserts.
        check_create(write, commit)
    else:
        _check_tenant(write, tenant)
    visible = current
    if current is not None and tenant is not None and current.tenant not in (None, tenant):
        visible = None
    _check_expectation(write, current, visible)
    if commit.restoring and write.kind in ("create", "put"):
        return Change("insert", schema, write.key, write.prepared, blind=write.kind == "put")
    if (commit.expiring or commit.restoring) and write.kind == "delete" and visible is not None:
        return Change("delete", schema, write.key)
    return _DECISIONS[write.kind](write, visible)


def check_create(write: Write, commit: Commit) -> None:
    """Raise what refuses a create wherever its id is free: all that `decide` has to say of one then."""
    _check_tenant(write, commit.tenant)
    if not commit.restoring:
        _check_start(write)


def _check_tenant(write: Write, tenant: str | None) -> None:
    if tenant is not None and write.prepared is not None and write.prepared.tenant not in (None, tenant):
        raise WrongTenantError(
            f"{write.schema.name}: the document is another tenant's; use that tenant's handle"
        )


def _check_expectation(write: Write, current: Current | None, visible: Current | None) -> None:
    expect = write.expect
    inserts = write.kind in ("create", "put", "upsert")
    if isinstance(expect, Absent) or (inserts and current is not visible):
        # An insert must not take another tenant's id; to other writes that document does not exist.
        if (current if inserts else visible) is not None:
            raise AlreadyExistsError(f"{_label(write)} already exists")
    elif isinstance(expect, Fence):
        claim = write.schema.claim
        if claim is None:
            raise BadQueryError(f"{write.schema.name} declares no claim, so it has no fencing number")
        if visible is None or getattr(visible.document(), claim.fence) != expect.number:
            raise LeaseLostError(f"{_label(write)} has since been claimed by another worker")
    elif (expect is not None or write.kind == "patch") and visible is None:
        raise NotFoundError(f"{_label(write)} does not exist")
    elif isinstance(expect, Version) and visible is not None and visible.version != expect.number:
        raise VersionConflictError(f"{_label(write)} has been written since it was read; read it again")


def _label(write: Write) -> str:
    return f"{write.schema.name} {write.key!r}".replace("\x01", "/").replace("\\x01", "/")


def _check_start(write: Write) -> None:
    schema = write.schema
    if schema.lifecycle and schema.state and write.prepared is not None:
        schema.lifecycle.check_start(schema.state_of(write.prepared), schema.state.stored)


def _insert(write: Write, stored: Current | None) -> Change:
    if write.kind != "create":
        _check_start(write)
    return Change(
        "insert", write.schema, write.key, write.prepared, write.kind == "put" and not needs_current(write)
    )


def _put(write: Write, stored: Current | None) -> Change:
    if stored is None:
        return _insert(write, None)
    assert write.prepared is not None
    if write.schema.moves_checked:
        check_move(write.schema, stored.document(), write.schema.document_of(write.prepared))
    return Change("update", write.schema, write.key, write.prepared, before=stored)


def _patch(write: Write, stored: Current | None) -> Change:
    if stored is None:
        raise NotFoundError(f"{_label(write)} does not exist")
    assert write.changes is not None
    schema = write.schema
    if schema.append_only:
        raise AppendOnlyError(f"{schema.name} is append-only: documents can't be changed or deleted")
    old = stored.document()
    new = apply(schema, old, write.changes)
    prepared = schema.prepare_changed(new, write.key, write.changes)
    if prepared.key != write.key:
        moved = [n for n in schema.path.parameters if getattr(new, n) != getattr(old, n)]
        raise ImmutableFieldError("a field of the document's path can't change", moved[0])
    if schema.moves_checked:
        check_move(schema, old, new)
    return Change("update", schema, write.key, prepared, before=stored)


def _upsert(write: Write, stored: Current | None) -> Change:
    return _insert(write, None) if stored is None else _patch(write, stored)


def _delete(write: Write, stored: Current | None) -> Change | None:
    if stored is None:
        return None
    if write.schema.append_only:
        raise AppendOnlyError(f"{write.schema.name} is append-only: documents can't be changed or deleted")
    return Change("delete", write.schema, write.key)


def _check(write: Write, stored: Current | None) -> None:
    return None


_DECISIONS: Final[dict[Kind, Callable[[Write, Current | None], Change | None]]] = {
    "create": _insert, "put": _put, "patch": _patch, "upsert": _upsert, "delete": _delete, "check": _check,
}  # fmt: skip


def check_move(schema: Schema[Any], old: Any, new: Any) -> None:
    """Refuse a change that the declaration forbids."""
    if schema.append_only:
        raise AppendOnlyError(f"{schema.name} is append-only: documents can't be changed or deleted")
    if schema.lifecycle and schema.state:
        schema.lifecycle.check_move(schema.state.read(old), schema.state.read(new), path=schema.state.stored)
    if schema.claim and getattr(new, schema.claim.fence) < getattr(old, schema.claim.fence):
        raise LeaseLostError(
            f"{schema.name}: a fencing number never decreases; the document has been claimed since"
        )
    if schema.immutable_values(old) == schema.immutable_values(new):
        return
    for name in schema.immutable:
        if getattr(old, name) != getattr(new, name):
            stored = schema.fields[name].encode_name
            raise ImmutableFieldError(f"{stored} is immutable", stored)


# Most values that are set, and no transforms: found so without asking each transform's class.
_VALUES: Final = frozenset((str, int, float, bool, bytes, list, dict, datetime, type(None)))


def apply(schema: Schema[Any], document: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of the document with the changes, not validated yet."""
    # Only a change inside a field would reach through a shallow copy into the document itself.
    new = schema.copy(document) if "." in "".join(changes) else document.__copy__()
    for path, value in changes.items():
        target, name = (new, path) if path in schema.fields else _inside(schema, new, path)
        if type(value) not in _VALUES and isinstance(value, TRANSFORMS):
            try:
                value = value.apply(getattr(target, name))
            except TypeError:
                raise WrongTypeError(f"{type(value).__name__} can't be applied to {path}", path) from None
        setattr(target, name, value)
    return new


def _inside(schema: Schema[Any], document: Any, path: str) -> tuple[Any, str]:
    """Return the struct in which a dotted path ends, and the name there."""
    target, name = document, path
    while "." in name:
        head, _, name = name.partition(".")
        target = getattr(target, head)
        if target is None or target is msgspec.UNSET:
            raise WrongTypeError(f"{head} is not set, so {path} can't be; set all of {head}", path)
    if not hasattr(target, name):
        raise UnknownFieldError(f"{schema.name} has no field {path!r}", path)
    return target, name
