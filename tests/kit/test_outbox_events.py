"""The deliveries of one event are found by the beginning of their ids, also beside an earlier release."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.app import open_store
from holdfast.errors import StoreUnavailableError
from holdfast.kit.outbox import DELIVERY_CLAIM, Deliveries, Delivery, Endpoint, Event, Outbox, OutboxModels
from holdfast.kit.outbox.models import DELIVERY_INDEXES, OUTBOX_MODELS
from holdfast.kit.processes.decision import differs, release_of
from holdfast.model import Index, document, schema_of
from holdfast.store import Catalog, MigrationRequest, Store

DOCUMENTS = list(OUTBOX_MODELS.all)
AT = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
_DELIVERY = schema_of(Delivery).declared


@document(
    "holdfast_deliveries/{id}",
    tenant="tenant_id",
    indexes=[*DELIVERY_INDEXES, Index("event_id")],
    lifecycle=_DELIVERY.lifecycle,
    immutable=_DELIVERY.immutable,
    retention=_DELIVERY.retention,
    claim=DELIVERY_CLAIM,
    access=_DELIVERY.access,
)
class EarlierDelivery(Delivery, rename="camel"):
    """Deliveries as an earlier release declared them, which looked for those of an event by an index."""


EARLIER = OutboxModels(delivery=EarlierDelivery)
EARLIER_DOCUMENTS = [EarlierDelivery if cls is Delivery else cls for cls in DOCUMENTS]


def _endpoints(*ids: str, tenant: str = "-") -> list[Endpoint]:
    return [Endpoint(id=id, tenant_id=tenant, url="https://h.example", created_at=AT) for id in ids]


async def _send(store: Store, event_id: str, *endpoints: str, models: OutboxModels = OUTBOX_MODELS) -> None:
    outbox = Outbox(store, models=models)
    event = Event(id=event_id, type="t", body=b"{}")
    await outbox.send(event, _endpoints(*endpoints, tenant=store.tenant_id or "-"))


async def _of_event(store: Store, event_id: str, models: OutboxModels = OUTBOX_MODELS) -> list[str]:
    return [one.endpoint_id for one in await Deliveries(store, models=models).of_event(event_id)]


async def test_an_event_has_its_deliveries_and_none_of_events_with_longer_ids(kit_store: Store) -> None:
    await _send(kit_store, "order", "one", "two")
    await _send(kit_store, "order~1", "one", "three")
    await _send(kit_store, "order~1~2", "four")
    await _send(kit_store, "order-2", "one")
    await _send(kit_store, "orde", "one")
    assert await _of_event(kit_store, "order") == ["one", "two"]
    assert await _of_event(kit_store, "order~1") == ["one", "three"]
    assert await _of_event(kit_store, "order~1~2") == ["four"]
    assert await _of_event(kit_store, "order~") == []


async def test_all_deliveries_of_an_event_are_found_however_many(kit_store: Store) -> None:
    names = [f"ep-{number:03}" for number in range(130)]
    await _send(kit_store, "evt", *names)
    assert await _of_event(kit_store, "evt") == names


async def test_each_tenant_finds_its_own_deliveries_of_an_event_and_a_privileged_handle_all(
    kit_store: Store,
) -> None:
    await _send(kit_store.tenant("acme"), "evt", "theirs", "zeta")
    await _send(kit_store.tenant("other"), "evt", "ours")
    assert await _of_event(kit_store.tenant("acme"), "evt") == ["theirs", "zeta"]
    assert await _of_event(kit_store.tenant("other"), "evt") == ["ours"]
    assert await _of_event(kit_store.tenant("third"), "evt") == []
    assert await _of_event(kit_store.privileged(), "evt") == ["ours", "theirs", "zeta"]


@pytest.mark.parametrize("event_id", ["", "a/b", "x" * 600, "\0", "."])
async def test_what_can_be_no_events_id_has_no_deliveries(kit_store: Store, event_id: str) -> None:
    await _send(kit_store, "evt", "one")
    assert await _of_event(kit_store, event_id) == []


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_releases_with_and_without_the_index_find_each_others_deliveries(
    request: pytest.FixtureRequest, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    earlier, store = await open_store(url, EARLIER_DOCUMENTS), await open_store(url, DOCUMENTS)
    await earlier.migrate()
    await _send(earlier, "before", "one", "two", models=EARLIER)
    # Nothing changes beside an earlier release, and its index stays.
    assert await store.migrate(MigrationRequest(other_releases=True)) == []
    await _send(store, "after", "one", "two")
    for opened, models in ((earlier, EARLIER), (store, OUTBOX_MODELS)):
        for event_id in ("before", "after"):
            assert await _of_event(opened, event_id, models) == ["one", "two"]
    dropped = await store.migrate(MigrationRequest(drop=True))
    assert dropped == ["drop index holdfast_deliveries__eventId"]
    await _ask_without_index(earlier, engine)
    # One that is started on a store without it, after a rollback, builds it of what newer processes stored.
    assert await earlier.migrate() == ["create index holdfast_deliveries__eventId"]
    await _send(store, "between", "one")
    assert await _of_event(earlier, "after", EARLIER) == ["one", "two"]
    assert await _of_event(earlier, "between", EARLIER) == ["one"]
    await earlier.close()
    await store.close()


async def _ask_without_index(earlier: Store, engine: str) -> None:
    """PostgreSQL answers by a scan; SQLite is told which index to use, and refuses."""
    if engine == "postgres":
        assert await _of_event(earlier, "after", EARLIER) == ["one", "two"]
        return
    with pytest.raises(StoreUnavailableError, match="no such index"):
        await _of_event(earlier, "after", EARLIER)


def test_releases_with_and_without_the_index_store_deliveries_alike() -> None:
    """So neither has to fill columns that the other left out."""
    releases = [release_of(Catalog(classes), "1.0.0") for classes in (DOCUMENTS, EARLIER_DOCUMENTS)]
    assert not differs(*releases)
