"""Literals of arrays: the server reads back what was written, whatever the texts contain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.limits import INTEGER_MAX, INTEGER_MIN
from holdfast.store.postgres.column_binding import integer_array, text_array

SPECIAL = ['"', "\\", "{", "}", ",", " ", "NULL", "null", "", '","', '\\"', "\t\n", "\x01", "'", "ż", "👩"]
texts = st.lists(
    st.one_of(
        st.none(),
        st.lists(st.sampled_from(SPECIAL), max_size=4).map("".join),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    ),
    max_size=8,
)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


integers = st.lists(
    st.one_of(st.none(), st.integers(INTEGER_MIN, INTEGER_MAX), st.sampled_from(Level)), max_size=8
)


def compare(url: str, lists: st.SearchStrategy[list[Any]], kind: str, literal: Callable[[Any], str]) -> None:
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url))

        @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
        @given(lists)
        def read_back(values: list[Any]) -> None:
            read = connection.fetchval(f"SELECT $1::text::{kind}[]", literal(values))
            assert runner.run(read) == values

        read_back()
        runner.run(connection.close())


def test_any_integers_are_read_back_as_they_were_written(postgres_url: str) -> None:
    compare(postgres_url, integers, "bigint", integer_array)


def test_any_texts_are_read_back_as_they_were_written(postgres_url: str) -> None:
    compare(postgres_url, texts, "text", text_array)


def test_plain_texts_are_joined_and_others_escaped() -> None:
    assert text_array(["a", "b c", ""]) == '{"a","b c",""}'
    assert text_array(["a", None]) == '{"a",NULL}'
    assert text_array(['"', "\\"]) == '{"\\"","\\\\"}'
    assert text_array([]) == "{}"
