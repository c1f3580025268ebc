"""The quick test of index entries passes only what the exact one passes."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import InvalidError
from holdfast.model import Document, Index, document, schema_of
from holdfast.model.index_entries import IndexEntries


@document("entries/{id}", indexes=[Index("text", "maybe", "number"), Index("either"), Index("raw")])
class Entry(Document):
    id: str
    text: str = ""
    maybe: str | None = None
    number: int = 0
    either: str | int | None = None
    raw: bytes = b""
    rest: str = ""


CHARACTERS = st.sampled_from(["a", "\0", "\\", "\\u0000", '"', "é", "€", "😀", "\n"])
TEXTS = st.builds(lambda one, count: one * count, CHARACTERS, st.integers(0, 1_300))


def outcome(act: Any, *arguments: Any) -> Any:
    try:
        return act(*arguments)
    except InvalidError as fault:
        return type(fault), str(fault), fault.path


@given(
    st.sampled_from(["a", "a" * 120, "é" * 250]),
    TEXTS,
    st.none() | TEXTS,
    st.none() | TEXTS | st.integers(0, 9),
    TEXTS,
)
@example("é" * 250, "😀" * 350, None, None, "")
@example("a", "\0", None, None, "x" * 3_000)
def test_long_documents_are_refused_exactly_where_an_entry_is_too_long_or_has_nul(
    id: str, text: str, maybe: str | None, either: str | int | None, rest: str
) -> None:
    schema = schema_of(Entry)
    given = Entry(id=id, text=text, maybe=maybe, either=either, raw=text.encode()[:1_000], rest=rest)
    values = schema.values(given)
    entries = IndexEntries(schema.columns, schema.indexes)

    def check_exactly() -> None:
        entries._check_values(values)
        entries._check_sizes(values, id)

    made = outcome(schema.prepare, given)
    assert (made if isinstance(made, tuple) else None) == outcome(check_exactly)
