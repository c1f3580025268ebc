"""What is mirrored from a source: taken over, counted and looked at."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Document
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.reports import TableReport
from holdfast.services.renewals.ingest.sources import open_source
from holdfast.store import Store
from tests.services.renewals.platform_schema import Platform, everything

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


async def contents(store: Store) -> dict[str, Document]:
    return {key.partition("@")[0]: doc for key, doc in (await everything(store)).items()}


async def doc(store: Store, cls: type[Document], id: str) -> Any:
    found = await store.get(cls, id)
    assert found is not None
    return found.doc
