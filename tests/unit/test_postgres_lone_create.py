"""A create that comes alone is made by what a batch of one would be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.kit.outbox import Delivery
from holdfast.model import Document, document, schema_of
from holdfast.store import Catalog, create, patch, put
from holdfast.store.commit import Commit
from holdfast.store.postgres.batch import Batch
from holdfast.store.postgres.lone_create import LoneCreate, lone_create
from holdfast.store.postgres.statement import PostgresTable, render
from holdfast.store.sql.write_batch import independent_writes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@document("notes/{id}")
class Note(Document):
    id: str
    text: str = ""


@document("notes/{note}/lines/{id}")
class Line(Document):
    note: str
    id: str
    text: str = ""


def delivery(id: str) -> Delivery:
    return Delivery(
        id=id,
        event_id="e",
        endpoint_id="ep",
        event_type="thing.made",
        body=b"{}",
        occurred_at=NOON,
        created_at=NOON,
    )


@pytest.mark.parametrize("made", [Note(id="n", text="ż"), Line(note="n", id="l"), delivery("d")])
def test_its_statement_and_values_are_those_of_a_batch_of_one(made: Document) -> None:
    schema, write = schema_of(type(made)), create(made)
    mappings = {schema: PostgresTable(schema, Catalog([type(made)]).table(schema))}
    commits = [Commit((write,))]
    assert lone_create(commits, frozenset()) is write
    batch = Batch(
        mappings, lambda: 7, independent=independent_writes(commits, frozenset()), bulk={}, counts={}
    )
    batch.decide(commits)
    text, values = render(batch.changes(), 7, "me t")
    lone = LoneCreate(mappings[schema], "me t")
    assert write.prepared is not None
    assert (lone.text, list(lone.values(write.prepared, 7))) == (text, values)


def test_other_batches_are_none() -> None:
    note, other = create(Note(id="a")), create(Note(id="b"))
    assert lone_create([Commit((note,)), Commit((other,))], frozenset()) is None
    assert lone_create([Commit((note, other))], frozenset()) is None
    assert lone_create([Commit((put(Note(id="a")),))], frozenset()) is None
    assert lone_create([Commit((patch(Note, "a", changes={"text": "b"}),))], frozenset()) is None
    assert lone_create([Commit((note,))], frozenset([schema_of(Note)])) is None
    assert lone_create([], frozenset()) is None
