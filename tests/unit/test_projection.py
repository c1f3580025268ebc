"""Rows and responses made of documents."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.projection import project


class Person(msgspec.Struct):
    name: str
    secret: str

    @property
    def initial(self) -> str:
        return self.name[0]


class PersonRow(msgspec.Struct):
    name: str
    initial: str
    place: str


def test_a_row_has_the_fields_it_names_and_what_is_given() -> None:
    ann = Person("ann", "1234")
    assert project(ann, PersonRow, place="here") == PersonRow("ann", "a", "here")
    assert project(ann, PersonRow, place="here", name="Ann").name == "Ann"


def test_a_field_that_neither_has_is_an_error() -> None:
    with pytest.raises(TypeError, match="place"):
        project(Person("ann", "1234"), PersonRow)
