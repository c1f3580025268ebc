"""A note in a tenant, for people to try to get at."""

from __future__ import annotations

import pytest

from holdfast.store import Store, create
from tests.kit.access.notes import Note


@pytest.fixture
async def acme(kit_store: Store) -> Store:
    store = kit_store.tenant("acme")
    await store.commit(create(Note(id="n1")))
    return store
