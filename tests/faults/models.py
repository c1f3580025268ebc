"""What the workers of the fault tests write."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Claim, Document, Index, document


@document("counters/{id}")
class Counter(Document):
    id: str
    value: int = 0


@document("seats/{id}")
class Seat(Document):
    id: str
    taken_by: str


@document("tasks/{id}", claim=Claim(due="due", owner="owner"))
class Task(Document):
    id: str
    due: datetime | None = None
    fence: int = 0
    owner: str = ""


@document("parts/{id}", indexes=[Index("round"), Index("round", "-batch"), Index("labels[]"), Index("text")])
class Part(Document):
    """One third of a batch: its commit holds all three or none."""

    id: str
    round: int
    batch: int
    text: str
    labels: list[str] = []


ALL: tuple[type[Document], ...] = (Counter, Seat, Task, Part)


@document("papers/{id}", indexes=[Index("year")])
class OldPaper(Document):
    """A collection as it was."""

    id: str
    year: int


@document("papers/{id}", indexes=[Index("year"), Index("rank", "-year"), Index("words[]")])
class NewPaper(Document):
    """The same collection after a release that added fields and indexes."""

    id: str
    year: int
    rank: int = 7
    words: tuple[str, ...] = ("none",)
