"""Keys that are read from documents are those of their ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadIdError
from holdfast.model import Document, document, schema_of
from holdfast.model.path import join_key, join_keys


@document("things/{id}")
class Thing(Document):
    id: str


@document("things/{thing}/parts/{id}")
class Part(Document):
    thing: str
    id: str


ALPHABET = "ABZaz09:@+=~._-/ \x00\x01\ud800é"
IDS: st.SearchStrategy[Any] = (
    st.text(ALPHABET, max_size=4) | st.text("a:._~é", min_size=115, max_size=505)
    | st.sampled_from([None, 7, b"x", ".", "..", "__x__", "__", "x" * 500, "x" * 501, "é" * 251])
)  # fmt: skip


def outcome(act: Callable[[], object]) -> Any:
    try:
        return act()
    except BadIdError as fault:
        return type(fault), str(fault), fault.path


@given(IDS)
def test_a_key_of_one_id_is_the_id_or_refused_alike(value: Any) -> None:
    read = outcome(lambda: schema_of(Thing).key_of(Thing(id=value)))
    assert read == outcome(lambda: join_key((value,), ("id",)))


@given(IDS, IDS)
def test_a_key_of_several_ids_is_joined_of_them_or_refused_alike(thing: Any, value: Any) -> None:
    read = outcome(lambda: schema_of(Part).key_of(Part(thing=thing, id=value)))
    assert read == outcome(lambda: join_key((thing, value), ("thing", "id")))


@given(IDS)
def test_an_id_that_is_found_plain_is_one_that_the_closer_look_accepts(value: Any) -> None:
    single = outcome(lambda: join_key((value,), ("id",)))
    of_two = outcome(lambda: join_key((value, "x"), ("id", "other")))
    assert isinstance(single, str) == isinstance(of_two, str)
    assert isinstance(single, str) or single == of_two


KEYS = st.lists(st.text(ALPHABET, max_size=4) | st.tuples(IDS) | st.tuples(IDS, IDS), max_size=3)


@given(KEYS, st.sampled_from([("id",), ("thing", "id")]))
def test_many_keys_are_joined_one_by_one_or_refused_alike(many: list[Any], names: tuple[str, ...]) -> None:
    singly = outcome(lambda: [join_key((one,) if isinstance(one, str) else one, names) for one in many])
    assert outcome(lambda: join_keys(many, names)) == singly
