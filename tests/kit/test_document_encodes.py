"""How often documents are encoded: once for each that is stored, whatever was done with it on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from holdfast.app import open_store
from holdfast.kit.inbox import Inbox, InboxItem, InboxQueue, Source, Verified
from holdfast.kit.metering import METER_MODELS, Fact, Recorded, record_facts
from holdfast.kit.outbox import OUTBOX_MODELS, Endpoint, Event, Outbox
from holdfast.model import Document, document, schema
from holdfast.store import Increment, Store, create, patch, put

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@document("tallies/{id}")
class Tally(Document):
    id: str
    count: int = 0


DOCUMENTS: list[type[Document]] = [Tally, InboxItem, InboxQueue, *METER_MODELS.all, *OUTBOX_MODELS.all]
Encodes = Counter[str]


class CountingEncoder:
    """The documents' encoder, which counts by class."""

    def __init__(self, encodes: Encodes) -> None:
        self._encodes, self._encoder = encodes, msgspec.json.Encoder()

    def encode(self, document: Any) -> bytes:
        self._encodes[type(document).__name__] += 1
        return self._encoder.encode(document)


@pytest.fixture
def encodes(monkeypatch: pytest.MonkeyPatch) -> Encodes:
    counted: Encodes = Counter()
    monkeypatch.setattr(schema, "_ENCODER", CountingEncoder(counted))
    return counted


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    opened = await open_store(sqlite_url, DOCUMENTS)
    await opened.migrate()
    yield opened
    await opened.close()


async def test_a_written_document_is_encoded_once(store: Store, encodes: Encodes) -> None:
    await store.commit(create(Tally(id="one")))
    assert encodes == {"Tally": 1}
    await store.commit(patch(Tally, "one", changes={"count": Increment(1)}))
    assert encodes == {"Tally": 2}
    await store.commit(put(Tally(id="one", count=5)))
    assert encodes == {"Tally": 3}
    await store.get(Tally, "one")
    assert encodes == {"Tally": 3}


async def test_each_event_sent_is_encoded_once_for_each_endpoint(store: Store, encodes: Encodes) -> None:
    endpoints = [
        Endpoint(id=name, url="http://127.0.0.1:9/", created_at=store.clock.now()) for name in ("a", "b")
    ]
    await store.tenant("-").commit(*map(create, endpoints))
    encodes.clear()
    events = [Event(id=f"e{n}", type="thing.made", body=b"{}") for n in range(10)]
    await Outbox(store).send_many(events, endpoints)
    assert encodes == {"Delivery": 20}


async def test_the_documents_of_a_batch_are_prepared_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint(id="a", url="http://127.0.0.1:9/", created_at=store.clock.now())
    await store.tenant("-").commit(create(endpoint))
    singly = Counter[str]()
    prepare = schema.Schema.prepare

    def counted(self: schema.Schema[Any], document: Any) -> schema.Prepared:
        singly[self.name] += 1
        return prepare(self, document)

    monkeypatch.setattr(schema.Schema, "prepare", counted)
    await Outbox(store).send_many([Event(type="thing.made", body=b"{}") for _ in range(10)], [endpoint])
    facts = [Fact(tenant_id="t", name=f"together-{n}", metrics={"calls": 1}, at=NOON) for n in range(10)]
    await record_facts(store.privileged(), facts)
    assert singly.keys() <= {"UsageSum"}


async def test_a_fact_is_encoded_once_and_a_sum_once_for_all_facts(store: Store, encodes: Encodes) -> None:
    def facts(start: int) -> list[Fact]:
        return [
            Fact(tenant_id=f"encoded-{n % 2}", name=f"f{n}", metrics={"calls": 1, "tokens": 7}, at=NOON)
            for n in range(start, start + 100)
        ]

    async def record(start: int) -> Recorded:
        encodes.clear()
        return await record_facts(store.privileged(), facts(start))

    assert await record(0) == Recorded(100, 0)
    assert encodes == {"UsageEvent": 100, "UsageSum": 4}
    assert await record(0) == Recorded(0, 100)
    assert encodes == {"UsageEvent": 100}
    assert await record(100) == Recorded(100, 0)
    assert encodes == {"UsageEvent": 100}, "sums that move by as much as before are not encoded again"


class AnyMessage:
    """Takes every message; its id is in a header."""

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(headers["x-name"])


async def test_a_received_message_is_encoded_once(store: Store, encodes: Encodes) -> None:
    inbox, source = Inbox(store), Source(name="any", verifier=AnyMessage())
    assert not (await inbox.receive(source, {"x-name": "m1"}, b"{}")).duplicate
    assert encodes == {"InboxItem": 1}
