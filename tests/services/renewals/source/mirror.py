"""What is mirrored from a source: taken over, counted and looked at."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Document, schema_of
from holdfast.services.renewals.feeding.importing import Import
from holdfast.services.renewals.feeding.reports import TableReport
from holdfast.services.renewals.feeding.sources import open_source
from holdfast.services.renewals.models import TABLES
from holdfast.store import Query, Store
from tests.services.renewals.platform import Platform

RESIDENTS = 60

engines = pytest.mark.parametrize("store_url", ["sqlite", "postgres", "firestore"], indirect=True)
both = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


async def take(store: Store, source: Platform, **more: Any) -> dict[str, TableReport]:
    made = Import(store, open_source(source.url))
    return {one.table: one for one in await made.run(**more)}


def sums(reports: dict[str, TableReport]) -> dict[str, int]:
    names = ("created", "updated", "removed")
    return {name: sum(getattr(one, name) for one in reports.values()) for name in names} | {
        "bad": sum(len(one.bad) for one in reports.values())
    }


NOTHING = {"created": 0, "updated": 0, "removed": 0, "bad": 0}


async def everything(store: Store) -> dict[str, Document]:
    """All given rows of the portfolio, by table and id, each with its version."""
    found = {}
    for table, cls in TABLES.items():
        fields = [field.column.path for field in schema_of(cls).indexes[0].fields]
        async for item in store.scan(Query(cls).order_by(*fields).limit(500)):
            found[f"{table}/{item.key}@{item.version}"] = item.doc
    return found


async def contents(store: Store) -> dict[str, Document]:
    return {key.partition("@")[0]: doc for key, doc in (await everything(store)).items()}


async def doc(store: Store, cls: type[Document], id: str) -> Any:
    found = await store.get(cls, id)
    assert found is not None
    return found.doc
