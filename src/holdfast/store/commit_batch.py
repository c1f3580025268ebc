"""Batches of commits that are alike: prepared together, and made many at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar, overload

from holdfast.errors import BadQueryError
from holdfast.model.document import Document, schema_of
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import ABSENT, Commit, Fence, Write

D = TypeVar("D", bound=Document)


class CommitBatch(Sequence[Commit]):
    """Commits of one write each, all of one class and prepared together.

    Engines that make many at once read what they share; a commit is made only where one is asked for.
    """

    __slots__ = ("schema", "tenant")

    def __init__(self, schema: Schema[Any], *, tenant: str | None) -> None:
        self.schema, self.tenant = schema, tenant

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _write(self, position: int) -> Write: ...

    @overload
    def __getitem__(self, position: int) -> Commit: ...
    @overload
    def __getitem__(self, position: slice) -> list[Commit]: ...
    def __getitem__(self, position: int | slice) -> Commit | list[Commit]:
        if isinstance(position, slice):
            return [self[number] for number in range(len(self))[position]]
        return Commit((self._write(position),), self.tenant)

    def __iter__(self) -> Iterator[Commit]:
        return map(self.__getitem__, range(len(self)))


class CreateBatch(CommitBatch):
    """Commits that create one document each; `shared` are those that were collected for many callers."""

    __slots__ = ("documents", "shared")

    def __init__(
        self,
        schema: Schema[Any],
        documents: Sequence[Prepared],
        *,
        tenant: str | None,
        shared: bool = False,
    ) -> None:
        super().__init__(schema, tenant=tenant)
        self.documents, self.shared = documents, shared

    def __len__(self) -> int:
        return len(self.documents)

    def _write(self, position: int) -> Write:
        document = self.documents[position]
        return Write("create", self.schema, document.key, ABSENT, document)


class PatchBatch(CommitBatch):
    """Commits that patch the same fields of one claimed document each, under its fencing number.

    `values` has a document's new values in the order of the fields' `names`.
    """

    __slots__ = ("fences", "keys", "names", "values")

    def __init__(
        self,
        schema: Schema[Any],
        names: tuple[str, ...],
        *,
        keys: Sequence[str],
        fences: Sequence[int],
        values: Sequence[tuple[Any, ...]],
        tenant: str | None,
    ) -> None:
        super().__init__(schema, tenant=tenant)
        self.names, self.keys, self.fences, self.values = names, keys, fences, values

    def __len__(self) -> int:
        return len(self.keys)

    def _write(self, position: int) -> Write:
        changes = dict(zip(self.names, self.values[position], strict=True))
        fence = Fence(self.fences[position])
        return Write("patch", self.schema, self.keys[position], fence, None, changes)


def new_documents(
    documents: Sequence[Document], *, tenant: str | None, shared: bool = False
) -> CreateBatch | None:
    """Return a batch that creates documents of one class; None where one has to be looked at alone."""
    if len(documents) < 2:
        return None
    schema = schema_of(type(documents[0]))
    prepared = schema.prepare_new(documents)
    return None if prepared is None else CreateBatch(schema, prepared, tenant=tenant, shared=shared)


def create_batch(commits: Sequence[Sequence[Write]], tenant: str | None) -> CreateBatch | None:
    """Return commits as a batch of creates; None where one is anything else."""
    try:
        if commits[0][0].kind != "create":
            return None  # most batches that are none, as those that settle: told by their first write
        writes = [write for (write,) in commits]
    except (TypeError, ValueError, LookupError, AttributeError):
        return None
    if {type(write) for write in writes} != {Write}:
        return None
    if {write.kind for write in writes} != {"create"} or len({write.schema for write in writes}) > 1:
        return None
    documents = [write.prepared for write in writes if write.prepared is not None]
    return CreateBatch(writes[0].schema, documents, tenant=tenant)


def claimed_patches(documents: Sequence[D], names: tuple[str, ...], *, tenant: str | None) -> PatchBatch:
    """Return the patches that store these fields of claimed documents of one class as they are now."""
    schema = schema_of(type(documents[0]))
    if schema.claim is None:
        raise BadQueryError(f"{schema.name} declares no claim, so it has no fencing number")
    if {type(document) for document in documents} != {schema.cls}:
        raise BadQueryError(f"all documents of a batch are of one class, here {schema.name}")
    for name in names:
        schema.check_field(name)
    return PatchBatch(
        schema, names, keys=schema.keys_of(documents),
        fences=list(map(attrgetter(schema.claim.fence), documents)),
        values=list(map(_fields_reader(names), documents)), tenant=tenant,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _fields_reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda document: tuple([getattr(document, name) for name in names])


def join_commits(given: Sequence[Sequence[Commit]]) -> Sequence[Commit]:
    """Return the commits of several callers in their order; batches of creates become one where they fit."""
    first = given[0]
    if len(given) == 1:
        return first
    if type(first) is CreateBatch:
        batches = [one for one in given if type(one) is CreateBatch]
        if len(batches) == len(given) and {(one.schema, one.tenant) for one in batches} == {
            (first.schema, first.tenant)
        }:
            documents = [document for one in batches for document in one.documents]
            return CreateBatch(first.schema, documents, tenant=first.tenant)
    return [commit for commits in given for commit in commits]
