"""The rule book: what a write makes of what is stored, or why it is refused.

`decide` is the whole of it (tenancy, expectations, lifecycle, immutable and append-only declarations) as one
pure function. Every engine reads, calls it, and applies the change it gives; that is why all of them answer
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
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
    """What is stored now, as an engine shows it to `decide`."""

    @property
    def version(self) -> int: ...
    @property
    def tenant(self) -> str | None: ...
    def document(self) -> Any: ...


class Change(msgspec.Struct, frozen=True, gc=False):
    """What an engine must do: insert, replace or delete one document.

    `blind` marks an insert decided without looking: it replaces what may be there. `before` is what an
    update replaces, so that an engine can leave alone what stays the same.
    """

    kind: Literal["insert", "update", "delete"]
    schema: Schema[Any]
    key: str
    prepared: Prepared | None = None
    blind: bool = False
    before: Current | None = None


def needs_current(write: Write) -> bool:
    """Whether `decide` must see what is stored, or the engine's own uniqueness is enough."""
    if write.kind == "create":
        return False
    return not (write.kind == "put" and write.expect is None and write.schema.tenant is None
                and not write.schema.moves_checked)  # fmt: skip


def decide(write: Write, current: Current | None, *, commit: Commit) -> Change | None:
    """The change one write makes, or the error that refuses its commit. Pure."""
    schema, tenant = write.schema, commit.tenant
    if write.prepared is not None and tenant is not None and write.prepared.tenant not in (None, tenant):
        raise WrongTenantError(f"{schema.name}: this handle writes for another tenant")
    mine = current
    if current is not None and tenant is not None and current.tenant not in (None, tenant):
        mine = None
    if write.kind == "create" and not commit.restoring:
        # First of all, because an engine may find an id taken only as it inserts.
        _check_start(write)
    _check_expectation(write, current, mine)
    if commit.restoring and write.kind in ("create", "put"):
        return Change("insert", schema, write.key, write.prepared, blind=write.kind == "put")
    if (commit.expiring or commit.restoring) and write.kind == "delete" and mine is not None:
        return Change("delete", schema, write.key)
    return _DECISIONS[write.kind](write, mine)


def _check_expectation(write: Write, current: Current | None, mine: Current | None) -> None:
    expect = write.expect
    claims_id = write.kind in ("create", "put", "upsert")
    if isinstance(expect, Absent) or (claims_id and current is not mine):
        # Whose id it is matters to those who want it; to others another tenant's document is not there.
        if (current if claims_id else mine) is not None:
            raise AlreadyExistsError(f"{_label(write)} is there already")
    elif isinstance(expect, Fence):
        claim = write.schema.claim
        if claim is None:
            raise BadQueryError(f"{write.schema.name} declares no claim, so it has no fencing number")
        if mine is None or getattr(mine.document(), claim.fence) != expect.number:
            raise LeaseLostError(f"{_label(write)} was claimed by another worker since")
    elif (expect is not None or write.kind == "patch") and mine is None:
        raise NotFoundError(f"{_label(write)} is not there")
    elif isinstance(expect, Version) and mine is not None and mine.version != expect.number:
        raise VersionConflictError(f"{_label(write)} was written since it was read")


def _label(write: Write) -> str:
    return f"{write.schema.name} {write.key!r}".replace("\x01", "/").replace("\\x01", "/")


def _check_start(write: Write) -> None:
    schema = write.schema
    if schema.lifecycle and schema.state and write.prepared is not None:
        schema.lifecycle.check_start(schema.state_of(write.prepared), schema.state.stored)


def _insert(write: Write, mine: Current | None) -> Change:
    if write.kind != "create":
        _check_start(write)
    return Change(
        "insert", write.schema, write.key, write.prepared, write.kind == "put" and not needs_current(write)
    )


def _put(write: Write, mine: Current | None) -> Change:
    if mine is None:
        return _insert(write, None)
    assert write.prepared is not None
    if write.schema.moves_checked:
        check_move(write.schema, mine.document(), write.schema.document_of(write.prepared))
    return Change("update", write.schema, write.key, write.prepared, before=mine)


def _patch(write: Write, mine: Current | None) -> Change:
    if mine is None:
        raise NotFoundError(f"{_label(write)} is not there")
    assert write.changes is not None
    schema = write.schema
    if schema.append_only:
        raise AppendOnlyError(f"{schema.name} takes new documents only")
    old = mine.document()
    new = apply(schema, old, write.changes)
    prepared = schema.prepare_changed(new, write.key, write.changes)
    if prepared.key != write.key:
        moved = [n for n in schema.path.parameters if getattr(new, n) != getattr(old, n)]
        raise ImmutableFieldError("the fields that make up the path can't change", moved[0])
    if schema.moves_checked:
        check_move(schema, old, new)
    return Change("update", schema, write.key, prepared, before=mine)


def _upsert(write: Write, mine: Current | None) -> Change:
    return _insert(write, None) if mine is None else _patch(write, mine)


def _delete(write: Write, mine: Current | None) -> Change | None:
    if mine is None:
        return None
    if write.schema.append_only:
        raise AppendOnlyError(f"{write.schema.name} takes new documents only")
    return Change("delete", write.schema, write.key)


def _check(write: Write, mine: Current | None) -> None:
    return None


_DECISIONS: Final[dict[Kind, Callable[[Write, Current | None], Change | None]]] = {
    "create": _insert, "put": _put, "patch": _patch, "upsert": _upsert, "delete": _delete, "check": _check,
}  # fmt: skip


def check_move(schema: Schema[Any], old: Any, new: Any) -> None:
    """Refuse what the declaration forbids a stored document to become."""
    if schema.append_only:
        raise AppendOnlyError(f"{schema.name} takes new documents only")
    if schema.lifecycle and schema.state:
        schema.lifecycle.check_move(schema.state.read(old), schema.state.read(new), path=schema.state.stored)
    if schema.claim and getattr(new, schema.claim.fence) < getattr(old, schema.claim.fence):
        raise LeaseLostError(
            f"{schema.name}: a fencing number never goes back; the document was claimed since"
        )
    for name in schema.immutable:
        if getattr(old, name) != getattr(new, name):
            stored = schema.fields[name].encode_name
            raise ImmutableFieldError(f"{stored} was set when the document was made", stored)


def apply(schema: Schema[Any], document: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of the document with the changes made; checking it is the caller's next step."""
    # Only a change inside a field could reach through a shallow copy into the document itself.
    new = schema.copy(document) if "." in "".join(changes) else copy(document)
    for path, value in changes.items():
        target, name = (new, path) if path in schema.fields else _inside(schema, new, path)
        if isinstance(value, TRANSFORMS):
            try:
                value = value.apply(getattr(target, name))
            except TypeError:
                raise WrongTypeError(f"{type(value).__name__} doesn't fit what {path} holds", path) from None
        setattr(target, name, value)
    return new


def _inside(schema: Schema[Any], document: Any, path: str) -> tuple[Any, str]:
    """The struct in which a dotted path ends, and the name there."""
    target, name = document, path
    while "." in name:
        head, _, name = name.partition(".")
        target = getattr(target, head)
        if target is None or target is msgspec.UNSET:
            raise WrongTypeError(f"{head} is not set, so {path} can't be", path)
    if not hasattr(target, name):
        raise UnknownFieldError(f"{schema.name} has no field {path!r}", path)
    return target, name
