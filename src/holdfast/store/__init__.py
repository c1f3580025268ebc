"""Store and query documents: one port, three engines."""

from holdfast.store.catalog import Catalog
from holdfast.store.commit import (
    ABSENT,
    PRESENT,
    Committed,
    Fence,
    Snapshot,
    Version,
    Write,
    check,
    create,
    create_encoded,
    create_many,
    delete,
    encoded,
    patch,
    put,
    upsert,
)
from holdfast.store.port import Capabilities, Engine, MigrationRequest, Subscription
from holdfast.store.query import Query, QueryPage
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction
from holdfast.store.transforms import ArrayRemove, ArrayUnion, Increment, Maximum, Minimum

__all__ = [
    "ABSENT",
    "PRESENT",
    "ArrayRemove",
    "ArrayUnion",
    "Capabilities",
    "Catalog",
    "Committed",
    "Engine",
    "Fence",
    "Increment",
    "Maximum",
    "MigrationRequest",
    "Minimum",
    "Query",
    "QueryPage",
    "Snapshot",
    "Store",
    "Subscription",
    "Transaction",
    "Version",
    "Write",
    "check",
    "create",
    "create_encoded",
    "create_many",
    "delete",
    "encoded",
    "patch",
    "put",
    "upsert",
]
