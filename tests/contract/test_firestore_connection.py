"""A bad connection to Firestore: what failed is retried, what may be applied is reported as unknown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any

import pytest
from google.api_core.exceptions import ServiceUnavailable

from holdfast.errors import OutcomeUnknownError
from holdfast.model import Claim, Document, document
from holdfast.store import Catalog, Committed, Increment, Store, create, patch
from holdfast.store.firestore import connect
from holdfast.store.firestore.address import parse_address
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.engine import FirestoreEngine
from tests.kit.eventually import until

SOON_S = 20.0


@document("parcels/{id}")
class Parcel(Document):
    id: str
    weight: int = 0


class Relay:
    """A proxy between a store and the emulator; can drop data in either direction and close connections."""

    def __init__(self, emulator: str) -> None:
        host, _, port = emulator.rpartition(":")
        self._upstream = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.drops_questions = False
        self.drops_answers = False
        self.dropped = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            server.close()
            self.close_connections()
            await asyncio.gather(*self._pumps)

    def close_connections(self) -> None:
        """Close all connections and relay the next ones."""
        self.drops_questions = self.drops_answers = False
        self.dropped.clear()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        self._writers |= {writer, up_writer}
        for source, sink, is_question in ((reader, up_writer, True), (up_reader, writer, False)):
            pump = asyncio.create_task(self._pump(source, sink, is_question=is_question))
            self._pumps.add(pump)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_question: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.drops_questions if is_question else self.drops_answers:
                    self.dropped.set()
                else:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
        self._writers.discard(writer)


@pytest.fixture
async def direct(firestore_url: str) -> AsyncIterator[Store]:
    store = Store(await connect(firestore_url, Catalog([Parcel])))
    yield store
    await store.close()


@pytest.fixture
async def relay(firestore_url: str) -> Relay:
    return Relay(firestore_url.partition("emulator=")[2])


@pytest.fixture
async def relayed(firestore_url: str, relay: Relay) -> AsyncIterator[Store]:
    """A store over the relay, on the same project as `direct`."""
    async with relay.serving() as address:
        store = Store(
            await connect(f"{firestore_url.partition('?')[0]}?emulator={address}", Catalog([Parcel]))
        )
        await store.commit(create(Parcel(id="first")))
        yield store
        await store.close()


async def wait_until_created(store: Store, id: str) -> None:
    """Wait until the document exists."""
    while await store.get(Parcel, id) is None:
        pass


async def test_a_commit_that_never_arrived_is_sent_again(relayed: Store, relay: Relay, direct: Store) -> None:
    relay.drops_questions = True
    committing = asyncio.create_task(relayed.commit(create(Parcel(id="p"))))
    await asyncio.wait_for(relay.dropped.wait(), SOON_S)
    assert await direct.get(Parcel, "p") is None
    relay.close_connections()
    assert isinstance(await asyncio.wait_for(committing, SOON_S), Committed)
    assert await direct.get(Parcel, "p") is not None


async def test_a_commit_whose_answer_was_lost_is_reported_as_unknown_and_made_once(
    relayed: Store, relay: Relay, direct: Store
) -> None:
    relay.drops_answers = True
    committing = asyncio.create_task(relayed.commit(create(Parcel(id="q"))))
    await wait_until_created(direct, "q")
    relay.close_connections()
    with pytest.raises(OutcomeUnknownError):
        await asyncio.wait_for(committing, SOON_S)
    await relayed.commit(patch(Parcel, "q", changes={"weight": Increment(1)}))
    found = await direct.get(Parcel, "q")
    assert found is not None
    assert found.doc.weight == 1


async def test_a_batch_whose_answer_was_lost_is_unknown_one_by_one(
    relayed: Store, relay: Relay, direct: Store
) -> None:
    await direct.commit(create(Parcel(id="b")))
    relay.drops_answers = True
    settling = asyncio.create_task(relayed.settle([[create(Parcel(id=id))] for id in "abc"]))
    await wait_until_created(direct, "c")
    relay.close_connections()
    outcomes = await asyncio.wait_for(settling, SOON_S)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError] * 3


async def test_reads_are_repeated_over_a_new_connection(relayed: Store, relay: Relay) -> None:
    relay.drops_answers = True
    reading = asyncio.create_task(relayed.get(Parcel, "first"))
    await asyncio.wait_for(relay.dropped.wait(), SOON_S)
    relay.close_connections()
    assert await asyncio.wait_for(reading, SOON_S) is not None


async def test_a_subscription_is_notified_again_after_the_link_broke(
    relayed: Store, relay: Relay, direct: Store
) -> None:
    subscription = relayed.watch(Parcel)
    await direct.commit(create(Parcel(id="1")))
    assert await subscription.wait(SOON_S)
    relay.close_connections()
    await direct.commit(create(Parcel(id="2")))
    assert await subscription.wait(SOON_S)
    subscription.close()


@document("tasks/{id}", claim=Claim(due="due_at", fence="fence", owner="held_by", lane="place"))
class Task(Document):
    id: str
    place: str = ""
    due_at: datetime | None = None
    fence: int = 0
    held_by: str = ""


class LossyClient(FirestoreClient):
    """Sends each batch of writes, and can lose the response."""

    lossy = 0

    async def write_each(self, writes: Iterable[Any]) -> list[tuple[int, str, Any]]:
        answers = await super().write_each(writes)
        if self.lossy:
            self.lossy -= 1
            raise ServiceUnavailable("Socket closed")  # type: ignore[no-untyped-call]
        return answers


@pytest.fixture
async def lossy(firestore_url: str) -> AsyncIterator[tuple[Store, LossyClient]]:
    connection = LossyClient(parse_address(firestore_url))
    store = Store(FirestoreEngine(connection, Catalog([Task])))
    now = store.clock.now()
    await store.settle([create(Task(id=f"t{n}", place=f"p{n}", due_at=now))] for n in range(4))
    yield store, connection
    await store.close()


async def test_a_claim_whose_answer_was_lost_is_found_again_by_its_owner_and_by_nobody_else(
    lossy: tuple[Store, LossyClient],
) -> None:
    store, connection = lossy
    connection.lossy = 1
    taken = await store.claim_due(Task, limit=10, lease_s=60, owner="me")
    assert sorted(one.doc.id for one in taken) == ["t0", "t1", "t2", "t3"]
    # Taken anew: whatever was under way under the number before can't land.
    assert [(one.doc.fence, one.doc.held_by) for one in taken] == [(2, "me")] * 4
    assert await store.claim_due(Task, limit=10, lease_s=60, owner="me") == []
    assert await store.claim_due(Task, limit=10, lease_s=60, owner="you") == []


async def test_a_claim_is_found_again_later_where_the_link_stays_bad(
    lossy: tuple[Store, LossyClient],
) -> None:
    store, connection = lossy
    connection.lossy = 100
    assert await store.claim_due(Task, limit=10, lease_s=60, owner="me") == []
    connection.lossy = 0
    assert await store.claim_due(Task, limit=10, lease_s=60, owner="you") == []
    direct = await store.claim_due(Task, limit=10, lease_s=60, owner="me", only_lanes=["p1", "p2"])
    assert sorted(one.doc.id for one in direct) == ["t1", "t2"]
    rest = await store.claim_due(Task, limit=1, lease_s=60, owner="me", skip_lanes=["p0"])
    assert [one.doc.id for one in rest] == ["t3"]
    assert [one.doc.id for one in await store.claim_due(Task, limit=10, lease_s=60, owner="me")] == ["t0"]


async def test_a_lost_claim_that_another_has_taken_since_is_left_to_him(
    lossy: tuple[Store, LossyClient],
) -> None:
    store, connection = lossy
    connection.lossy = 100
    assert await store.claim_due(Task, limit=10, lease_s=0.001, owner="me") == []
    connection.lossy = 0
    theirs = await store.claim_due(Task, limit=10, lease_s=60, owner="you")
    assert len(theirs) == 4
    assert await store.claim_due(Task, limit=10, lease_s=60, owner="me") == []


async def test_a_lost_claim_that_names_no_owner_is_reported_as_unknown(
    lossy: tuple[Store, LossyClient],
) -> None:
    store, connection = lossy
    connection.lossy = 1
    with pytest.raises(OutcomeUnknownError):
        await store.claim_due(Task, limit=10, lease_s=60)


class GarbledClient:
    """A client that can't parse the next `count` responses: gRPC returns None for such."""

    def __init__(self, client: Any, *, count: int) -> None:
        self._client, self.count = client, count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _garbled(self, answer: Any) -> Any:
        self.count -= 1
        return None if self.count >= 0 else answer

    async def batch_write(self, **words: Any) -> Any:
        return self._garbled(await self._client.batch_write(**words))

    async def listen(self, **words: Any) -> Any:
        return Stream(self, await self._client.listen(**words))


class Stream:
    def __init__(self, garbling: GarbledClient, stream: Any) -> None:
        self._garbling, self._stream = garbling, stream

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for answer in self._stream:
            yield self._garbling._garbled(answer)

    def cancel(self) -> None:
        self._stream.cancel()


async def test_a_claim_whose_answer_cant_be_read_is_found_again(lossy: tuple[Store, LossyClient]) -> None:
    store, connection = lossy
    connection._client = GarbledClient(connection._client, count=1)
    assert len(await store.claim_due(Task, limit=10, lease_s=60, owner="me")) == 4


async def test_a_subscription_is_notified_after_an_answer_that_cant_be_read(
    lossy: tuple[Store, LossyClient], firestore_url: str
) -> None:
    store, connection = lossy
    garbling = connection._client = GarbledClient(connection._client, count=1)
    subscription, other = store.watch(Task), Store(await connect(firestore_url, Catalog([Task])))
    await until(lambda: garbling.count < 0)
    await other.commit(create(Task(id="new", place="p9")))
    assert await subscription.wait(SOON_S)
    subscription.close()
    await other.close()
