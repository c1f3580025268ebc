"""A create or blind patch that comes alone is made by what a batch of one would be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.kit.outbox import Delivery
from holdfast.model import Document, document, schema_of
from holdfast.store import Catalog, Increment, Write, create, patch, put
from holdfast.store.commit import Commit, Expect, Fence, Version
from holdfast.store.postgres.batch import Batch
from holdfast.store.postgres.lone_write import LoneStatements, lone_write
from holdfast.store.postgres.statement import PostgresTable, render
from holdfast.store.sql.write_batch import independent_writes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@document("notes/{id}")
class Note(Document):
    id: str
    text: str = ""
    count: int = 0


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


def _assert_as_batch_of_one(write: Write, *, tenant: str | None) -> None:
    schema = write.schema
    mappings = {schema: PostgresTable(schema, Catalog([schema.cls]).table(schema))}
    commits = [Commit((write,), tenant)]
    batch = Batch(
        mappings, lambda: 7, independent=independent_writes(commits, frozenset()), bulk={}, counts={}
    )
    batch.decide(commits)
    text, values = render(batch.changes(), 7, f"me {mappings[schema].table}")
    made = lone_write(commits, frozenset())
    assert made is not None
    statement = LoneStatements("me").of(made, commits[0], mappings[schema])
    assert (statement.text, list(statement.values(made, commits[0], 7))) == (text, values)


@pytest.mark.parametrize("made", [Note(id="n", text="ż"), Line(note="n", id="l"), delivery("d")])
def test_the_statement_and_values_of_a_create_are_those_of_a_batch_of_one(made: Document) -> None:
    write = create(made)
    assert lone_write([Commit((write,))], frozenset()) is write
    _assert_as_batch_of_one(write, tenant=None)


@pytest.mark.parametrize("tenant", [None, "acme"])
@pytest.mark.parametrize("expect", [None, Fence(3), Version(5)])
def test_the_statement_and_values_of_a_patch_are_those_of_a_batch_of_one(
    expect: Expect, tenant: str | None
) -> None:
    changes = {"status": "delivered", "finished_at": NOON, "next_attempt_at": None}
    _assert_as_batch_of_one(patch(Delivery, "d", changes=changes, expect=expect), tenant=tenant)


def test_each_kind_of_patch_has_its_statement() -> None:
    schema = schema_of(Delivery)
    mapping = PostgresTable(schema, Catalog([Delivery]).table(schema))
    statements, made = LoneStatements("me"), set()
    for tenant in (None, "acme"):
        for changes in ({"reason": "a"}, {"reason": "b"}, {"reason": "a", "status": "dead"}):
            commit = Commit((patch(Delivery, "d", changes=changes),), tenant)
            one = lone_write([commit], frozenset())
            assert one is not None
            made.add(statements.of(one, commit, mapping))
    assert len({statement.text for statement in made}) == len(made) == 4


def test_other_batches_are_none() -> None:
    note, other = create(Note(id="a")), create(Note(id="b"))
    patched = patch(Note, "a", changes={"text": "b"})
    assert lone_write([Commit((note,)), Commit((other,))], frozenset()) is None
    assert lone_write([Commit((note, other))], frozenset()) is None
    assert lone_write([Commit((put(Note(id="a")),))], frozenset()) is None
    assert lone_write([Commit((patch(Note, "a", changes={"count": Increment(1)}),))], frozenset()) is None
    for write in (note, patched):
        assert lone_write([Commit((write,))], frozenset()) is not None
        assert lone_write([Commit((write,))], frozenset([schema_of(Note)])) is None
    assert lone_write([], frozenset()) is None
