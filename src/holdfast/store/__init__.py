"""Keep and find documents: one port, three engines."""

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
    delete,
    encoded,
    patch,
    put,
    upsert,
)
from holdfast.store.port import Capabilities, Engine, Wake
from holdfast.store.query import Page, Query
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction
from holdfast.store.transforms import Add, Discard, Increment, Maximum, Minimum

__all__ = [
    "ABSENT",
    "PRESENT",
    "Add",
    "Capabilities",
    "Catalog",
    "Committed",
    "Discard",
    "Engine",
    "Fence",
    "Increment",
    "Maximum",
    "Minimum",
    "Page",
    "Query",
    "Snapshot",
    "Store",
    "Transaction",
    "Version",
    "Wake",
    "Write",
    "check",
    "create",
    "create_encoded",
    "delete",
    "encoded",
    "patch",
    "put",
    "upsert",
]
