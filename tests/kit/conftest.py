"""A fresh store per test, on each engine in turn, for the classes the test's module names.

A module says `DOCUMENTS = [Lease, ...]` and asks for `kit_store` (its time is the `clock` fixture's)
or for `live_store` (its time is the machine's). `kit_url` is where the same store can be opened again.
Tests of channels and of connections find a provider to work against besides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.kit.channels import Channels
from holdfast.kit.connections import Connections
from holdfast.kit.vault import Vault
from holdfast.model import Document
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.kit.fake_channel_provider import KEY, FakeChannelProvider
from tests.kit.fake_oauth_provider import OLD_KEY, FakeOAuthProvider


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
def kit_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store on one of the engines."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def documents(request: pytest.FixtureRequest) -> Sequence[type[Document]]:
    """The classes of the store: the module's `DOCUMENTS`."""
    named: Sequence[type[Document]] = request.module.DOCUMENTS
    return named


@pytest.fixture
async def kit_store(
    kit_url: str, documents: Sequence[type[Document]], clock: ManualClock
) -> AsyncIterator[Store]:
    """A migrated store that lives by the test's own clock."""
    store = await open_store(kit_url, documents, clock=clock)
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
async def live_store(kit_url: str, documents: Sequence[type[Document]]) -> AsyncIterator[Store]:
    """A migrated store that lives by the machine's clock."""
    store = await open_store(kit_url, documents)
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
def board(clock: ManualClock) -> FakeChannelProvider:
    return FakeChannelProvider(clock)


@pytest.fixture
def channels(kit_store: Store, board: FakeChannelProvider) -> Callable[..., Channels]:
    def make(**words: Any) -> Channels:
        said: dict[str, Any] = {"name": "calendar-sync", "keys": {"first": KEY}} | words
        return Channels(kit_store, board, **said)

    return make


@pytest.fixture
def vault() -> Vault:
    return Vault.from_settings(OLD_KEY)


@pytest.fixture
def registrar(clock: ManualClock) -> FakeOAuthProvider:
    return FakeOAuthProvider(clock)


@pytest.fixture
def connections(kit_store: Store, vault: Vault, registrar: FakeOAuthProvider) -> Connections:
    return Connections(kit_store, vault, {"registrar": registrar})
