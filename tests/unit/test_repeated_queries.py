"""A query whose shape is known takes a short way to its plan; both ways give the same, or refuse alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Literal

import hypothesis.strategies as st
from hypothesis import given

from holdfast.errors import HoldfastError
from holdfast.model import Document, Index, document
from holdfast.model.document import schema_of
from holdfast.store import Query, index_choice
from holdfast.store.plan import QueryPlan, resolve

FIELDS = ("text", "state", "number", "amount", "at", "flag", "maybe", "mixed", "day", "raw")


@document("planned/{id}", indexes=[Index(field, "-rank") for field in FIELDS])
class Planned(Document):
    id: str
    rank: int
    text: str
    state: Literal["open", "closed"]
    number: int
    amount: float
    at: datetime
    flag: bool
    maybe: str | None
    mixed: int | str
    day: date
    raw: bytes


values = st.one_of(
    st.text(), st.text(st.characters(max_codepoint=127)), st.sampled_from(["open", "\ud800", "a\0b", ""]),
    st.integers(), st.floats(), st.booleans(), st.none(), st.binary(), st.dates(),
    st.datetimes(timezones=st.sampled_from([UTC, None])), st.lists(st.integers()),
)  # fmt: skip


def result(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except HoldfastError as fault:
        return type(fault), str(fault)


@given(st.sampled_from(FIELDS), values)
def test_an_operand_passes_the_short_check_as_it_passes_the_complete_one(field: str, value: Any) -> None:
    column = schema_of(Planned).column(field)
    assert column is not None
    assert result(lambda: column.operand(value)) == result(lambda: column._checked_operand(value))


@given(st.sampled_from(FIELDS), values)
def test_a_repeated_query_has_the_plan_of_a_new_one(field: str, value: Any) -> None:
    def plan() -> tuple[Any, ...]:
        query = Query(Planned).where(field, "==", value).order_by("-rank")
        made: QueryPlan = resolve(query, tenant=None, privileged=False)
        shape = made.shape
        return made.equals, made.member, made.bounds, made.after, shape.order, shape.index, shape.plain

    index_choice.known_shapes.clear()
    new = result(plan)
    assert result(plan) == new


def test_a_shape_is_plain_only_where_each_filter_compares_one_type_with_one_value() -> None:
    def is_plain(query: Query[Planned]) -> bool:
        return resolve(query.order_by("-rank"), tenant=None, privileged=False).shape.plain

    assert is_plain(Query(Planned).where("text", "==", "a"))
    assert is_plain(Query(Planned).where("maybe", "==", None))
    assert not is_plain(Query(Planned).where("mixed", "==", "a"))
    assert not is_plain(Query(Planned).where("text", "in", ["a", "b"]))
