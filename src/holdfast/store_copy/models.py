"""Documents and results of a copy."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.model import SERVICE_ONLY, Document, document

COPY_ID: Final = "copy"
NAMED_MAX: Final = 100
Kind = Literal["missing", "changed", "extra"]


class CollectionDigest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One collection on both sides: the number of documents, and one hash over all of them in order."""

    collection: str
    documents: int
    hash: str
    target_documents: int
    target_hash: str


@document("holdfast_copies/{id}", access=SERVICE_ONLY)
class Copy(Document, rename="camel"):
    """Stored in the target: the source it is a copy of, and the position.

    While it is unfinished, only the copier may write to the target.
    """

    id: str = COPY_ID
    source: str
    state: Literal["unfinished", "finished"] = "unfinished"
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    runs: int = 1
    walk: int = 1
    collection: str = ""
    cursor: str | None = None
    written: int = 0
    removed: int = 0
    proof: list[CollectionDigest] = []


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A document that is missing in the target, differs there, or exists only there."""

    collection: str
    id: str
    kind: Kind


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a walk; `total` was counted before it, while writers go on."""

    walk: int
    collection: str
    seen: int
    total: int
    differing: int


class WalkResult(msgspec.Struct, kw_only=True, rename="camel"):
    """The result of one walk over both stores; the first differences by name."""

    missing: int = 0
    changed: int = 0
    extra: int = 0
    seen: int = 0
    tallies: list[CollectionDigest] = []
    named: list[Difference] = []

    @property
    def differing(self) -> int:
        return self.missing + self.changed + self.extra

    def note(self, difference: Difference) -> None:
        setattr(self, difference.kind, getattr(self, difference.kind) + 1)
        if len(self.named) < NAMED_MAX:
            self.named.append(difference)


class CopyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one run. `in_step` says that its last complete walk found no difference."""

    state: Literal["unfinished", "finished"]
    in_step: bool
    walks: list[WalkResult]
    written: int
    removed: int
    proof: list[CollectionDigest]
