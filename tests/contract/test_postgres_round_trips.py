"""How many statements a commit costs on PostgreSQL: each is a round trip that a caller waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from holdfast.app import open_store
from holdfast.errors import NotFoundError, VersionConflictError
from holdfast.kit.metering import METER_MODELS, Fact, Meter, Recorded, record_facts
from holdfast.kit.outbox import OUTBOX_MODELS, Endpoint, Event, Outbox
from holdfast.model import Document, Index, document
from holdfast.store import Increment, Snapshot, Store, Write, check, create, patch
from holdfast.store.contract.models import ALL, Chore
from holdfast.store.port import ClaimRequest
from holdfast.store.postgres.engine import PostgresEngine
from holdfast.store.postgres.pool import ConnectionPool, PgConnection
from holdfast.store.postgres.statement import BATCHES
from holdfast.store.postgres.writer import MARKS_MAX, PostgresWriter
from holdfast.testing import ManualClock
from tests.kit.eventually import until
from tests.kit.outbox_fixture import dispatching, endpoint_at, receiving, send

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@document("pairs/{id}", tenant="tenant_id", indexes=[Index("first")])
class Pair(Document):
    id: str
    tenant_id: str
    first: int = 0
    second: int = 0


CLASSES: list[type[Document]] = [Pair, *ALL, *METER_MODELS.all, *OUTBOX_MODELS.all]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first words of all statements sent from now on."""
    sent: list[str] = []
    open_connection = ConnectionPool.open

    async def logged(self: ConnectionPool, **options: bool) -> PgConnection:
        connection = await open_connection(self, **options)
        connection.add_query_logger(lambda record: sent.append(record.query.split()[0]))
        return connection

    monkeypatch.setattr(ConnectionPool, "open", logged)
    return sent


@pytest.fixture
async def store(statements: list[str], postgres_url: str) -> AsyncIterator[Store]:
    opened = await open_store(f"{postgres_url}?writers=1", CLASSES)
    await opened.migrate()
    await opened.commit(create(Chore(id="warm")), create(Chore(id="other")))
    yield opened
    await opened.close()


async def test_a_create_is_one_statement_and_a_patch_two(store: Store, statements: list[str]) -> None:
    statements.clear()
    await store.commit(create(Chore(id="new")))
    await asyncio.sleep(0)  # the driver logs in the next turn of the loop
    assert statements == ["WITH"]
    statements.clear()
    await store.commit(patch(Chore, "warm", changes={"done": Increment(1)}))
    assert statements == ["SELECT", "WITH"]


async def test_a_patch_that_sets_plain_values_is_one_statement(store: Store, statements: list[str]) -> None:
    statements.clear()
    for changes in ({"done": 1}, {"done": 2}, {"due": NOON}, {"done": 3, "due": None}):
        await store.commit(patch(Chore, "warm", changes=changes))
    found = await store.get(Chore, "warm")
    assert found is not None
    assert (found.doc.done, found.doc.due) == (3, None)
    await store.commit(patch(Chore, "warm", changes={"done": 4}, expect=found.unchanged))
    await asyncio.sleep(0)  # the driver logs in the next turn of the loop
    assert statements == [*["WITH"] * 4, "SELECT", "WITH"]
    statements.clear()
    with pytest.raises(VersionConflictError):
        await store.commit(patch(Chore, "warm", changes={"done": 5}, expect=found.unchanged))
    with pytest.raises(NotFoundError):
        await store.commit(patch(Chore, "none", changes={"done": 5}))
    assert statements == ["WITH", "SELECT"] * 2


async def test_a_hundred_patches_are_one_statement(store: Store, statements: list[str]) -> None:
    ids = [f"c{n}" for n in range(100)]
    await store.settle([[create(Chore(id=id))] for id in ids])
    for round in range(2):
        statements.clear()
        await store.settle([[patch(Chore, id, changes={"done": round})] for id in ids])
        assert statements == ["WITH"]


async def test_two_processes_that_patch_fields_of_one_document_lose_nothing(
    store: Store, postgres_url: str
) -> None:
    other = await open_store(postgres_url, CLASSES)

    async def write(one: Store, field: str) -> None:
        for n in range(1, 31):
            await one.commit(patch(Pair, "one", changes={field: n}))

    await store.privileged().commit(create(Pair(id="one", tenant_id="t")))
    await asyncio.gather(write(store.tenant("t"), "first"), write(other.tenant("t"), "second"))
    found = await store.tenant("t").get(Pair, "one")
    assert found is not None
    assert (found.doc.first, found.doc.second) == (30, 30)
    await other.close()


@pytest.mark.parametrize(
    "write", [create(Chore(id="new")), patch(Chore, "before", changes={"done": 1})], ids=["create", "patch"]
)
async def test_a_write_that_comes_alone_is_sent_in_its_caller_s_turn_and_task(
    store: Store, write: Write
) -> None:
    await store.commit(create(Chore(id="before")))
    assert isinstance(store.engine, PostgresEngine)
    under_way, tasks = store.engine._pool._link_probe.statements, asyncio.all_tasks()
    caller = asyncio.create_task(store.commit(write))
    await asyncio.sleep(0)
    # After one turn its statement is under way, and no task was woken or started for it.
    assert len(under_way) == 1
    assert asyncio.all_tasks() == {*tasks, caller}
    await caller
    assert len(under_way) == 0


async def test_commits_behind_a_lone_create_are_one_batch(store: Store, statements: list[str]) -> None:
    await store.commit(create(Chore(id="before")))
    await asyncio.sleep(0)
    statements.clear()
    await asyncio.gather(*(store.commit(create(Chore(id=f"n{n}"))) for n in range(20)))
    await asyncio.sleep(0)
    assert statements == ["WITH", "WITH"]


async def test_marks_of_lone_creates_are_deleted(store: Store, postgres_url: str) -> None:
    for n in range(MARKS_MAX * 2):
        await store.commit(create(Chore(id=f"n{n}")))
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval(f"SELECT count(*) FROM {BATCHES}") <= MARKS_MAX
    await connection.close()


async def test_a_commit_that_depends_on_what_it_does_not_write_locks_it(
    store: Store, statements: list[str]
) -> None:
    statements.clear()
    await store.commit(patch(Chore, "warm", changes={"done": Increment(1)}), check(Chore, "other"))
    assert statements == ["BEGIN", "SELECT", "WITH", "COMMIT"]


async def test_a_batch_of_facts_is_a_read_and_a_write(store: Store, statements: list[str]) -> None:
    def facts(start: int) -> list[Fact]:
        return [
            Fact(tenant_id=f"t{n % 7}", name=f"f{n}", metrics={"calls": 1}, at=NOON)
            for n in range(start, start + 100)
        ]

    await record_facts(store.privileged(), facts(0))
    statements.clear()
    assert await record_facts(store.privileged(), facts(50)) == Recorded(50, 50)
    assert statements == ["SELECT", "WITH"]
    assert sum([await Meter(store, tenant_id=f"t{n}").day("calls", "2026-11-15") for n in range(7)]) == 150


async def test_a_hundred_events_are_one_statement(store: Store, statements: list[str]) -> None:
    endpoint = Endpoint(id="ep", url="http://127.0.0.1:9/", created_at=NOON)
    await store.tenant("-").commit(create(endpoint))
    await asyncio.sleep(0)
    statements.clear()
    await Outbox(store).send_many([Event(type="thing.made", body=b"{}") for _ in range(100)], [endpoint])
    assert statements == ["WITH"]


async def test_a_document_written_between_the_read_and_the_write_is_decided_again(
    store: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = await open_store(postgres_url, CLASSES)
    interruptions = ["warm", "other"]

    def interrupt(name: str) -> None:
        write = getattr(PostgresWriter, name)

        async def interrupted(self: PostgresWriter, *args: Any, **options: Any) -> Any:
            if interruptions:
                await rival_writes(interruptions.pop())
            return await write(self, *args, **options)

        monkeypatch.setattr(PostgresWriter, name, interrupted)

    async def rival_writes(id: str) -> None:
        waiting, interruptions[:] = interruptions[:], []
        await rival.commit(patch(Chore, id, changes={"done": Increment(10)}))
        interruptions[:] = waiting

    found = await store.get(Chore, "other")
    assert found is not None
    interrupt("write_alone")
    with pytest.raises(VersionConflictError):
        await store.commit(patch(Chore, "other", changes={"done": 1}, expect=found.unchanged))
    interrupt("_apply")
    await store.commit(patch(Chore, "warm", changes={"done": Increment(1, at_most=11)}))
    assert not interruptions
    assert [one and one.doc.done for one in await store.get_many(Chore, ["other", "warm"])] == [10, 11]
    await rival.close()


async def test_two_processes_that_count_in_one_document_lose_nothing(store: Store, postgres_url: str) -> None:
    other = await open_store(postgres_url, CLASSES)
    change = patch(Chore, "warm", changes={"done": Increment(1, at_most=1_000)})

    async def count(one: Store) -> None:
        for _ in range(30):
            await one.commit(change)

    await asyncio.gather(*(count(one) for one in (store, other, store, other)))
    found = await store.get(Chore, "warm")
    assert found is not None
    assert found.doc.done == 120
    await other.close()


@pytest.fixture
async def still_store(postgres_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """A store of an outbox whose clock stands still, so that nothing is polled."""
    opened = await open_store(postgres_url, OUTBOX_MODELS.all, clock=clock)
    await opened.migrate()
    yield opened
    await opened.close()


async def test_what_a_dispatcher_sends_and_settles_itself_makes_it_claim_nothing(
    still_store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    claim = PostgresEngine.claim

    async def counted(self: PostgresEngine, request: ClaimRequest) -> list[Snapshot[Any]]:
        sent.append(request.schema.name)
        return await claim(self, request)

    monkeypatch.setattr(PostgresEngine, "claim", counted)
    async with receiving() as receiver, dispatching(still_store) as dispatcher:
        endpoint = await endpoint_at(still_store, receiver.url())
        outbox = Outbox(still_store, local_dispatcher=dispatcher)
        await outbox.send(Event(id="first", type="thing.made", body=b"{}"), [endpoint])
        await until(lambda: dispatcher.status().settled == 1)
        await clock.advance(0.02)
        before = len(sent)
        for n in range(10):
            await outbox.send(Event(id=f"e{n}", type="thing.made", body=b"{}"), [endpoint])
            await until(lambda: dispatcher.status().settled == n + 2)  # noqa: B023 - awaited in the turn
            await clock.advance(0.02)  # a claim would not have to wait; together less than between two polls
        # One may have been wanted before, by the endpoint that was new; two for each event would be 20.
        assert len(sent) <= before + 1
        # What nobody holds is claimed at once.
        before = len(sent)
        await send(still_store, endpoint, "by-another")
        await until(lambda: dispatcher.status().settled == 12)
        assert len(sent) > before


async def test_a_claim_that_a_batch_cuts_short_goes_on_without_being_woken(still_store: Store) -> None:
    async with receiving() as receiver:
        endpoint = await endpoint_at(still_store, receiver.url(), concurrency=50)
        events = [Event(id=f"e{n}", type="thing.made", body=b"{}") for n in range(200)]
        await Outbox(still_store).send_many(events, [endpoint])
        async with dispatching(still_store, batch_max=20) as dispatcher:
            await until(lambda: dispatcher.status().settled == 200)
