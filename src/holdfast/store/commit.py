"""Commits: atomic lists of writes, each with a precondition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from holdfast.errors import BadQueryError, HoldfastError
from holdfast.model.document import Document, schema_of
from holdfast.model.path import join_key
from holdfast.model.schema import Prepared, Schema

D = TypeVar("D", bound=Document)
Kind = Literal["create", "put", "patch", "upsert", "delete", "check"]


class Present(msgspec.Struct, frozen=True):
    """The document must exist, in any version."""


class Absent(msgspec.Struct, frozen=True):
    """The document must not exist."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """The document must still have this fencing number: nobody claimed it since."""

    number: int


class Version(msgspec.Struct, frozen=True, gc=False):
    """The document must not have been written since it was read."""

    number: int


Expect = Present | Absent | Fence | Version | None
PRESENT: Final = Present()
ABSENT: Final = Absent()


class Write(msgspec.Struct, frozen=True, gc=False):
    """One write of a commit. Make it with `create`, `put`, `patch`, `upsert`, `delete` or `check`."""

    kind: Kind
    schema: Schema[Any]
    key: str
    expect: Expect = None
    prepared: Prepared | None = None
    changes: Mapping[str, Any] | None = None


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Writes made together or not at all; `tenant` is None only for privileged handles."""

    writes: tuple[Write, ...]
    tenant: str | None = None
    expiring: bool = False  # retention may delete from append-only collections
    restoring: bool = False  # a copy may repeat any write that the store it copies has accepted


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The result of a commit: a version per write, in order (0 for deletes and checks)."""

    versions: tuple[int, ...]


Outcome = Committed | HoldfastError


def create(document: Document) -> Write:
    """Add a document, with an id generated as declared; fails with AlreadyExistsError where it exists."""
    schema = schema_of(type(document))
    schema.assign_id(document)
    prepared = schema.prepare(document)
    return Write("create", schema, prepared.key, ABSENT, prepared)


def create_or_refusal(document: Document) -> Write | HoldfastError:
    """Return the `create` of a document, or the error that refuses it."""
    try:
        return create(document)
    except HoldfastError as refusal:
        return refusal


def create_many(documents: Iterable[Document]) -> list[Write]:
    """Return the `create` of each document; faster than one by one where all are of one class.

    Example: `await store.settle([[write] for write in create_many(notes)])`
    """
    given = list(documents)
    if len(given) > 1:
        schema = schema_of(type(given[0]))
        prepared = schema.prepare_new(given)
        if prepared is not None:
            return [Write("create", schema, one.key, ABSENT, one) for one in prepared]
    return [create(document) for document in given]


def encoded(document: Document) -> bytes:
    """Encode a document for `create_encoded`, in this process or another, with its id generated."""
    return schema_of(type(document)).encode(document)


def create_encoded(cls: type[D], body: bytes) -> Write:
    """Create a document that `encoded` has encoded; it is validated as any other."""
    schema = schema_of(cls)
    prepared = schema.prepare_encoded(body)
    return Write("create", schema, prepared.key, ABSENT, prepared)


def put(document: Document, expect: Expect = None) -> Write:
    """Insert or replace a document; `expect` is the precondition."""
    schema = schema_of(type(document))
    schema.assign_id(document)
    prepared = schema.prepare(document)
    return Write("put", schema, prepared.key, expect, prepared)


def patch(cls: type[D], *ids: str, changes: Mapping[str, Any], expect: Expect = None) -> Write:
    """Change some fields of an existing document; values may be transforms.

    Example: `patch(Tenant, "acme", changes={"runs": Increment(1), "settings.theme": "dark"})`
    """
    schema = schema_of(cls)
    _check_fields(schema, changes)
    return Write("patch", schema, join_key(ids, schema.path.parameters), expect, None, dict(changes))


def upsert(document: Document, changes: Mapping[str, Any]) -> Write:
    """Insert the document where it is absent, otherwise make the changes: no read, no race.

    Example: `upsert(Daily(id=day, runs=1), changes={"runs": Increment(1)})`
    """
    schema = schema_of(type(document))
    _check_fields(schema, changes)
    schema.assign_id(document)
    prepared = schema.prepare(document)
    return Write("upsert", schema, prepared.key, None, prepared, dict(changes))


def _check_fields(schema: Schema[Any], changes: Mapping[str, Any]) -> None:
    if not changes.keys() <= schema.fields.keys():
        for name in changes:
            schema.check_field(name)


def delete(cls: type[D], *ids: str, expect: Expect = None) -> Write:
    """Delete a document; a missing one is no error unless `expect` makes it one."""
    schema = schema_of(cls)
    return Write("delete", schema, join_key(ids, schema.path.parameters), expect)


def check(cls: type[D], *ids: str, expect: Expect = PRESENT) -> Write:
    """Write nothing, but fail the commit unless the document is as expected."""
    schema = schema_of(cls)
    return Write("check", schema, join_key(ids, schema.path.parameters), expect)


class Snapshot(msgspec.Struct, Generic[D], frozen=True, gc=False):
    """A document as it was stored when read, with its version."""

    doc: D
    version: int
    key: str

    @property
    def unchanged(self) -> Version:
        """Return the precondition that nobody wrote it since: `put(doc, snapshot.unchanged)`."""
        return Version(self.version)

    @property
    def fenced(self) -> Fence:
        """Return the precondition that nobody claimed it since."""
        claim = schema_of(type(self.doc)).claim
        if claim is None:
            raise BadQueryError(f"{type(self.doc).__name__} declares no claim, so it has no fencing number")
        return Fence(getattr(self.doc, claim.fence))


def check_commit(writes: Iterable[Write], writes_max: int) -> tuple[Write, ...]:
    """Refuse more writes than the engine takes, and two writes of one document."""
    checked = tuple(writes)
    if len(checked) > writes_max:
        raise BadQueryError(f"a commit takes at most {writes_max} writes, not {len(checked)}")
    if len(checked) > 1 and len({(id(w.schema), w.key) for w in checked}) < len(checked):
        raise BadQueryError("a commit writes each document once; combine the changes into one write")
    return checked


def explain_no_writes(given: Any) -> str:
    """Say what a commit takes, in terms of what it was given."""
    if not isinstance(given, Sequence):
        return "settle takes commits, each a list of writes: settle([[create(a)], [create(b)]])"
    wrong = next(one for one in given if not isinstance(one, Write))
    if isinstance(wrong, Document):
        name = type(wrong).__name__
        return f"commit takes writes, and a {name} is none: commit(create(note)), put, patch or delete"
    if isinstance(wrong, (list, tuple, set)):
        return "commit takes writes one after the other, not in a list: commit(*writes)"
    return f"commit takes writes, such as create(note) or patch(...), not a {type(wrong).__name__}"
