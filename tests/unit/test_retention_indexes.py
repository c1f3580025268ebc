"""The index by which retention finds what is to be deleted."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import pytest

from holdfast.errors import DeclarationError
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Delivery
from holdfast.model import Document, Index, Retention, document, schema_of
from holdfast.store.postgres.dialect import DIALECT as POSTGRES
from holdfast.store.sql.dialect import Dialect
from holdfast.store.sql.tables import tables_for
from holdfast.store.sqlite.dialect import DIALECT as SQLITE


class _Ending(Document, rename="camel"):
    id: str
    state: Literal["open", "done"] = "open"
    at: datetime
    ended_at: datetime | None = None


def _names(*indexes: Index, retention: Retention) -> list[str]:
    class Ending(_Ending, rename="camel"):
        pass

    return [
        one.name
        for one in schema_of(document("ends/{id}", indexes=indexes, retention=retention)(Ending)).indexes
    ]


def test_it_leaves_out_what_has_no_end_where_the_field_may_be_null() -> None:
    assert _names(retention=Retention("ended_at")) == ["endedAt_with_endedAt"]
    assert _names(retention=Retention("ended_at", when={"state": "done"})) == ["state_endedAt_with_endedAt"]
    assert _names(retention=Retention("at")) == ["at"]


def test_a_declared_index_that_serves_it_is_complete_and_the_only_one() -> None:
    assert _names(Index("ended_at"), retention=Retention("ended_at")) == ["endedAt"]
    assert _names(Index("-at"), retention=Retention("at")) == ["at_desc"]
    ended = Retention("ended_at", when={"state": "done"})
    assert _names(Index("state", "-ended_at"), retention=ended) == ["state_endedAt_desc"]
    assert _names(Index("ended_at", "state"), retention=ended) == [
        "endedAt_state",
        "state_endedAt_with_endedAt",
    ]


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES])
@pytest.mark.parametrize("kind", [Delivery, InboxItem])
def test_an_unfinished_delivery_or_message_has_no_entry_in_it(kind: type[Document], dialect: Dialect) -> None:
    (main,) = tables_for(schema_of(kind), "t", dialect)
    finds_finished = [index for index in main.indexes if '"finishedAt"' in " ".join(index.terms)]
    assert [index.where.partition(" AND ")[0] for index in finds_finished] == ['"finishedAt" IS NOT NULL']


def test_a_sparse_index_of_its_own_does_not_stand_in_for_it() -> None:
    ended = Retention("ended_at", when={"state": "done"})
    by_state = Index("state", "ended_at", sparse="state")
    assert _names(by_state, retention=ended) == ["state_endedAt_with_state", "state_endedAt_with_endedAt"]


@pytest.mark.parametrize("field", ["b", "labels", "id"])
def test_sparse_names_a_plain_field_of_the_index(field: str) -> None:
    with pytest.raises(DeclarationError, match="sparse"):
        Index("a", "labels[]", sparse=field)
