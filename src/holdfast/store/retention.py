"""What a collection's retention deletes: the query that finds it, and the writes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from holdfast.clock import to_us
from holdfast.model.document import Document
from holdfast.model.path import split_key
from holdfast.model.retention import Retention
from holdfast.model.schema import Schema
from holdfast.store.commit import Snapshot, Write, delete
from holdfast.store.query import Query

D = TypeVar("D", bound=Document)


def past_retention(
    cls: type[D], schema: Schema[D], retention: Retention, *, now: datetime, tenant: str | None
) -> Query[D]:
    """Return the query for documents past their retention: one tenant's, or all."""
    query = Query(cls)
    for field, value in retention.when.items():
        query = query.where(field, "==", value)
    cutoff: Any = retention.cutoff(now)
    column = schema.column(retention.field)
    if column is not None and column.kind == "integer":
        cutoff = to_us(cutoff) // 1000
    query = query.where(retention.field, "<", cutoff)
    if schema.path.nested and not (schema.tenant_is_parent and tenant):
        query = query.across_parents()
    return query


def deletion(item: Snapshot[Any], retention: Retention) -> tuple[Write, ...]:
    """Return the writes that delete a document together with its dependents."""
    dependents = retention.dependents(item.doc) if retention.dependents else ()
    own = delete(type(item.doc), *split_key(item.key), expect=item.unchanged)
    return (own, *(delete(kind, id) for kind, id in dependents))
