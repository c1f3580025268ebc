"""The engine on Google Firestore: no server to run, native values, precondition commits."""

from __future__ import annotations

from holdfast.store.catalog import Catalog
from holdfast.store.firestore.address import parse_address
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.deployed_schema import check_declarations
from holdfast.store.firestore.engine import FirestoreEngine
from holdfast.store.port import Engine

__all__ = ["connect"]


async def connect(url: str, catalog: Catalog) -> Engine:
    """Use the database of `firestore://project[?database=NAME][&emulator=host:port]`.

    Example: `store = Store(await connect("firestore://my-project", Catalog([Run])))`
    """
    check_declarations(catalog)
    return FirestoreEngine(FirestoreClient(parse_address(url)), catalog)
