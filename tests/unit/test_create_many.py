"""Many creates made together are those that `create` makes one by one, or its error."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.model import Claim, CompositeId, Document, Index, ProvidedId, UlidId, document, schema_of
from holdfast.store import create, create_many


@document(
    "jobs/{id}",
    tenant="tenant_id",
    indexes=[Index("name"), Index("labels[]")],
    claim=Claim(due="due_at", fence="fence", lane="lane"),
)
class Job(Document, rename="camel"):
    id: str
    tenant_id: str
    lane: str = "lane"
    name: str = ""
    labels: list[str] = []
    text: str = ""
    due_at: datetime | None = None
    fence: int = 0


@document("pairs/{id}", id=CompositeId("left", "right"), tenant="left", indexes=[Index("text")])
class Pair(Document):
    id: str = ""
    left: str
    right: str
    text: str = ""


@document("spans/{parent}/parts/{id}", path_only=["parent"])
class Part(Document):
    parent: str
    id: str
    text: str = ""


@document("spans/{parent}/lines/{id}", id=ProvidedId(pattern="[a-z]+"))
class Line(Document):
    parent: str
    id: str


@document("ulids/{id}", id=UlidId())
class Ulid(Document):
    id: str = ""


IDS: st.SearchStrategy[Any] = st.sampled_from(
    ["a", "b1", "", "a/b", "\x01", "..", "__x__", "é", "\ud800", "x" * 1_600, None, 7, []]
)
TEXTS: st.SearchStrategy[Any] = st.sampled_from(
    ["", "plain", 'quoted "', "back\\slash", "\0", "\ud800", "é" * 900, "x" * 2_400, "x" * 1_100_000, 7, None]
)
DOCUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "Job": st.builds(
        Job, id=IDS, tenant_id=IDS, lane=IDS, name=TEXTS, labels=st.lists(TEXTS, max_size=2), text=TEXTS
    ),
    "Pair": st.builds(Pair, id=st.sampled_from(["", "a_b", "a_a", 7]), left=IDS, right=IDS, text=TEXTS),
    "Part": st.builds(Part, parent=IDS, id=IDS, text=TEXTS),
    "Line": st.builds(Line, parent=IDS, id=IDS),
}
VALID: dict[str, Document] = {
    "Job": Job(id="a", tenant_id="t", name="n", labels=["l"]),
    "Pair": Pair(left="a", right="b"),
    "Part": Part(parent="a", id="b"),
    "Line": Line(parent="a", id="b"),
}


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (HoldfastError, TypeError, AttributeError) as fault:
        return type(fault), str(fault), getattr(fault, "path", None)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_creates_made_together_are_those_made_one_by_one(name: str) -> None:
    valid = st.builds(deepcopy, st.just(VALID[name]))

    @given(st.lists(valid | valid | DOCUMENTS[name], max_size=4))
    def compare(documents: list[Document]) -> None:
        alone, together = deepcopy(documents), deepcopy(documents)
        assert outcome(lambda: create_many(together)) == outcome(lambda: [create(one) for one in alone])

    compare()


@pytest.mark.parametrize("name", ["Job", "Pair", "Line"])
def test_valid_documents_of_one_class_are_prepared_together(name: str) -> None:
    schema = schema_of(type(VALID[name]))
    together = schema.prepare_new([deepcopy(VALID[name]) for _ in range(3)])
    assert together == [schema.prepare(create_of(VALID[name])) for _ in range(3)]


def create_of(given: Document) -> Document:
    made = deepcopy(given)
    schema_of(type(made)).assign_id(made)
    return made


def test_documents_of_several_classes_are_created_too() -> None:
    first, last = Ulid(), Ulid()
    writes = create_many([first, Line(parent="a", id="b"), last])
    assert [write.schema.name for write in writes] == ["Ulid", "Line", "Ulid"]
    assert [write.key for write in writes] == [first.id, "a\x01b", last.id]


def test_ids_are_generated_for_each_document() -> None:
    given = [Ulid() for _ in range(100)]
    assert {write.key for write in create_many(given)} == {one.id for one in given}
    assert len({one.id for one in given}) == 100


def test_no_documents_make_no_writes() -> None:
    assert create_many([]) == []
