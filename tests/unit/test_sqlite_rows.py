"""The rows of one SQLite statement are those that the documents would have singly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import Document, Index, document, schema_of
from holdfast.store.sqlite.statements import SqliteTable

AT = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
# Equal times are one object, several, or the same moment in another zone.
TIMES = st.sampled_from(
    [None, AT, AT.replace(), AT.astimezone(timezone(timedelta(hours=2))), AT + timedelta(microseconds=1)]
)


@document("visits/{id}", indexes=[Index("came", "went")])
class Visit(Document):
    id: str
    came: datetime | None
    went: datetime | None


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=20))
def test_many_rows_bind_what_each_of_them_binds(times: list[tuple[datetime | None, datetime | None]]) -> None:
    schema = schema_of(Visit)
    table = SqliteTable(schema, "visits")
    rows = [
        schema.prepare(Visit(id=f"v{number}", came=came, went=went))
        for number, (came, went) in enumerate(times)
    ]
    assert table.inserted(*rows, version=7) == [
        value for row in rows for value in table.inserted(row, version=7)
    ]
