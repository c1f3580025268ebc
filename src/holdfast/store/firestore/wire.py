"""Firestore's messages as plain protobuf classes: the wrapped ones cost several times as much per value."""

from __future__ import annotations

from typing import Any, Final

from google.cloud.firestore_v1 import types
from google.protobuf.timestamp_pb2 import Timestamp as Timestamp


def _plain(wrapped: Any) -> Any:
    return type(wrapped.pb(wrapped()))


ArrayValue: Final = _plain(types.ArrayValue)
BatchGetDocumentsRequest: Final = _plain(types.BatchGetDocumentsRequest)
BatchWriteRequest: Final = _plain(types.BatchWriteRequest)
CommitRequest: Final = _plain(types.CommitRequest)
Cursor: Final = _plain(types.Cursor)
Document: Final = _plain(types.Document)
DocumentMask: Final = _plain(types.DocumentMask)
ListenRequest: Final = _plain(types.ListenRequest)
MapValue: Final = _plain(types.MapValue)
Precondition: Final = _plain(types.Precondition)
RunAggregationQueryRequest: Final = _plain(types.RunAggregationQueryRequest)
RunQueryRequest: Final = _plain(types.RunQueryRequest)
StructuredAggregationQuery: Final = _plain(types.StructuredAggregationQuery)
StructuredQuery: Final = _plain(types.StructuredQuery)
Target: Final = _plain(types.Target)
Value: Final = _plain(types.Value)
Write: Final = _plain(types.Write)

EQUAL: Final = types.StructuredQuery.FieldFilter.Operator.EQUAL
OPERATORS: Final = {
    "==": EQUAL,
    "!=": types.StructuredQuery.FieldFilter.Operator.NOT_EQUAL,
    "<": types.StructuredQuery.FieldFilter.Operator.LESS_THAN,
    "<=": types.StructuredQuery.FieldFilter.Operator.LESS_THAN_OR_EQUAL,
    ">": types.StructuredQuery.FieldFilter.Operator.GREATER_THAN,
    ">=": types.StructuredQuery.FieldFilter.Operator.GREATER_THAN_OR_EQUAL,
    "in": types.StructuredQuery.FieldFilter.Operator.IN,
    "not-in": types.StructuredQuery.FieldFilter.Operator.NOT_IN,
    "array-contains": types.StructuredQuery.FieldFilter.Operator.ARRAY_CONTAINS,
}
IS_NULL: Final = types.StructuredQuery.UnaryFilter.Operator.IS_NULL
AND: Final = types.StructuredQuery.CompositeFilter.Operator.AND
ASCENDING: Final = types.StructuredQuery.Direction.ASCENDING
DESCENDING: Final = types.StructuredQuery.Direction.DESCENDING


def nanoseconds(moment: Any) -> int:
    """Return a document's version: the time of its last change."""
    return int(moment.seconds) * 1_000_000_000 + int(moment.nanos)


def instant(version: int) -> Any:
    seconds, nanos = divmod(version, 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos)
