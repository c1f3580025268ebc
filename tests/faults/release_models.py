"""One collection as three releases declare it."""

from __future__ import annotations

from typing import Any

from holdfast.kit.processes import PROCESS_DOCUMENTS
from holdfast.model import Document, Index, document


@document("crates/{id}", indexes=[Index("year"), Index("kind")])
class OldCrate(Document):
    id: str
    year: int
    kind: str = "box"
    labels: list[str] = []


@document("crates/{id}", indexes=[Index("kind"), Index("rank"), Index("labels[]")])
class NewCrate(Document):
    """Adds a field and two indexes, and no longer has the index by year."""

    id: str
    year: int
    kind: str = "box"
    labels: list[str] = []
    rank: int = 7


def _kind_as_number(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "kind": 1}


@document("crates/{id}", indexes=[Index("kind")], upgrades={1: _kind_as_number})
class OtherCrate(Document):
    """Stores the kind as a number, which the others can't read."""

    id: str
    year: int
    kind: int = 1
    labels: list[str] = []
    schema_version: int = 2


RELEASES: dict[str, list[type[Document]]] = {
    "1": [OldCrate, *PROCESS_DOCUMENTS],
    "2": [NewCrate, *PROCESS_DOCUMENTS],
    "3": [OtherCrate, *PROCESS_DOCUMENTS],
}
