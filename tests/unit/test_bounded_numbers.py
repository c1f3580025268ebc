"""A number that its declaration keeps inside 64 bits is refused by that declaration."""

from __future__ import annotations

from typing import Annotated

import pytest
from msgspec import Meta

from holdfast.errors import WrongTypeError
from holdfast.model import Document, document, schema_of

HUGE = 2**70


@document("shares/{id}")
class Share(Document):
    id: str
    percent: Annotated[int, Meta(ge=0, le=100)] = 0
    open_above: Annotated[int, Meta(ge=0)] = 0


@pytest.mark.parametrize("field", ["percent", "open_above"])
@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["above", "below"])
def test_a_number_out_of_bounds_is_refused_with_its_field(field: str, value: int) -> None:
    with pytest.raises(WrongTypeError) as refusal:
        schema_of(Share).prepare(Share(id="1", **{field: value}))
    assert refusal.value.path == field
