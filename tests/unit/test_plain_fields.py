"""The generated test of plain fields: any name that a field can have, and none at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import inspect as mi

from holdfast.errors import WrongTypeError
from holdfast.model.values import FieldChecks


def checks_of(fields: list[Any]) -> tuple[type[msgspec.Struct], FieldChecks]:
    cls = msgspec.defstruct("Mail", fields)
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    return cls, FieldChecks(info.fields)


@pytest.mark.parametrize("name", ["from", "class", "None", "v", "struct", "ünïcode", "ﬁeld"])
def test_a_field_is_checked_whatever_its_name_is(name: str) -> None:
    cls, checks = checks_of([(name, int), ("other", int)])
    assert checks.changes(cls(1, 2)) is None
    for values, path in (((2**63, 1), name), ((1, 2**63), "other"), ((2**63, 2**63), name)):
        with pytest.raises(WrongTypeError) as refused:
            checks.changes(cls(*values))
        assert refused.value.path == path


def test_a_field_inside_one_with_the_name_of_a_keyword_is_checked() -> None:
    inner, _ = checks_of([("import", int)])
    cls, checks = checks_of([("from", inner), ("to", inner)])
    assert checks.changes(cls(inner(1), inner(2))) is None
    for values, path in (((inner(2**63), inner(1)), "from.import"), ((inner(1), inner(2**63)), "to.import")):
        with pytest.raises(WrongTypeError) as refused:
            checks.changes(cls(*values))
        assert refused.value.path == path


def test_a_class_without_plain_fields_has_nothing_to_check() -> None:
    cls, checks = checks_of([("text", str)])
    assert not checks
    assert checks.changes(cls("a")) is None
