"""A service whose collections are of every shape: nested, without tenants, with lists, with its own rules."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from holdfast.model import Access, Document, Index, document
from holdfast.service import Context, Parts, Service

_READERS = Access(read=["viewer"])


@document(
    "books/{id}",
    tenant="tenant_id",
    indexes=[
        Index("shelf", "-bought_at"),
        Index("state", "pages"),
        Index("labels[]", "pages"),
        Index("lent", "weight"),
        Index("note"),
        Index("bought_at"),
        Index("lender_token"),
    ],
    access=_READERS,
)
class Book(Document, rename="camel"):
    """One book on a shelf."""

    id: str
    tenant_id: str = "-"
    shelf: str = "a"
    state: Literal["new", "worn"] = "new"
    pages: int = 0
    labels: list[str] = []
    lent: bool = False
    weight: float = 1.0
    note: str | None = None
    anything: Any = None
    bought_at: datetime
    lender_token: str = ""
    cover: bytes = b""


@document("books/{book_id}/leaves/{id}", tenant="tenant_id", indexes=[Index("number")], access=_READERS)
class Leaf(Document, rename="camel"):
    """A leaf of a book."""

    id: str
    book_id: str
    tenant_id: str = "-"
    number: int


@document("rules/{id}", indexes=[Index("word")])
class Rule(Document):
    """What all readers keep to; nobody's own."""

    id: str
    word: str


@document("loans/{id}", tenant="tenant_id")
class Loan(Document):
    """Only the service reads these."""

    id: str
    tenant_id: str = "-"


def build(context: Context) -> Parts:
    return Parts()


service = Service(name="library", summary="Keeps books.", documents=[Book, Leaf, Rule, Loan], build=build)
